package document

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

	"peerproxy.internal/pkg/snapshot"
)

// minCompressed is the size in bytes from which on a body is compressed. What
// is smaller fits into one packet anyway.
const minCompressed = 1 << 10

// document is a merged document. All its parts are made when they are first
// asked for, once.
type document struct {
	// key is that of the view it is made of.
	key     string
	content func() (content, error)
	// plain and compressed are the bodies by format.
	plain, compressed []func() (body, error)
}

// content is what all representations share.
type content struct {
	groups []apidiscoveryv2.APIGroupDiscovery
	// etag is the header's value: the quoted tag.
	etag []string
}

// body is one representation.
type body struct {
	data []byte
	// encoding and length are the headers' values, encoding is nil for a plain
	// body.
	encoding, length []string
}

func (s *Server) newDocument(view snapshot.View) *document {
	d := &document{
		key:     view.Key,
		content: sync.OnceValues(func() (content, error) { return newContent(s.merge(view.Sources)) }),
	}
	for i := range s.formats {
		plain := sync.OnceValues(func() (body, error) { return d.newBody(&s.formats[i]) })
		d.plain = append(d.plain, plain)
		d.compressed = append(d.compressed, sync.OnceValues(func() (body, error) { return compress(plain) }))
	}
	return d
}

// newContent computes the entity tag as upstream does: of the list's JSON
// without its type.
func newContent(groups []apidiscoveryv2.APIGroupDiscovery) (content, error) {
	data, err := json.Marshal(apidiscoveryv2.APIGroupDiscoveryList{Items: groups})
	if err != nil {
		return content{}, fmt.Errorf("computing the merged document's entity tag: %w", err)
	}
	return content{groups: groups, etag: []string{fmt.Sprintf(`"%X"`, sha512.Sum512(data))}}, nil
}

func (d *document) newBody(f *format) (body, error) {
	c, err := d.content()
	if err != nil {
		return body{}, err
	}
	data, err := f.encode(c.groups)
	if err != nil {
		return body{}, err
	}
	return body{data: data, length: []string{strconv.Itoa(len(data))}}, nil
}

// compress returns the body compressed, or as it is where that saves nothing.
func compress(plain func() (body, error)) (body, error) {
	b, err := plain()
	if err != nil || len(b.data) < minCompressed {
		return b, err
	}
	data, err := gzipped(b.data)
	if err != nil {
		return body{}, fmt.Errorf("compressing the merged document: %w", err)
	}
	return body{data: data, encoding: []string{"gzip"}, length: []string{strconv.Itoa(len(data))}}, nil
}

func gzipped(plain []byte) ([]byte, error) {
	var data bytes.Buffer
	// The slower levels save a few percent of a discovery document's bytes and
	// take ten times as long, while the first request for a new content waits.
	w, err := gzip.NewWriterLevel(&data, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}
