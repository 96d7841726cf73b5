package document

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"peerproxy.internal/pkg/serve/represent"
)

// minCompressed is the size in bytes from which on a body is compressed. What
// is smaller fits into one packet anyway.
const minCompressed = 1 << 10

// content is what a document says. It is immutable.
type content interface {
	// object returns the content as it is encoded, with its type: a new object,
	// which may share memory with others.
	object() runtime.Object
}

// document is a content and its representations. Each of them is made when it
// is first asked for, once.
type document struct {
	content content
	// etag returns the entity tag of all representations, as the header's value;
	// nil where each has its own.
	etag func() ([]string, error)
	// made are the representations: two for each format, plain and compressed.
	made []atomic.Pointer[representation]
}

// representation is a document in one format.
type representation struct {
	once sync.Once
	body *body
	err  error
}

// body is what a representation is sent as.
type body struct {
	data []byte
	// etag, encoding and length are the headers' values; encoding is nil for a
	// plain body.
	etag, encoding, length []string
}

func (s *Server) newDocument(c content, etag func() ([]string, error)) *document {
	return &document{content: c, etag: etag, made: make([]atomic.Pointer[representation], 2*len(s.formats))}
}

// renew returns a document of the content, with the representations of the last
// one at its path if that says the same.
func (s *Server) renew(last *document, c content) *document {
	next := s.newDocument(c, nil)
	if last != nil && last.used() && reflect.DeepEqual(last.content, c) {
		next.made = last.made
	}
	return next
}

// used reports whether any representation was asked for.
func (d *document) used() bool {
	for i := range d.made {
		if d.made[i].Load() != nil {
			return true
		}
	}
	return false
}

// body returns the representation in the format with the index.
func (s *Server) body(d *document, format int, compressed bool) (*body, error) {
	i := 2 * format
	if compressed {
		i++
	}
	r := d.made[i].Load()
	if r == nil {
		d.made[i].CompareAndSwap(nil, &representation{})
		r = d.made[i].Load()
	}
	r.once.Do(func() {
		if compressed {
			r.body, r.err = s.compress(d, format)
		} else {
			r.body, r.err = s.encode(d, format)
		}
	})
	return r.body, r.err
}

func (s *Server) encode(d *document, format int) (*body, error) {
	data, err := s.formats[format].encode(d.content.object())
	if err != nil {
		return nil, err
	}
	return d.newBody(data, nil)
}

// compress returns the plain body compressed, or as it is where that saves
// nothing.
func (s *Server) compress(d *document, format int) (*body, error) {
	plain, err := s.body(d, format, false)
	if err != nil || len(plain.data) < minCompressed {
		return plain, err
	}
	data, err := represent.Gzip(plain.data)
	if err != nil {
		return nil, fmt.Errorf("compressing the merged document: %w", err)
	}
	return d.newBody(data, []string{"gzip"})
}

func (d *document) newBody(data []byte, encoding []string) (*body, error) {
	etag := []string{fmt.Sprintf(`"%x"`, sha256.Sum256(data))}
	if d.etag != nil {
		var err error
		if etag, err = d.etag(); err != nil {
			return nil, err
		}
	}
	return &body{data: data, etag: etag, encoding: encoding, length: []string{strconv.Itoa(len(data))}}, nil
}
