package discovery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// InProcess carries requests to a handler of this process, without a network.
// The handler sees what a handler chain would have put into the context: the
// request info of a path, and the server's own user; of the caller's context it
// gets the end alone. A handler that panics, or does not answer in time, is an
// error.
func InProcess(handler http.Handler) http.RoundTripper {
	return inProcess{handler: handler, idle: make(chan struct{}, 1)}
}

type inProcess struct {
	handler http.Handler
	// idle holds a token while the handler is asked something, so that of one
	// that hangs there is one call left behind, and not one for each attempt.
	idle chan struct{}
}

var self = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// RoundTrip implements http.RoundTripper. The answer is complete when it
// returns.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ended := r.Context().Done()
	select {
	case t.idle <- struct{}{}:
	case <-ended:
		return nil, fmt.Errorf("the own handler is still at an earlier request: %w", context.Cause(r.Context()))
	}
	ctx := apirequest.WithUser(valueless{r.Context()}, self)
	ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{Path: r.URL.Path, Verb: "get"})
	w := &answer{header: http.Header{}}
	done := make(chan error, 1)
	go func() {
		defer func() { <-t.idle }()
		done <- t.ask(w, r.Clone(ctx))
	}()
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
		return w.response(r), nil
	case <-ended:
		return nil, context.Cause(r.Context())
	}
}

// ask calls the handler; behind it there is no one who would keep a panic from
// ending the process.
func (t inProcess) ask(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the own handler panicked: %v", panicked)
		}
	}()
	t.handler.ServeHTTP(w, r)
	return nil
}

// valueless ends as the context in it does, and holds none of its values: a
// client's audit event and trace are not about what this server asks itself.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }

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

func (a *answer) response(r *http.Request) *http.Response {
	a.WriteHeader(http.StatusOK)
	return &http.Response{
		StatusCode:    a.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        a.header,
		Body:          io.NopCloser(&a.body),
		ContentLength: int64(a.body.Len()),
		Request:       r,
	}
}
