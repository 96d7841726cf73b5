package document

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	"peerproxy.internal/pkg/snapshot"
)

// Request is a request for a document that can be merged.
type Request struct {
	// Path is the document's.
	Path snapshot.Path
	// Alone is true if the client asks for what this server serves alone
	// (profile=nopeer): that document is the local chain's.
	Alone bool
	// format is an index of Server.formats.
	format int
}

// Parse returns what a request asks for, and false if that is not a document
// that can be merged: another path or method, or another kind of document than
// aggregated discovery v2. Such a request belongs to the local chain.
func (s *Server) Parse(r *http.Request) (Request, bool) {
	path, found := pathOf(r.URL.Path)
	if !found || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return Request{}, false
	}
	accepted, info, err := negotiation.NegotiateOutputMediaType(r, s.codecs, aggregated.DiscoveryEndpointRestrictions)
	if err != nil || accepted.Convert == nil || accepted.Convert.GroupVersion() != groupVersion {
		return Request{}, false
	}
	return Request{Path: path, Alone: accepted.Profile == "nopeer", format: s.formatOf(info.Serializer)}, true
}

// pathOf returns the path of a document. kube-apiserver serves aggregated
// discovery at /api/ too, at /apis/ only legacy discovery.
func pathOf(path string) (snapshot.Path, bool) {
	switch path {
	case "/apis":
		return snapshot.PathAPIs, true
	case "/api", "/api/":
		return snapshot.PathAPI, true
	}
	return 0, false
}
