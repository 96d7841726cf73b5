package openapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
)

const (
	// maxAge is how old a peer's index may be before it is read again.
	maxAge = 10 * time.Second
	// retryAfter is how long a peer is not asked after it could not be.
	retryAfter = 10 * time.Second
	// patience is how long a request waits for what was never read before.
	patience = time.Second
	// keptIncarnations is how many of a server are remembered: the last Serving
	// one comes back into force when one that starts is gone.
	keptIncarnations = 2
)

// peers is what is known of the peers' OpenAPI.
type peers struct {
	transport http.RoundTripper
	clock     clock.Clock
	life      *life
	troubles  transport.Troubles

	mu        sync.Mutex
	members   map[memberKey]*member
	documents map[documentKey]*kept
}

type memberKey struct{ serverID, incarnation string }

// member is what is known of one incarnation of a peer.
type member struct {
	index *peerIndex // nil until it was read
	// discovery is the content of the peer's discovery when the index was asked
	// for, read the time.
	discovery string
	read      time.Time
	// retry is the time before which the peer is not asked, zero as long as it
	// could always be; used is the last time that it was in force.
	retry, used time.Time
	// reading is nil while no one reads the index, begun is when that began.
	reading flight
	begun   time.Time
}

// peerIndex is a peer's index: the hashes of its documents by name. It is
// immutable.
type peerIndex struct {
	// sum tells indexes apart.
	sum    string
	hashes map[string]string
}

// indexes returns the indexes of the snapshot's peers that are known, by server
// ID. Those that are old are read again meanwhile; for those that are read for
// the first time it waits a little.
func (p *peers) indexes(ctx context.Context, snap *snapshot.Snapshot) map[string]*peerIndex {
	wait(ctx, p.clock, patience, p.refresh(snap)...)
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[string]*peerIndex{}
	for _, peer := range snap.Peers() {
		if m := p.members[keyOf(peer)]; m != nil && m.index != nil {
			known[peer.ServerID] = m.index
		}
	}
	return known
}

// keyOf is the incarnation of the peer whose discovery is in force.
func keyOf(peer *snapshot.Peer) memberKey {
	if peer.Document == nil {
		return memberKey{}
	}
	return memberKey{peer.ServerID, peer.Document.Incarnation}
}

// refresh reads the indexes that are due, and returns what to wait for.
func (p *peers) refresh(snap *snapshot.Snapshot) []flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	var missing []flight
	for _, peer := range snap.Peers() {
		if peer.Document == nil {
			continue
		}
		m := p.members[keyOf(peer)]
		if m == nil {
			m = &member{}
			p.members[keyOf(peer)] = m
		}
		m.used = now
		if m.reading == nil && isReachable(peer) && m.isDue(now, discoveryOf(peer)) {
			m.begun = now
			m.reading, _ = p.life.start(func(ctx context.Context) { p.read(ctx, peer, m) })
		}
		if m.index == nil && m.reading != nil && m.retry.IsZero() && now.Sub(m.begun) < patience {
			missing = append(missing, m.reading)
		}
	}
	p.forget(snap)
	return missing
}

// isReachable reports whether the peer can be asked for what belongs to its
// document: at its address is that incarnation.
func isReachable(peer *snapshot.Peer) bool {
	return peer.State.Reachable() && peer.Incarnation == peer.Document.Incarnation
}

func discoveryOf(peer *snapshot.Peer) string {
	return peer.Document.Core.ETag + " " + peer.Document.Groups.ETag
}

func (m *member) isDue(now time.Time, discovery string) bool {
	isOld := m.index == nil || m.discovery != discovery || now.Sub(m.read) >= maxAge
	return isOld && !now.Before(m.retry)
}

// read reads a peer's index.
func (p *peers) read(ctx context.Context, peer *snapshot.Peer, m *member) {
	got, err := p.at(peer).fetch(ctx, http.MethodGet, url.URL{Path: pathV3}, maxIndexBytes)
	var next *peerIndex
	if err == nil {
		next, err = newPeerIndex(got.body)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.reading = nil
	if err != nil {
		p.noteError(ctx, peer, "fetch_index", err)
		m.retry = p.clock.Now().Add(retryAfter)
		klog.FromContext(ctx).V(2).Info("A peer's OpenAPI can't be read, what is known of it stays", "peer", peer.ServerID, "reason", err.Error())
		return
	}
	if m.index == nil || m.index.sum != next.sum {
		m.index = next
	}
	m.discovery, m.read = discoveryOf(peer), m.begun
}

// noteError counts a failed fetch, by its cause where that is a misconfiguration,
// which is logged too, and else by what was fetched; unless it failed because the
// server stops.
func (p *peers) noteError(ctx context.Context, peer *snapshot.Peer, fetched string, err error) {
	if ctx.Err() != nil {
		return
	}
	label := fetched
	if cause := transport.Misconfiguration(err); cause != "" {
		label = string(cause)
		p.troubles.Log(klog.FromContext(ctx), p.clock.Now(), "A peer's OpenAPI can't be read", peer.ServerID, label, err)
	}
	metrics.IncOpenAPISyncError(ctx, label)
}

func (p *peers) at(peer *snapshot.Peer) origin {
	return origin{serverID: peer.ServerID, host: peer.Address, transport: p.transport}
}

// newPeerIndex leaves out what has no URL of the usual kind: it could not be
// told from other content.
func newPeerIndex(text []byte) (*peerIndex, error) {
	urls, err := decodeIndex(text)
	if err != nil {
		return nil, err
	}
	next := &peerIndex{sum: sumOf(text), hashes: make(map[string]string, len(urls))}
	for name, at := range urls {
		if hash, ok := hashIn(name, at); ok {
			next.hashes[name] = hash
		}
	}
	return next, nil
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// forget drops the servers that are no peers any more, and all but the latest
// incarnations of those that are. To be called with mu held.
func (p *peers) forget(snap *snapshot.Snapshot) {
	incarnations := map[string][]memberKey{}
	for _, peer := range snap.Peers() {
		incarnations[peer.ServerID] = nil
	}
	maps.DeleteFunc(p.members, func(key memberKey, _ *member) bool {
		_, isPeer := incarnations[key.serverID]
		if isPeer {
			incarnations[key.serverID] = append(incarnations[key.serverID], key)
		}
		return !isPeer
	})
	for _, keys := range incarnations {
		for len(keys) > keptIncarnations {
			oldest := 0
			for i := range keys {
				if p.members[keys[i]].used.Before(p.members[keys[oldest]].used) {
					oldest = i
				}
			}
			delete(p.members, keys[oldest])
			keys = append(keys[:oldest], keys[oldest+1:]...)
		}
	}
}
