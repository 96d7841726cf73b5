package openapi

import (
	"fmt"
	"peerproxy.internal/pkg/serve/represent"
	"strconv"
	"sync"
)

// minCompressed is the size in bytes from which on a body is compressed. What
// is smaller fits into one packet anyway.
const minCompressed = 1 << 10

// document is a document that is served. All its parts are made when they are
// first asked for, once.
type document struct {
	content func() (content, error)
	// bodies are the representations by format, plain and compressed.
	bodies [numFormats][2]func() (body, error)
}

// content is what all representations share.
type content struct {
	json []byte
	// tag is the entity tag of the JSON, without quotes.
	tag string
}

// body is one representation.
type body struct {
	data []byte
	// etag is the quoted entity tag, encoding is empty for a plain body.
	etag, encoding string
}

// newDocument returns the document of the JSON that build makes. Its entity tag
// is tag, or a hash of the JSON where that is empty.
func newDocument(tag string, build func() ([]byte, error), toProtobuf func([]byte) ([]byte, error)) *document {
	d := &document{content: sync.OnceValues(func() (content, error) {
		text, err := build()
		if err != nil {
			return content{}, err
		}
		if tag == "" {
			tag = hashOf(text)
		}
		return content{text, tag}, nil
	})}
	encode := [numFormats]func([]byte) ([]byte, error){
		formatJSON:     func(text []byte) ([]byte, error) { return text, nil },
		formatProtobuf: toProtobuf,
	}
	for f := range d.bodies {
		plain := sync.OnceValues(func() (body, error) { return d.newBody(format(f), encode[f]) })
		d.bodies[f] = [2]func() (body, error){plain, sync.OnceValues(func() (body, error) { return compress(plain) })}
	}
	return d
}

// newBody gives each representation an entity tag of its own; that of plain JSON
// is the one that a stock server gives to all.
func (d *document) newBody(f format, encode func([]byte) ([]byte, error)) (body, error) {
	c, err := d.content()
	if err != nil {
		return body{}, err
	}
	data, err := encode(c.json)
	if err != nil {
		return body{}, fmt.Errorf("encode the document: %w", err)
	}
	tag := c.tag
	if f == formatProtobuf {
		tag += "-protobuf"
	}
	return body{data: data, etag: strconv.Quote(tag)}, nil
}

// compress returns the body compressed, or as it is where that saves nothing.
func compress(plain func() (body, error)) (body, error) {
	b, err := plain()
	if err != nil || len(b.data) < minCompressed {
		return b, err
	}
	data, err := represent.Gzip(b.data)
	if err != nil {
		return body{}, fmt.Errorf("compress the document: %w", err)
	}
	return body{data: data, etag: b.etag[:len(b.etag)-1] + `-gzip"`, encoding: "gzip"}, nil
}
