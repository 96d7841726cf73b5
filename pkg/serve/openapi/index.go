package openapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kube-openapi/pkg/handler3"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/snapshot"
)

// index is the merged index of OpenAPI v3, and what the documents are made of.
// It is immutable.
type index struct {
	// key names all that it is made of.
	key string
	// serverID is this server, local its index.
	serverID string
	local    *localIndex
	listings map[string]*listing
	states   map[string]snapshot.State
	entries  map[string]merge.IndexEntry
	// custom are the documents of custom resources that are made with the shared
	// schemas; these are nil where there are none.
	custom sets.Set[string]
	shared *sharedSchemas
	// retry is when something is tried again that could not be had, zero if
	// nothing is.
	retry time.Time
	// v2 are the peers' parts in OpenAPI v2, excludedV2 names what they may not
	// bring.
	v2         []sourceV2
	excludedV2 string
	document   *document
}

// sourceV2 is what peers with one signature bring to OpenAPI v2.
type sourceV2 struct {
	signature string
	// serverIDs are the peers, the one that wins first.
	serverIDs []string
}

var errNoLocal = errors.New("what this server serves is not known yet")

// index returns the merged index of a snapshot, as far as the peers' are known.
func (s *Server) index(ctx context.Context, snap *snapshot.Snapshot) (*index, error) {
	if snap.Local() == nil {
		return nil, errNoLocal
	}
	local, err := s.local.index(ctx)
	if local == nil {
		return nil, err
	}
	known := s.peers.indexes(ctx, snap)
	key := indexKey(snap, local, known)
	if latest := s.latest.Load(); latest.holds(key, s.clock.Now()) {
		return latest, nil
	}
	s.building.Lock()
	defer s.building.Unlock()
	if latest := s.latest.Load(); latest.holds(key, s.clock.Now()) {
		return latest, nil
	}
	next := newIndex(key, snap, local, known)
	s.describeCustom(ctx, next, snap)
	s.latest.Store(next)
	s.forget(next)
	return next, nil
}

// holds reports whether an index is still the one of that key.
func (i *index) holds(key string, now time.Time) bool {
	return i != nil && i.key == key && (i.retry.IsZero() || now.Before(i.retry))
}

func indexKey(snap *snapshot.Snapshot, local *localIndex, known map[string]*peerIndex) string {
	var key strings.Builder
	fmt.Fprintf(&key, "%s %s %s", snap.View(snapshot.PathAPI).Key, snap.View(snapshot.PathAPIs).Key, local.sum)
	for _, peer := range snap.Peers() {
		if index := known[peer.ServerID]; index != nil {
			fmt.Fprintf(&key, " %q %s", peer.ServerID, index.sum)
		}
	}
	return key.String()
}

func newIndex(key string, snap *snapshot.Snapshot, local *localIndex, known map[string]*peerIndex) *index {
	next := &index{
		key:      key,
		serverID: snap.Local().ServerID,
		local:    local,
		listings: listings(snap),
		states:   map[string]snapshot.State{},
		custom:   sets.New[string](),
	}
	own := merge.IndexMember{ServerID: next.serverID, Documents: maps.Clone(local.documents)}
	var members []merge.IndexMember
	for _, peer := range snap.Peers() {
		index, listing := known[peer.ServerID], next.listings[peer.ServerID]
		if index == nil || listing == nil {
			continue
		}
		next.states[peer.ServerID] = peer.State
		member := merge.IndexMember{ServerID: peer.ServerID, State: peer.State, Documents: index.taken(listing)}
		members = append(members, member)
		for name := range member.Documents {
			if document, found := own.Documents[name]; found {
				document.Apart = next.listings[next.serverID].apart(name)
				own.Documents[name] = document
			}
		}
	}
	next.v2 = sourcesV2(own, members)
	next.excludedV2 = next.listings[next.serverID].allExcluded()
	next.entries = merge.OpenAPIIndex(append(members, own))
	next.document = newDocument("", next.encode, nil)
	return next
}

// taken returns the documents that are taken from a peer.
func (i *peerIndex) taken(l *listing) map[string]merge.IndexedDocument {
	documents := map[string]merge.IndexedDocument{}
	for name, hash := range i.hashes {
		if l.takes(name) {
			documents[name] = merge.IndexedDocument{Hash: hash, Apart: l.apart(name)}
		}
	}
	return documents
}

// sourcesV2 returns who has something to bring to OpenAPI v2: peers whose
// documents of OpenAPI v3 all equal this server's have not, so that in a cluster
// of one version no one's is fetched.
func sourcesV2(own merge.IndexMember, peers []merge.IndexMember) []sourceV2 {
	var sources []sourceV2
	for _, peer := range merge.IndexOrder(peers) {
		brings := false
		for name, document := range peer.Documents {
			brings = brings || document != own.Documents[name]
		}
		if !brings {
			continue
		}
		signature := peer.Signature()
		i := slices.IndexFunc(sources, func(s sourceV2) bool { return s.signature == signature })
		if i < 0 {
			sources = append(sources, sourceV2{signature: signature})
			i = len(sources) - 1
		}
		sources[i].serverIDs = append(sources[i].serverIDs, peer.ServerID)
	}
	return sources
}

// encode writes the index. What this server has as it stands keeps its URL.
func (i *index) encode() ([]byte, error) {
	written := handler3.OpenAPIV3Discovery{Paths: make(map[string]handler3.OpenAPIV3DiscoveryGroupVersion, len(i.entries))}
	for name, entry := range i.entries {
		at := urlOf(name, entry.Hash)
		relative := at.String()
		if i.isLocal(entry.Sources) && !i.custom.Has(name) {
			relative = i.local.urls[name]
		}
		written.Paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: relative}
	}
	return json.Marshal(written)
}

// isLocal reports whether a document of these sources is this server's own.
func (i *index) isLocal(sources []merge.IndexSource) bool {
	return len(sources) == 1 && sources[0].Apart == "" && slices.Contains(sources[0].ServerIDs, i.serverID)
}

// isLeft reports whether a document of these sources is left to the local chain:
// each member has it as it stands, or none is to take it from another. What some
// members lack is served alike by all, compressed where a chain would not.
func (i *index) isLeft(name string, sources []merge.IndexSource) bool {
	return i.isLocal(sources) && (len(sources[0].ServerIDs) == 1+len(i.states) || !i.listings[i.serverID].gives(name))
}

// isUnknown reports whether a peer lists the group-version of a document, but
// its index is not known.
func (i *index) isUnknown(name string, snap *snapshot.Snapshot) bool {
	if at := locate(name); at.group == nil || at.version == "" {
		return false
	}
	return slices.ContainsFunc(snap.Peers(), func(peer *snapshot.Peer) bool {
		_, known := i.states[peer.ServerID]
		listing := i.listings[peer.ServerID]
		return !known && listing != nil && listing.takes(name)
	})
}
