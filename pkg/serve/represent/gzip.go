package represent

import (
	"bytes"
	"compress/gzip"
)

// Gzip compresses a representation, at the fastest level.
func Gzip(plain []byte) ([]byte, error) {
	var data bytes.Buffer
	// The slower levels save a few percent of a document's bytes and
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
