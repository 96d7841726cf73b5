package discovery

import (
	"bytes"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// InProcess carries requests to a handler of this process, without a network.
// The handler sees what a handler chain would have put into the context: the
// request info of a path, and the server's own user.
func InProcess(handler http.Handler) http.RoundTripper { return inProcess{handler} }

type inProcess struct{ handler http.Handler }

var self = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// RoundTrip implements http.RoundTripper. The answer is complete when it
// returns; a handler that does not end keeps it waiting.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := apirequest.WithUser(r.Context(), self)
	ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{Path: r.URL.Path, Verb: "get"})
	w := &answer{header: http.Header{}}
	t.handler.ServeHTTP(w, r.Clone(ctx))
	w.WriteHeader(http.StatusOK)
	return &http.Response{
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.header,
		Body:          io.NopCloser(&w.body),
		ContentLength: int64(w.body.Len()),
		Request:       r,
	}, nil
}

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}
