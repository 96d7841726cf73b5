package transport

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// serverUser is who a server is to its peers when it asks for itself, as every
// kube-apiserver does for discovery.
//
// Source: k8s.io/apiserver/pkg/util/peerproxy, peer_discovery.go.
var serverUser = &user.DefaultInfo{Name: user.APIServerUser, UID: user.APIServerUser, Groups: []string{user.AllAuthenticated}}

// AsServer returns a RoundTripper that sends requests in this server's own name,
// whoever they name, and marks them: what it is asked for is what the peer
// serves alone, never what it has from its own peers. An answer of 401 is a
// [*ConnectError].
func AsServer(t *Transport) http.RoundTripper { return asServer{t} }

type asServer struct{ transport *Transport }

func (s asServer) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.WithContext(req.Context())
	out.Header = req.Header.Clone()
	if err := s.transport.SetIdentity(out.Header, serverUser); err != nil {
		return nil, err
	}
	out.Header.Set(LoopHeader, "true")
	res, err := s.transport.RoundTrip(out)
	if err == nil && res.StatusCode == http.StatusUnauthorized {
		_ = res.Body.Close()
		return nil, &ConnectError{Reason: ReasonUnauthorized, Err: errUnauthorized}
	}
	return res, err
}

var errUnauthorized = errors.New("answered with status 401")
