package openapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/snapshot"
)

const (
	// patienceV2 is how long a peer may take for its document of OpenAPI v2: a
	// stock server makes it when it is first asked for, which takes a second.
	patienceV2 = 3 * time.Second
	// checkV2 is how long a request waits for the check that the last document
	// still holds, before that is served: longer than the check takes, and shorter
	// than making the next one.
	checkV2 = 100 * time.Millisecond
	// firstV2 bounds the wait for a document where there is none, or where the last
	// one was known to hold longer ago than staleV2.
	firstV2 = 30 * time.Second
	staleV2 = time.Minute
)

// mergedV2 is the merged document of OpenAPI v2.
type mergedV2 struct {
	local origin

	mu sync.Mutex
	// key names what the document is made of, confirmed is when that was last
	// known to be all that there is.
	key       string
	document  *document // nil until it was asked for
	confirmed time.Time
	checking  flight // nil while no one checks it
}

// serveV2 answers a request for OpenAPI v2: with the last document while the
// next one is made.
func (x *exchange) serveV2() {
	if len(x.index.v2) == 0 {
		x.local.ServeHTTP(x.w, x.r)
		return
	}
	checking, patience := x.v2.check(x)
	if checking != nil {
		wait(x.ctx, x.clock, patience, checking)
	}
	if d := x.v2.latest(); d != nil {
		x.send(d, "")
		return
	}
	x.local.ServeHTTP(x.w, x.r)
}

// check makes sure that someone checks the document, and returns what to wait
// for, and how long.
func (m *mergedV2) check(x *exchange) (flight, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checking == nil {
		s, index, wanted := x.Server, x.index, x.wantedV2()
		m.checking, _ = x.life.start(func(ctx context.Context) {
			if err := s.checkV2(ctx, index, wanted); err != nil {
				klog.FromContext(ctx).V(2).Info("OpenAPI v2 can't be merged, the last document stays", "reason", err.Error())
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.checking = nil
		})
	}
	if m.document == nil || x.clock.Since(m.confirmed) > staleV2 {
		return m.checking, firstV2
	}
	return m.checking, checkV2
}

func (m *mergedV2) latest() *document {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.document
}

func (m *mergedV2) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.key, m.document = "", nil
}

// confirm reports whether the document is made of what the key names.
func (m *mergedV2) confirm(key string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.document == nil || m.key != key {
		return false
	}
	m.confirmed = now
	return true
}

func (m *mergedV2) set(key string, d *document, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.key, m.document, m.confirmed = key, d, now
}

func (x *exchange) wantedV2() []wanted {
	var documents []wanted
	for _, source := range x.index.v2 {
		documents = append(documents, wanted{documentKey{hash: source.signature}, holders(x.snap, source.serverIDs)})
	}
	return documents
}

// checkV2 makes the document anew if it is not made of all that there is.
func (s *Server) checkV2(ctx context.Context, index *index, wanted []wanted) error {
	now := s.clock.Now()
	s.peers.fetch(ctx, patienceV2, wanted)
	head, err := s.v2.local.fetch(ctx, http.MethodHead, url.URL{Path: pathV2}, maxBytes)
	if err != nil {
		return fmt.Errorf("the own document: %w", err)
	}
	key := []string{head.etag, index.excludedV2}
	var sources []sourceV2
	for _, source := range index.v2 {
		if s.peers.has(documentKey{hash: source.signature}) {
			sources = append(sources, source)
			key = append(key, source.signature)
		}
	}
	if len(sources) == 0 || s.v2.confirm(strings.Join(key, " "), now) {
		return nil
	}
	text, err := s.buildV2(ctx, index, sources)
	if err != nil {
		return err
	}
	d := newDocument("", func() ([]byte, error) { return text, nil }, handler.ToProtoBinary)
	s.v2.set(strings.Join(key, " "), d, now)
	return nil
}

// buildV2 returns the merged document as JSON.
func (s *Server) buildV2(ctx context.Context, index *index, sources []sourceV2) ([]byte, error) {
	got, err := s.v2.local.fetch(ctx, http.MethodGet, url.URL{Path: pathV2}, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("the own document: %w", err)
	}
	own, err := decodeV2(got.body)
	if err != nil {
		return nil, fmt.Errorf("the own document: %w", err)
	}
	members := []merge.OpenAPIMember[spec.Swagger]{{
		ServerID: index.serverID, State: snapshot.StateServing, Document: own,
		Excluded: index.listings[index.serverID].excludes,
	}}
	for _, source := range sources {
		text, err := s.peers.document(documentKey{hash: source.signature})
		if err != nil {
			return nil, err
		}
		document, err := decodeV2(text)
		if err != nil {
			return nil, err
		}
		winner := source.serverIDs[0]
		members = append(members, merge.OpenAPIMember[spec.Swagger]{
			ServerID: winner, State: index.states[winner], Document: document,
			Takes: index.listings[winner].takes,
		})
	}
	merged, err := merge.OpenAPIV2(members)
	if err != nil {
		return nil, err
	}
	return merged.MarshalJSON()
}
