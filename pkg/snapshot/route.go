package snapshot

import "k8s.io/apimachinery/pkg/runtime/schema"

// Resource names what a request asks for, as RequestInfo parses it.
type Resource struct {
	Group, Version, Resource, Subresource string
}

func (r Resource) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// Kind is the kind of a [Route].
type Kind int

// The kinds of route.
const (
	// Absent: every member that takes part is known not to serve it.
	Absent Kind = iota
	// Local: this server serves it, or it is excluded from peers.
	Local
	// Peers: this server does not serve it and a reachable member does.
	Peers
	// Unreachable: only members that can't be reached serve it.
	Unreachable
	// Unknown: no one known serves it, and what some member serves is not known.
	Unknown
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case Absent:
		return "Absent"
	case Local:
		return "Local"
	case Peers:
		return "Peers"
	case Unreachable:
		return "Unreachable"
	case Unknown:
		return "Unknown"
	}
	return "Invalid"
}

// Route is the answer to "who serves this?".
type Route struct {
	Kind Kind
	// Candidates are the peers to ask, the most reliable state first, for the
	// kinds Peers and Unreachable.
	Candidates []*Peer
}

// Route returns who serves the resource with the verb. For what this server
// serves it takes one map look-up and allocates nothing; else it takes one more
// for each peer, and allocates the candidates. A verb that can't be routed
// (empty, "proxy") is Local: only the local chain knows what to do with it.
func (s *Snapshot) Route(r Resource, verb string) Route {
	v := verbOf(verb)
	if v == 0 || s.local.in(r.Group)[r].Has(v) {
		return Route{Kind: Local}
	}
	candidates := s.candidates(r, v)
	switch {
	case len(candidates) == 0:
		return s.missing(r)
	case candidates[0].State.Reachable():
		return Route{Kind: Peers, Candidates: candidates}
	}
	return Route{Kind: Unreachable, Candidates: candidates}
}

// candidates returns the peers that serve the resource with the verb, the most
// reliable first. What is excluded from a peer's document is not taken from it.
func (s *Snapshot) candidates(r Resource, v Verbs) (found []*Peer) {
	for i := range s.peers {
		peer := &s.peers[i]
		if !peer.in(r.Group)[r].Has(v) || s.content.Excluded.Hides(r.gvr(), peer.Document.Checked) {
			continue
		}
		if found == nil {
			found = make([]*Peer, 0, len(s.peers))
		}
		found = append(found, peer.Peer)
	}
	return found
}

// missing is the route of what no known document lists.
func (s *Snapshot) missing(r Resource) Route {
	if s.content.Excluded.Owns(r.gvr()) {
		return Route{Kind: Local}
	}
	if s.content.Unsure && s.builtIn(r.Group) {
		return Route{Kind: Unknown}
	}
	return Route{Kind: Absent}
}
