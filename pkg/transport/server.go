package transport

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// serverUser is who a server is to its peers when it asks for itself, as every
// kube-apiserver does for discovery.
//
// Source: k8s.io/apiserver/pkg/util/peerproxy, peer_discovery.go.
var serverUser = &user.DefaultInfo{Name: user.APIServerUser, UID: user.APIServerUser, Groups: []string{user.AllAuthenticated}}

// ServerHeader holds a server ID: in a request for a document the one of the peer
// that is asked, in the answer the one of the server that answers. Stock servers
// do not know it. It is between servers: no client sees it.
const ServerHeader = "X-Kubernetes-Peer-Server"

// AsServer returns a RoundTripper that sends requests in this server's own name,
// whoever they name, and marks them: what it is asked for is what the peer
// serves alone, never what it has from its own peers. An answer of 401 is a
// [*ConnectError], as is that of a server which says by [ServerHeader] that it is
// another than the request's says is asked.
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
	if err != nil {
		return nil, err
	}
	asked, answered := req.Header.Get(ServerHeader), res.Header.Get(ServerHeader)
	if asked != "" && answered != "" && answered != asked {
		_ = res.Body.Close()
		return nil, &ConnectError{Reason: ReasonAnotherServer, Err: fmt.Errorf("%.63q answers in the place of %q", answered, asked)}
	}
	return res, nil
}

var errUnauthorized = errors.New("answered with status 401")
