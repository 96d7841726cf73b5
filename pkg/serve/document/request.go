package document

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	"peerproxy.internal/pkg/snapshot"
)

// Kind is a kind of document.
type Kind int

// The kinds of document.
const (
	// Aggregated: groups with all that is in them, at /api and /apis.
	Aggregated Kind = iota
	// Groups: the groups and their versions, at /apis.
	Groups
	// Group: the versions of one group, at /apis/<group>.
	Group
	// Resources: what is in one group-version, at /apis/<group>/<version> and
	// /api/v1.
	Resources
)

// String returns the name that Kubernetes has for the kind.
func (k Kind) String() string {
	return [...]string{"APIGroupDiscoveryList", "APIGroupList", "APIGroup", "APIResourceList"}[k]
}

// Request is a request for a document that can be merged.
type Request struct {
	// Kind is the document's.
	Kind Kind
	// Path is the path of aggregated discovery that has the same facts.
	Path snapshot.Path
	// GroupVersion is what a Group (without a version) or Resources is about.
	GroupVersion schema.GroupVersion
	// Alone is true if the client asks for what this server serves alone
	// (profile=nopeer).
	Alone bool
	// format is an index of Server.formats, negative if the client accepts none.
	format int
}

// Parse returns what a request asks for, and false if that is not a document
// that can be merged: another path or method, another version of aggregated
// discovery than v2, or the legacy document at /api, which holds the server's
// own address. Such a request belongs to the local chain.
func (s *Server) Parse(r *http.Request) (Request, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return Request{}, false
	}
	request, ok := parsePath(r.URL.Path)
	if !ok {
		return Request{}, false
	}
	if request.Kind == Aggregated {
		switch list := s.negotiate(r, aggregated.DiscoveryEndpointRestrictions, &request); {
		case list != nil:
			return request, list.GroupVersion() == groupVersion
		case request.Path == snapshot.PathAPI:
			return Request{}, false
		}
		request.Kind = Groups
	}
	s.negotiate(r, negotiation.DefaultEndpointRestrictions, &request)
	return request, true
}

// negotiate takes what the client accepts into the request, and returns the
// type of list that it wants instead of the path's own, if any.
func (s *Server) negotiate(r *http.Request, restrictions negotiation.EndpointRestrictions, request *Request) *schema.GroupVersionKind {
	accepted, info, err := negotiation.NegotiateOutputMediaType(r, s.codecs, restrictions)
	if err != nil {
		request.format = -1
		return nil
	}
	request.Alone, request.format = accepted.Profile == "nopeer", s.formatOf(info.Serializer)
	return accepted.Convert
}

// parsePath returns what is at a path, as kube-apiserver has it: /api, /apis
// and /apis/ may end in one slash, all others in any number, and aggregated
// discovery is not at /apis/.
func parsePath(path string) (Request, bool) {
	switch path {
	case "/apis":
		return Request{Kind: Aggregated, Path: snapshot.PathAPIs}, true
	case "/apis/":
		return Request{Kind: Groups, Path: snapshot.PathAPIs}, true
	case "/api", "/api/":
		return Request{Kind: Aggregated, Path: snapshot.PathAPI}, true
	}
	if version, below := strings.CutPrefix(path, "/api/"); below {
		return resourcesAt(snapshot.PathAPI, "", version)
	}
	below, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return Request{}, false
	}
	group, version, versioned := strings.Cut(strings.TrimRight(below, "/"), "/")
	switch {
	case group == "":
		return Request{}, false
	case versioned:
		return resourcesAt(snapshot.PathAPIs, group, version)
	}
	return Request{Kind: Group, Path: snapshot.PathAPIs, GroupVersion: schema.GroupVersion{Group: group}}, true
}

func resourcesAt(path snapshot.Path, group, version string) (Request, bool) {
	version = strings.TrimRight(version, "/")
	if version == "" || strings.Contains(version, "/") {
		return Request{}, false
	}
	return Request{Kind: Resources, Path: path, GroupVersion: schema.GroupVersion{Group: group, Version: version}}, true
}
