package snapshot

import "k8s.io/apimachinery/pkg/runtime/schema"

// Resource names what a request asks for, as RequestInfo parses it.
type Resource struct {
	Group, Version, Resource, Subresource string
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
	// kinds Peers and Unreachable. The slice is shared: read only.
	Candidates []*Peer
}

// entry is what is known of one resource.
type entry struct {
	// local are the verbs that this server serves.
	local Verbs
	// remote is nil unless a peer serves a verb that this server does not.
	remote *[len(verbNames)]Route
}

// Route returns who serves the resource with the verb. It takes one map
// look-up and allocates nothing. A verb that can't be routed (empty, "proxy")
// is Local: only the local chain knows what to do with it.
func (s *Snapshot) Route(r Resource, verb string) Route {
	v := verbOf(verb)
	if v == 0 {
		return Route{Kind: Local}
	}
	e := s.routes[r]
	if e.local.Has(v) {
		return Route{Kind: Local}
	}
	if e.remote != nil && !s.content.Blind {
		if route := e.remote[v.index()]; route.Kind != Absent {
			return route
		}
	}
	return s.missing(r)
}

// missing is the route of what no known document lists.
func (s *Snapshot) missing(r Resource) Route {
	gvr := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
	if s.content.Blind || s.content.Excluded.Owns(gvr) {
		return Route{Kind: Local}
	}
	if s.content.Unsure && s.builtIn(r.Group) {
		return Route{Kind: Unknown}
	}
	return Route{Kind: Absent}
}
