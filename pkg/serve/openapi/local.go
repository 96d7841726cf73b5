package openapi

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/serve/merge"
)

// freshEnough is how old this server's own index may be: a custom resource must
// show as soon as it would without the filter.
const freshEnough = 50 * time.Millisecond

// localServer is this server, asked in process.
type localServer struct {
	origin
	clock clock.PassiveClock

	mu   sync.Mutex
	last *localIndex
	read time.Time
}

// localIndex is this server's own index.
type localIndex struct {
	text []byte
	// sum tells indexes apart.
	sum string
	// urls are where the documents are, by name.
	urls map[string]string
	// documents are the same for the merge.
	documents map[string]merge.IndexedDocument
}

// index returns this server's own index as it is now. The last good one is
// returned where it can't be read.
func (l *localServer) index(ctx context.Context) (*localIndex, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if l.last != nil && now.Sub(l.read) < freshEnough {
		return l.last, nil
	}
	got, err := l.fetch(ctx, http.MethodGet, url.URL{Path: pathV3}, maxIndexBytes)
	if err == nil && (l.last == nil || !bytes.Equal(got.body, l.last.text)) {
		var next *localIndex
		if next, err = newLocalIndex(got.body); err == nil {
			l.last = next
		}
	}
	if err == nil {
		l.read = now
	}
	return l.last, err
}

func newLocalIndex(text []byte) (*localIndex, error) {
	urls, err := decodeIndex(text)
	if err != nil {
		return nil, err
	}
	next := &localIndex{text: text, sum: sumOf(text), urls: urls, documents: make(map[string]merge.IndexedDocument, len(urls))}
	for name, at := range urls {
		hash, ok := hashIn(name, at)
		if !ok {
			hash = at // a document that only this server knows how to serve
		}
		next.documents[name] = merge.IndexedDocument{Hash: hash}
	}
	return next, nil
}
