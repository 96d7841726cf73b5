package peerproxy

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
)

// trustPeers reports whether a request came over a connection whose client
// certificate the request header CA verifies and whose name is allowed: the
// same check that lets a peer name a user. The connection's certificates are
// there at the end of the chain too, its verified chains are not.
func trustPeers(c *authenticatorfactory.RequestHeaderConfig) func(*http.Request) bool {
	accept := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{}, true, nil
	})
	verifier := x509request.NewDynamicCAVerifier(c.CAContentProvider.VerifyOptions, accept, c.AllowedClientNames)
	return func(r *http.Request) bool {
		_, ok, err := verifier.AuthenticateRequest(r)
		return ok && err == nil
	}
}

// values returns what a part of the request header configuration holds; a part
// that is not configured is nil.
func values(part headerrequest.StringSliceProvider) []string {
	if part == nil {
		return nil
	}
	return part.Value()
}
