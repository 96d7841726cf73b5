package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/serve/represent"
	"peerproxy.internal/pkg/snapshot"
)

// documentKey names a document of peers: its name and hash in their indexes. For
// OpenAPI v2 the name is empty and the hash the signature of the index.
type documentKey struct{ name, hash string }

// kept is a document of peers.
type kept struct {
	// compressed is the document, nil until it was fetched.
	compressed []byte
	// retry is the time before which it is not asked for again.
	retry time.Time
	// fetching is nil while no one fetches it, begun is when that began.
	fetching flight
	begun    time.Time
}

// fetchedAs names the kind of document in metrics.
func (k documentKey) fetchedAs() string {
	if k.name == "" {
		return "fetch_v2"
	}
	return "fetch_v3"
}

// wanted is a document that a request needs, and who has it.
type wanted struct {
	documentKey
	holders []*snapshot.Peer
}

// fetch makes sure that documents are kept, as far as that can be done within
// the patience.
func (p *peers) fetch(ctx context.Context, patience time.Duration, documents []wanted) {
	var missing []flight
	for _, document := range documents {
		if f := p.start(document, patience); f != nil {
			missing = append(missing, f)
		}
	}
	wait(ctx, p.clock, patience, missing...)
}

// start fetches a document unless it is there, and returns what to wait for: no
// fetch that has already taken longer than the patience.
func (p *peers) start(document wanted, patience time.Duration) flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.documents[document.documentKey]
	if k == nil {
		k = &kept{}
		p.documents[document.documentKey] = k
	}
	now := p.clock.Now()
	if k.fetching != nil && now.Sub(k.begun) >= patience {
		return nil
	}
	if k.compressed != nil || k.fetching != nil || now.Before(k.retry) {
		return k.fetching
	}
	k.begun = now
	k.fetching, _ = p.life.start(func(ctx context.Context) {
		compressed, err := p.fetchFromAny(ctx, document)
		p.mu.Lock()
		defer p.mu.Unlock()
		k.compressed, k.fetching = compressed, nil
		if err != nil {
			k.retry = p.clock.Now().Add(retryAfter)
			klog.FromContext(ctx).V(2).Info("A peer's OpenAPI can't be read, others' is served", "document", document.name, "reason", err.Error())
		}
	})
	return k.fetching
}

var errNoHolder = errors.New("no peer that has it can be asked")

// fetchFromAny asks those who have a document, one after another.
func (p *peers) fetchFromAny(ctx context.Context, document wanted) ([]byte, error) {
	err := errNoHolder
	for _, peer := range document.holders {
		if !p.mayAsk(peer) {
			continue
		}
		var compressed []byte
		if compressed, err = p.fetchFrom(ctx, peer, document.documentKey); err == nil {
			return compressed, nil
		}
		p.noteError(ctx, peer, document.fetchedAs(), err)
		if refused := (*statusError)(nil); !errors.As(err, &refused) {
			p.pause(peer)
		}
	}
	return nil, err
}

func (p *peers) mayAsk(peer *snapshot.Peer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.members[keyOf(peer)]
	return isReachable(peer) && m != nil && !p.clock.Now().Before(m.retry)
}

// pause keeps a peer that could not be asked from being asked for a while.
func (p *peers) pause(peer *snapshot.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.members[keyOf(peer)]; m != nil {
		m.retry = p.clock.Now().Add(retryAfter)
	}
}

// fetchFrom returns a peer's document, compressed: it is needed again only when
// a third content has to be merged with it. What can't be merged is refused.
func (p *peers) fetchFrom(ctx context.Context, peer *snapshot.Peer, key documentKey) ([]byte, error) {
	at := url.URL{Path: pathV2}
	if key.name != "" {
		at = urlOf(key.name, key.hash)
	}
	got, err := p.at(peer).fetch(ctx, http.MethodGet, at, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", peer.ServerID, err)
	}
	if err := check(key, got); err != nil {
		return nil, fmt.Errorf("%s: %w", peer.ServerID, err)
	}
	return represent.Gzip(got.body)
}

// check reports why an answer is not the document that was asked for.
func check(key documentKey, got *answer) (err error) {
	if err := checkShape(got.body); err != nil {
		return err
	}
	if key.name == "" {
		_, err = decodeV2(got.body)
		return err
	}
	if got.etag != "" && got.etag != key.hash {
		return errors.New("it is another document by now")
	}
	_, err = decodeV3(got.body)
	return err
}

// document returns a document that is kept.
func (p *peers) document(key documentKey) ([]byte, error) {
	compressed := p.compressed(key)
	if compressed == nil {
		return nil, errNotKept
	}
	return gunzipped(compressed)
}

var errNotKept = errors.New("a peer's document is not there any more")

// has reports whether a document is kept.
func (p *peers) has(key documentKey) bool { return p.compressed(key) != nil }

func (p *peers) compressed(key documentKey) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.documents[key]; k != nil {
		return k.compressed
	}
	return nil
}

// keep drops the documents that no peer's index lists, and those of OpenAPI v2
// that the merged index does not need.
func (p *peers) keep(next *index) {
	p.mu.Lock()
	defer p.mu.Unlock()
	needed := map[documentKey]bool{}
	for _, source := range next.v2 {
		needed[documentKey{hash: source.signature}] = true
	}
	for _, m := range p.members {
		if m.index == nil {
			continue
		}
		for name, hash := range m.index.hashes {
			needed[documentKey{name, hash}] = true
		}
	}
	maps.DeleteFunc(p.documents, func(key documentKey, _ *kept) bool { return !needed[key] })
}

func gunzipped(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
