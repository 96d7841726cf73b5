package openapi

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
)

const (
	pathV2     = "/openapi/v2"
	pathV3     = "/openapi/v3"
	prefixV3   = pathV3 + "/"
	nopeer     = "nopeer"
	hashOption = "hash"
)

// Request is a request for an OpenAPI document.
type Request struct {
	// Alone is true if the client asks for what this server serves alone
	// (profile=nopeer): that document is the local chain's.
	Alone bool
	// path is one of the three above; name follows the last of them.
	path, name string
	format     format
}

// format is one way to write a document.
type format int

const (
	formatJSON format = iota
	formatProtobuf
	numFormats
)

// mediaTypes are what a document can be asked for as, and told to be.
type mediaTypes struct {
	accepted []runtime.SerializerInfo
	contents [numFormats]string
}

// Source: k8s.io/kube-openapi/pkg/handler and handler3.
var (
	typesV2 = newMediaTypes("com.github.proto-openapi.spec.v2.v1.0+protobuf", "com.github.proto-openapi.spec.v2@v1.0+protobuf")
	typesV3 = newMediaTypes("com.github.proto-openapi.spec.v3.v1.0+protobuf", "com.github.proto-openapi.spec.v3@v1.0+protobuf")
)

const jsonSubType = "json"

func newMediaTypes(protobuf, deprecated string) mediaTypes {
	types := mediaTypes{contents: [numFormats]string{"application/" + jsonSubType, "application/" + protobuf}}
	for _, subType := range []string{jsonSubType, protobuf, deprecated} {
		types.accepted = append(types.accepted, runtime.SerializerInfo{
			MediaType: "application/" + subType, MediaTypeType: "application", MediaTypeSubType: subType,
			StreamSerializer: &runtime.StreamSerializerInfo{}, // allows the option of that name
		})
	}
	return types
}

// Parse returns what a request asks for, and false if that is not an OpenAPI
// document in a form that can be merged. Such a request belongs to the local
// chain.
func (s *Server) Parse(r *http.Request) (Request, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return Request{}, false
	}
	accept := r.Header.Get("Accept")
	switch {
	case r.URL.Path == pathV2:
		request, ok := negotiate(accept, typesV2)
		request.path = pathV2
		return request, ok
	case r.URL.Path == pathV3:
		// The index is JSON whatever the client accepts.
		request, _ := negotiate(accept, typesV3)
		return Request{Alone: request.Alone, path: pathV3}, true
	case strings.HasPrefix(r.URL.Path, prefixV3):
		request, ok := negotiate(accept, typesV3)
		request.path, request.name = prefixV3, strings.TrimPrefix(r.URL.Path, prefixV3)
		return request, ok
	}
	return Request{}, false
}

func negotiate(accept string, types mediaTypes) (Request, bool) {
	options, ok := negotiation.NegotiateMediaTypeOptions(accept, types.accepted, anyOptions{})
	if !ok {
		return Request{}, false
	}
	request := Request{Alone: options.Profile == nopeer, format: formatProtobuf}
	if options.Accepted.MediaTypeSubType == jsonSubType {
		request.format = formatJSON
	}
	return request, true
}

// anyOptions allows every option of a media type: stock servers ignore them all
// here.
type anyOptions struct{}

func (anyOptions) AllowsMediaTypeTransform(string, string, *schema.GroupVersionKind) bool {
	return true
}
func (anyOptions) AllowsServerVersion(string) bool { return true }
func (anyOptions) AllowsStreamSchema(string) bool  { return true }
