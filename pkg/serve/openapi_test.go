package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/serve/forward"
	"peerproxy.internal/pkg/serve/openapi"
	"peerproxy.internal/pkg/snapshot"
)

// described is OpenAPI of a server that serves one resource in apps/v1.
type described string

func (resource described) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Etag", fmt.Sprintf("%q", resource))
	paths := fmt.Sprintf(`"info":{"title":"Kubernetes","version":"1"},"paths":{"/apis/apps/v1/%s":{"get":{"responses":{}}}}`, resource)
	switch r.URL.Path {
	case "/openapi/v3":
		fmt.Fprintf(w, `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=%s"}}}`, resource)
	case "/openapi/v3/apis/apps/v1":
		fmt.Fprintf(w, `{"openapi":"3.0.0",%s}`, paths)
	case "/openapi/v2":
		fmt.Fprintf(w, `{"swagger":"2.0",%s}`, paths)
	}
	return w.Result(), nil
}

// runOpenAPI returns a server that runs until the test, a bubble, ends.
func runOpenAPI(t *testing.T) *openapi.Server {
	s := openapi.New(openapi.Config{
		Local:      func() http.RoundTripper { return described("ours") },
		Peers:      described("theirs"),
		Serializer: scheme.Codecs.WithoutConversion(),
		Clock:      clock.RealClock{},
	})
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go s.Run(ctx)
	synctest.Wait()
	return s
}

// The answer of the local chain is a 404 here, whatever it is asked.
func TestFilterOfOpenAPI(t *testing.T) {
	const (
		index, one, v2 = "/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v2"
		nopeer         = "application/json;profile=nopeer"
	)
	notReady := view(func(c *snapshot.Content) { c.Ready = false })
	blind := view(func(c *snapshot.Content) { c.Blind = true })
	for _, tc := range []struct {
		name    string
		snap    *snapshot.Snapshot
		peer    bool
		request *http.Request
		code    int
		local   bool
		with    string // what the body holds
	}{
		{name: "the index", request: get(alice, index), code: 200, with: one},
		{name: "a document", request: get(alice, one), code: 200, with: "theirs"},
		{name: "v2", request: get(alice, v2), code: 200, with: "theirs"},
		{name: "v2, and a loop header of a client means nothing", request: get(alice, v2, loop, "true"), code: 200, with: "theirs"},

		{name: "the index before the peers are known", snap: notReady, request: get(alice, index), code: 503},
		{name: "a document before the peers are known", snap: notReady, request: get(alice, one), code: 503},
		{name: "v2 before the peers are known", snap: notReady, request: get(alice, v2), code: 503},

		{name: "a peer: the index", peer: true, request: get(alice, index, loop, "true"), code: 404, local: true},
		{name: "a peer: a document", peer: true, request: get(alice, one, loop, "true"), code: 404, local: true},
		{name: "a peer: v2", peer: true, request: get(alice, v2, loop, "true"), code: 404, local: true},

		{name: "nopeer: the index", request: get(alice, index, "Accept", nopeer), code: 404, local: true},
		{name: "nopeer: a document", request: get(alice, one, "Accept", nopeer), code: 404, local: true},
		{name: "nopeer: v2", request: get(alice, v2, "Accept", nopeer), code: 404, local: true},
		{name: "nopeer: v2 before the peers are known", snap: notReady, request: get(alice, v2, "Accept", nopeer), code: 404, local: true},

		{name: "the own client", request: get(self, v2), code: 404, local: true},
		{name: "the own client, before the peers are known", snap: notReady, request: get(self, v2), code: 404, local: true},
		{name: "a blind server: a document", snap: blind, request: get(alice, one), code: 404, local: true},
		{name: "a blind server: v2", snap: blind, request: get(alice, v2), code: 404, local: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{snap: tc.snap, peer: tc.peer, openAPI: runOpenAPI(t)}
				if w.snap == nil {
					w.snap = view(nil)
				}
				answer := w.serve(tc.request)
				if answer.Code != tc.code || (w.local != nil) != tc.local {
					t.Errorf("got %d, by the local chain: %t", answer.Code, w.local != nil)
				}
				if body := answer.Body.String(); !strings.Contains(body, tc.with) {
					t.Errorf("the body is %s", body)
				}
				if got := answer.Header().Get("Retry-After"); (got == "1") != (tc.code == 503) {
					t.Errorf("Retry-After is %q with %d", got, answer.Code)
				}
				if answer.Header().Get(forward.NotServedHeader) != "" || w.forwarded != nil {
					t.Error("a document is no one else's business")
				}
			})
		})
	}
}
