package openapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/snapshot"
)

// mergedV3 are the documents of OpenAPI v3 that are not left to the local chain,
// by their name and hash in the merged index.
type mergedV3 struct {
	mu        sync.Mutex
	documents map[documentKey]*documentV3
}

// documentV3 is a document, and what it is merged of.
type documentV3 struct {
	*document
	documentKey
	sources []merge.IndexSource
}

// serveV3 answers a request for a document of OpenAPI v3.
func (x *exchange) serveV3(ctx context.Context) {
	entry, found := x.index.entries[x.request.name]
	switch {
	case !found && x.index.isUnknown(x.request.name, x.snap):
		x.refuse()
	case found && x.index.custom.Has(x.request.name):
		x.serveCustom(ctx)
	case !found, x.index.isLeft(x.request.name, entry.Sources):
		x.local.ServeHTTP(x.w, x.r)
	default:
		x.serveMerged(ctx, entry)
	}
}

// serveMerged answers with a merged document. Of members whose documents can't
// be had it is without: then it is the document of another hash, to which a
// client that asked for this one is sent, as after any change.
func (x *exchange) serveMerged(ctx context.Context, entry merge.IndexEntry) {
	d := x.merged.find(documentKey{x.request.name, entry.Hash})
	if d == nil {
		sources := x.available(ctx, x.index, x.snap, x.request.name, entry.Sources, patience)
		if len(sources) == 0 {
			x.refuse()
			return
		}
		d = x.merged.add(x.newDocumentV3(ctx, sources))
	}
	if _, err := d.content(); err != nil {
		x.merged.remove(d)
		x.giveUp(err, entry)
		return
	}
	x.send(d.document, subresourceDocument)
}

// available returns the sources of a document that are there, or can be fetched
// within the patience.
func (s *Server) available(ctx context.Context, index *index, snap *snapshot.Snapshot, name string, sources []merge.IndexSource, patience time.Duration) []merge.IndexSource {
	var missing []wanted
	for _, source := range sources {
		if !index.isOwn(source) {
			missing = append(missing, wanted{documentKey{name, source.Hash}, holders(snap, source.ServerIDs)})
		}
	}
	s.peers.fetch(ctx, patience, missing)
	return slices.DeleteFunc(slices.Clone(sources), func(source merge.IndexSource) bool {
		return !index.isOwn(source) && !s.peers.has(documentKey{name, source.Hash})
	})
}

// isOwn reports whether this server has the document.
func (i *index) isOwn(source merge.IndexSource) bool {
	return slices.Contains(source.ServerIDs, i.serverID)
}

// holders returns the peers with these IDs.
func holders(snap *snapshot.Snapshot, serverIDs []string) []*snapshot.Peer {
	return slices.DeleteFunc(slices.Clone(snap.Peers()), func(peer *snapshot.Peer) bool {
		return !slices.Contains(serverIDs, peer.ServerID) || peer.Document == nil
	})
}

func (x *exchange) newDocumentV3(ctx context.Context, sources []merge.IndexSource) *documentV3 {
	key := documentKey{x.request.name, merge.HashOf(sources)}
	// The document is made once for all who wait for it, so that the first one's
	// leaving must not end it.
	ctx = context.WithoutCancel(ctx)
	build := func() ([]byte, error) { return x.index.buildV3(ctx, x.Server, key.name, sources) }
	return &documentV3{newDocument(key.hash, build, handler3.ToV3ProtoBinary), key, sources}
}

// buildV3 returns the merged document as JSON.
func (i *index) buildV3(ctx context.Context, s *Server, name string, sources []merge.IndexSource) ([]byte, error) {
	var members []merge.OpenAPIMember[spec3.OpenAPI]
	for _, source := range sources {
		text, err := i.textOf(ctx, s, name, source)
		if err != nil {
			return nil, err
		}
		if len(sources) == 1 && source.Apart == "" {
			return text, nil
		}
		document, err := decodeV3(text)
		if err != nil {
			return nil, err
		}
		winner := source.ServerIDs[0]
		member := merge.OpenAPIMember[spec3.OpenAPI]{ServerID: winner, State: i.states[winner], Document: document}
		switch {
		case source.Apart == "":
		case i.isOwn(source):
			member.Excluded = i.listings[i.serverID].excludes
		default:
			member.Takes = i.listings[winner].takes
		}
		members = append(members, member)
	}
	document, err := merge.OpenAPIV3(members)
	if err != nil {
		return nil, err
	}
	return document.MarshalJSON()
}

// textOf returns a document as a member has it.
func (i *index) textOf(ctx context.Context, s *Server, name string, source merge.IndexSource) ([]byte, error) {
	if !i.isOwn(source) {
		return s.peers.document(documentKey{name, source.Hash})
	}
	at, err := url.Parse(i.local.urls[name])
	if err != nil {
		return nil, fmt.Errorf("the own document %s: %w", name, err)
	}
	got, err := s.local.fetch(ctx, http.MethodGet, *at, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("the own document: %w", err)
	}
	return got.body, nil
}

func (m *mergedV3) find(key documentKey) *documentV3 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.documents[key]
}

// add returns the document, or the one that is there already.
func (m *mergedV3) add(d *documentV3) *documentV3 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if existing := m.documents[d.documentKey]; existing != nil {
		return existing
	}
	m.documents[d.documentKey] = d
	return d
}

func (m *mergedV3) remove(d *documentV3) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.documents[d.documentKey] == d {
		delete(m.documents, d.documentKey)
	}
}

// keep drops the documents that are not merged of what the index lists.
func (m *mergedV3) keep(next *index) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.documents, func(key documentKey, d *documentV3) bool {
		listed := next.entries[key.name].Sources
		return slices.ContainsFunc(d.sources, func(source merge.IndexSource) bool {
			return !slices.ContainsFunc(listed, func(l merge.IndexSource) bool { return l.IndexedDocument == source.IndexedDocument })
		})
	})
}
