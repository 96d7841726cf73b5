package serve

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/serve/forward"
	"peerproxy.internal/pkg/serve/openapi"
	"peerproxy.internal/pkg/snapshot"
)

// view is the snapshot of a cluster in which this server serves ours and the
// peer b theirs, both in apps/v1.
func view(change func(*snapshot.Content)) *snapshot.Snapshot {
	c := snapshot.Content{
		Local: documentOf("a", "ours"),
		Peers: []*snapshot.Peer{{ServerID: "b", Document: documentOf("b", "theirs")}},
		Ready: true,
	}
	if change != nil {
		change(&c)
	}
	return snapshot.New(c)
}

func documentOf(id, resource string) *snapshot.Document {
	return &snapshot.Document{ServerID: id, Core: listOf("", resource), Groups: listOf("apps", resource)}
}

func listOf(group, resource string) snapshot.List {
	return snapshot.List{ETag: resource, Items: []apidiscoveryv2.APIGroupDiscovery{{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{Resource: resource, Verbs: []string{"get"}}}}},
	}}}
}

// world is all that the filter touches; it notes what happens to a request.
type world struct {
	snap       *snapshot.Snapshot
	refreshErr error
	first      *snapshot.Snapshot // what a refresh brings, if set
	peer       bool               // the connection is a peer's
	own        bool               // it was opened by this very server
	openAPI    *openapi.Server    // noOpenAPI, if nil

	local, forwarded *http.Request
	candidates       []*snapshot.Peer
	refreshed        bool
	maxAge           time.Duration
}

func (w *world) Load() *snapshot.Snapshot { return w.snap }

func (w *world) Refresh(_ context.Context, maxAge time.Duration) error {
	w.refreshed, w.maxAge = true, maxAge
	if w.first != nil {
		w.snap = w.first
	}
	return w.refreshErr
}

func (w *world) Forward(rw http.ResponseWriter, r *http.Request, candidates []*snapshot.Peer) {
	w.forwarded, w.candidates = r, candidates
	rw.WriteHeader(http.StatusOK)
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.local = r
	rw.WriteHeader(http.StatusNotFound)
}

func (w *world) serve(r *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	if w.openAPI == nil {
		w.openAPI = noOpenAPI()
	}
	WithPeerProxy(w, Config{
		Snapshots:  w,
		Trusted:    func(*http.Request) bool { return w.peer },
		LeadsBack:  func(*http.Request) bool { return w.own },
		Forwarder:  w,
		Documents:  document.New(),
		OpenAPI:    w.openAPI,
		Serializer: scheme.Codecs.WithoutConversion(),
	}).ServeHTTP(recorder, r)
	return recorder
}

// noOpenAPI knows what is OpenAPI, and has none.
func noOpenAPI() *openapi.Server {
	return openapi.New(openapi.Config{Local: func() http.RoundTripper { return nil }, Clock: clock.RealClock{}})
}

var (
	alice = &user.DefaultInfo{Name: "alice"}
	self  = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
)

// get is a request for a resource in apps/v1, or for a path.
func get(u user.Info, what string, header ...string) *http.Request {
	info := &apirequest.RequestInfo{Path: what, Verb: "get"}
	path := what
	if !strings.HasPrefix(what, "/") {
		path = "/apis/apps/v1/" + what
		info = &apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", APIGroup: "apps", APIVersion: "v1", Resource: what}
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	ctx := apirequest.WithRequestInfo(r.Context(), info)
	if u != nil {
		ctx = apirequest.WithUser(ctx, u)
	}
	return r.WithContext(ctx)
}

const (
	loop       = "X-Kubernetes-Peer-Proxied"
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

func TestFilter(t *testing.T) {
	unsure := view(func(c *snapshot.Content) { c.Unsure = true })
	notReady := view(func(c *snapshot.Content) { c.Ready = false })
	for _, tc := range []struct {
		name    string
		snap    *snapshot.Snapshot
		peer    bool
		request *http.Request

		local, forwarded, merged bool
		code                     int
		marked                   bool
	}{
		{name: "what this server serves", request: get(alice, "ours"), local: true},
		{name: "what a peer serves", request: get(alice, "theirs"), forwarded: true},
		{name: "what a peer serves, without a user", request: get(nil, "theirs"), forwarded: true},
		{name: "what no one serves", request: get(alice, "nothing"), local: true},
		{name: "what no one is known to serve, in doubt", snap: unsure, request: get(alice, "nothing"), code: 503},
		{name: "another path", request: get(alice, "/healthz"), local: true},

		{name: "a loop header of a client means nothing", request: get(alice, "theirs", loop, "true"), forwarded: true},
		{name: "whatever it says", request: get(alice, "theirs", loop, "false", loop, "true"), forwarded: true},
		{name: "a peer's request for what this server serves", peer: true, request: get(alice, "ours", loop, "true"), local: true},
		{name: "a peer's request makes no second hop", peer: true, request: get(alice, "theirs", loop, "true"), code: 503, marked: true},
		{name: "also if a client has set the header too", peer: true, request: get(alice, "theirs", loop, "false", loop, "true"), code: 503, marked: true},
		{name: "a peer's request for what no one serves", peer: true, request: get(alice, "nothing", loop, "true"), local: true, marked: true},
		{name: "a peer's request in doubt", peer: true, snap: unsure, request: get(alice, "nothing", loop, "true"), code: 503, marked: true},
		{name: "a peer's own request, not forwarded", peer: true, request: get(alice, "theirs"), forwarded: true},

		{name: "the own client gets no 503", snap: unsure, request: get(self, "nothing"), local: true},
		{name: "nor is it sent to a peer", request: get(self, "theirs"), local: true},
		{name: "a user of the same name without its group is just a user", request: get(&user.DefaultInfo{Name: user.APIServerUser}, "theirs"), forwarded: true},
		{name: "nor is an admin the own client", request: get(&user.DefaultInfo{Name: "admin", Groups: self.Groups}, "theirs"), forwarded: true},

		{name: "merged discovery", request: get(alice, "/apis", "Accept", aggregated), merged: true},
		{name: "merged discovery of the core group", request: get(alice, "/api", "Accept", aggregated), merged: true},
		{name: "merged legacy discovery", request: get(alice, "/apis/apps/v1"), merged: true},
		{name: "merged legacy discovery of the core group", request: get(alice, "/api/v1"), merged: true},
		{name: "the server's own address", request: get(alice, "/api"), local: true},
		{name: "profile=nopeer", request: get(alice, "/apis", "Accept", aggregated+";profile=nopeer"), local: true},
		{name: "discovery for a peer", peer: true, request: get(alice, "/apis", "Accept", aggregated, loop, "true"), local: true},
		{name: "discovery for the own client", request: get(self, "/apis", "Accept", aggregated), local: true},
		{name: "merged discovery before the peers are known", snap: notReady, request: get(alice, "/apis", "Accept", aggregated), code: 503},
		{name: "profile=nopeer before the peers are known", snap: notReady, request: get(alice, "/apis", "Accept", aggregated+";profile=nopeer"), local: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{snap: tc.snap, peer: tc.peer}
			if w.snap == nil {
				w.snap = view(nil)
			}
			answer := w.serve(tc.request)
			if got := w.local != nil; got != tc.local {
				t.Errorf("served locally: %t", got)
			}
			if got := w.forwarded != nil; got != tc.forwarded {
				t.Errorf("forwarded: %t", got)
			}
			if got := strings.Contains(answer.Body.String(), "theirs"); got != tc.merged || w.refreshed != tc.merged {
				t.Errorf("merged: %t, the own document refreshed: %t", got, w.refreshed)
			}
			if tc.merged && w.maxAge > 10*time.Millisecond {
				t.Errorf("merged with an own document of %v ago", w.maxAge)
			}
			if tc.code != 0 && answer.Code != tc.code {
				t.Errorf("got %d, want %d", answer.Code, tc.code)
			}
			if tc.code == 503 && answer.Header().Get("Retry-After") != "1" {
				t.Error("503 without Retry-After: 1")
			}
			if got := answer.Header().Get(forward.NotServedHeader) != ""; got != tc.marked {
				t.Errorf("marked: %t", got)
			}
			for _, r := range []*http.Request{w.local, w.forwarded} {
				if r != nil && r.Header[loop] != nil {
					t.Errorf("the loop header went on: %q", r.Header[loop])
				}
			}
			if tc.forwarded && (len(w.candidates) != 1 || w.candidates[0].ServerID != "b") {
				t.Errorf("candidates %v", w.candidates)
			}
		})
	}
}

// Case 31. What is refused is known not to have been executed.
func TestWhatThisServerSentItselfIsRefused(t *testing.T) {
	for _, what := range []string{"ours", "theirs", "nothing", "/apis", "/apis/apps/v1", "/openapi/v2", "/healthz"} {
		w := &world{snap: view(nil), peer: true, own: true}
		answer := w.serve(get(alice, what, loop, "true"))
		if w.local != nil || w.forwarded != nil || answer.Code != 503 || answer.Header().Get(forward.NotServedHeader) == "" {
			t.Errorf("%s: served locally %t, forwarded %t, code %d", what, w.local != nil, w.forwarded != nil, answer.Code)
		}
		if answer.Header().Get("Connection") != "close" {
			t.Errorf("%s: the connection is kept", what)
		}
	}
	// A client that shows the certificate of a peer without the loop header, or the
	// header without the certificate, is not this server.
	for _, w := range []*world{{snap: view(nil), peer: true, own: true}, {snap: view(nil), own: true}} {
		header := []string{loop, "true"}
		if w.peer {
			header = nil
		}
		if w.serve(get(alice, "theirs", header...)); w.forwarded == nil {
			t.Error("an ordinary request was not forwarded")
		}
	}
}

func TestARequestWithoutInfoIsAnError(t *testing.T) {
	w := &world{snap: view(nil)}
	answer := w.serve(httptest.NewRequest(http.MethodGet, "/apis/apps/v1/ours", nil))
	if answer.Code != 500 || !strings.Contains(answer.Body.String(), `"kind":"Status"`) || w.local != nil {
		t.Errorf("got %d %s", answer.Code, answer.Body)
	}
}

func TestAMergedDocumentIsServedWhenTheOwnOneCantBeRead(t *testing.T) {
	w := &world{snap: view(nil), refreshErr: errors.New("no")}
	if answer := w.serve(get(alice, "/apis", "Accept", aggregated)); answer.Code != 200 {
		t.Errorf("got %d, want the last good document", answer.Code)
	}
}

// Law: what this server serves costs no allocation.
func TestALocalHitAllocatesNothing(t *testing.T) {
	served := false
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })
	handler := WithPeerProxy(next, Config{Snapshots: &world{snap: view(nil)}, Documents: document.New(), OpenAPI: noOpenAPI()})
	r, w := get(alice, "ours"), httptest.NewRecorder()
	if got := testing.AllocsPerRun(100, func() { handler.ServeHTTP(w, r) }); got != 0 || !served {
		t.Errorf("%v allocations, served %t", got, served)
	}
}

// A server listens before it knows what it serves.
func TestTheFirstRequestsWaitForTheFirstSnapshot(t *testing.T) {
	empty := new(snapshot.Store).Load()
	w := &world{snap: empty, first: view(nil)}
	if w.serve(get(alice, "ours")); w.local == nil || !w.refreshed {
		t.Error("what this server serves was not served")
	}
	w = &world{snap: empty, first: view(nil)}
	if w.serve(get(self, "ours")); w.local == nil || w.refreshed {
		t.Error("the own client was not served at once")
	}
	w = &world{snap: empty, refreshErr: errors.New("no")}
	if answer := w.serve(get(alice, "ours")); answer.Code != 503 {
		t.Errorf("without a snapshot: %d, want 503", answer.Code)
	}
}

// What was executed is never marked: the peer would send it again.
func TestOnlyAnAnswerThatSaysNotServedIsMarked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		what   string
		answer func(http.ResponseWriter)
		marked bool
	}{
		{"404", "nothing", func(w http.ResponseWriter) { w.WriteHeader(404) }, true},
		{"405", "nothing", func(w http.ResponseWriter) { w.WriteHeader(405) }, true},
		{"a custom resource that was defined a moment ago", "nothing", func(w http.ResponseWriter) { w.WriteHeader(201) }, false},
		{"the same, without a status", "nothing", func(w http.ResponseWriter) { _, _ = w.Write([]byte("ok")) }, false},
		{"an object's own 404", "ours", func(w http.ResponseWriter) { w.WriteHeader(404) }, false},
		{"a marker from behind the local chain", "ours", func(w http.ResponseWriter) {
			w.Header().Set(forward.NotServedHeader, "true")
			w.WriteHeader(404)
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tc.answer(w) })
			w := &world{snap: view(nil)}
			recorder := httptest.NewRecorder()
			WithPeerProxy(next, Config{Snapshots: w, Trusted: func(*http.Request) bool { return true }, Documents: document.New(), OpenAPI: noOpenAPI()}).
				ServeHTTP(recorder, get(alice, tc.what, loop, "true"))
			if got := recorder.Header().Get(forward.NotServedHeader) != ""; got != tc.marked {
				t.Errorf("marked: %t", got)
			}
		})
	}
}
