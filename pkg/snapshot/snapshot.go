package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Content is what a [Snapshot] is made of.
type Content struct {
	// Local is what this server alone serves, nil until it was read.
	Local *Document
	// Peers are the other members that take part, in any order.
	Peers []*Peer
	// Excluded is never taken from a peer.
	Excluded *Exclusions
	// Unsure is true while what some member serves is not known: what no
	// document lists is then Unknown, not Absent.
	Unsure bool
	// Blind is true when what this server serves could not be found out in time.
	// Then only the local chain knows, and routes are those of the other members.
	Blind bool
	// Ready is true once the leases, the local document and a document of every
	// member that could be asked are known, and stays true.
	Ready bool
	// BuiltIn reports whether a group can be built into an apiserver; what can't
	// is never Unknown, so that probes for optional custom resources keep their
	// 404. Nil stands for [BuiltIn].
	BuiltIn func(group string) bool
}

// BuiltIn reports whether group looks like one that is built into an
// apiserver: it has no dot, or ends in .k8s.io.
func BuiltIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// Snapshot is an immutable view of who in the cluster serves what.
type Snapshot struct {
	content Content
	builtIn func(group string) bool
	views   [numPaths]View
	// local is what this server serves, nothing while that is not known.
	local index
	// peers are those with a document, the most reliable first.
	peers []indexedPeer
}

type indexedPeer struct {
	*Peer
	index
}

// New makes the snapshot of a content, which belongs to the snapshot from then
// on: neither it nor anything it points to may change any more.
func New(c Content) *Snapshot {
	s := &Snapshot{content: c, builtIn: c.BuiltIn}
	if s.builtIn == nil {
		s.builtIn = BuiltIn
	}
	slices.SortFunc(s.content.Peers, func(a, b *Peer) int { return cmp.Compare(a.ServerID, b.ServerID) })
	for path := range s.views {
		s.views[path] = newView(&s.content, Path(path))
	}
	if c.Local != nil {
		s.local = indexOf(c.Local)
	}
	for _, peer := range s.content.Peers {
		if peer.Document != nil {
			s.peers = append(s.peers, indexedPeer{peer, indexOf(peer.Document)})
		}
	}
	slices.SortStableFunc(s.peers, func(a, b indexedPeer) int { return cmp.Compare(a.State, b.State) })
	return s
}

// Local is what this server alone serves, nil until it was read.
func (s *Snapshot) Local() *Document { return s.content.Local }

// Peers are the other members that take part, by server ID.
func (s *Snapshot) Peers() []*Peer { return s.content.Peers }

// Ready reports whether merged documents can be served: the leases, the local
// document and a document of every member that could be asked were known once.
func (s *Snapshot) Ready() bool { return s.content.Ready }

// Blind reports whether what this server serves could not be found out in time:
// then only what is excluded, or can't be routed, is Local.
func (s *Snapshot) Blind() bool { return s.content.Blind }

// View returns the documents at a path that a merged document is made of.
func (s *Snapshot) View(path Path) View { return s.views[path] }

// Path is the path of an aggregated discovery document.
type Path int

// The paths of aggregated discovery.
const (
	PathAPI  Path = iota // /api
	PathAPIs             // /apis
	numPaths
)

// String returns the path as it stands in a URL.
func (p Path) String() string { return [...]string{"/api", "/apis"}[p] }

// Of returns the document's list at the path.
func (p Path) Of(d *Document) *List {
	if p == PathAPI {
		return &d.Core
	}
	return &d.Groups
}

// View is all that a merged document at one path depends on.
type View struct {
	// Key names the content: views with equal keys make equal documents.
	Key string
	// Sources are the members' documents by server ID, this server's included.
	Sources []Source
}

// Source is one member's part in a merged document.
type Source struct {
	ServerID string
	// Local is true for this server's own document, which alone brings excluded
	// content.
	Local bool
	// State is the member's state, StateServing for this server.
	State State
	// Whole is the document as the member sent it.
	Whole *List
	// Own is Whole without what is excluded; for this server the same as Whole.
	Own *List
	// Excluded tells what the other members may not bring. Set for this server
	// alone.
	Excluded func(schema.GroupVersionResource) bool
}

func newView(c *Content, path Path) View {
	var sources []Source
	if c.Local != nil {
		list := path.Of(c.Local)
		sources = append(sources, Source{ServerID: c.Local.ServerID, Local: true, Whole: list, Own: list, Excluded: c.Excluded.Owns})
	}
	for _, peer := range c.Peers {
		if peer.Document == nil {
			continue
		}
		whole := path.Of(peer.Document)
		sources = append(sources, Source{
			ServerID: peer.ServerID,
			State:    peer.State,
			Whole:    whole,
			Own:      without(whole, c.Excluded.from(peer.Document.Checked)),
		})
	}
	slices.SortStableFunc(sources, func(a, b Source) int { return cmp.Compare(a.ServerID, b.ServerID) })
	return View{Key: viewKey(sources), Sources: sources}
}

func viewKey(sources []Source) string {
	h := sha256.New()
	for _, src := range sources {
		fmt.Fprintf(h, "%q %t %t %t %q %q\n", src.ServerID, src.Local, src.State == StateStarting, src.State.Reachable(), src.Whole.ETag, src.Own.ETag)
		if src.Local {
			fmt.Fprintln(h, excludedTag(src.Whole, src.Excluded))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
