package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/snapshot"
)

const serverHeader = "X-Kubernetes-Peer-Server"

// Case 31. Whoever stands behind the local chain says that it is another server.
func TestAPeerIsToldWhoAnswersItsRequestForADocument(t *testing.T) {
	nopeer := aggregated + ";profile=nopeer"
	notReady := view(func(c *snapshot.Content) { c.Ready = false })
	for _, tc := range []struct {
		name    string
		snap    *snapshot.Snapshot
		peer    bool
		request *http.Request
		named   bool
		closed  bool
	}{
		{name: "discovery", peer: true, request: get(alice, "/apis", "Accept", nopeer, loop, "true"), named: true},
		{name: "the core group's", peer: true, request: get(alice, "/api", "Accept", nopeer, loop, "true"), named: true},
		{name: "that is made here", peer: true, request: get(alice, "/apis", loop, "true"), named: true},
		{name: "that is not there", peer: true, request: get(alice, "/apis/none", loop, "true"), named: true},
		{name: "OpenAPI", peer: true, request: get(alice, "/openapi/v3", loop, "true"), named: true},
		{name: "an OpenAPI document", peer: true, request: get(alice, "/openapi/v3/apis/apps/v1", loop, "true"), named: true},
		{name: "OpenAPI v2", peer: true, request: get(alice, "/openapi/v2", loop, "true"), named: true},
		{name: "before the peers are known", snap: notReady, peer: true, request: get(alice, "/apis", loop, "true"), named: true},
		{name: "this server is meant", peer: true, request: get(alice, "/apis", loop, "true", serverHeader, "a"), named: true},
		{name: "another one is meant", peer: true, request: get(alice, "/apis", loop, "true", serverHeader, "b"), named: true, closed: true},

		{name: "a client", request: get(alice, "/apis", "Accept", nopeer)},
		{name: "a client that claims to be a peer", request: get(alice, "/apis", "Accept", nopeer, loop, "true", serverHeader, "b")},
		{name: "a client's OpenAPI", snap: notReady, request: get(alice, "/openapi/v3")},
		{name: "a peer that has not forwarded it", peer: true, request: get(alice, "/apis", "Accept", nopeer)},
		{name: "a client's resource that a peer has forwarded", peer: true, request: get(alice, "ours", loop, "true", serverHeader, "b")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{snap: tc.snap, peer: tc.peer}
			if w.snap == nil {
				w.snap = view(nil)
			}
			var passed *http.Request
			behind := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				passed = r
				if tc.named {
					rw.Header().Add(serverHeader, "b")
				}
				_, _ = rw.Write([]byte("{}"))
			})
			recorder := httptest.NewRecorder()
			WithPeerProxy(behind, Config{
				ServerID:   "a",
				Snapshots:  w,
				Trusted:    func(*http.Request) bool { return w.peer },
				Documents:  document.New(),
				OpenAPI:    noOpenAPI(),
				Serializer: scheme.Codecs.WithoutConversion(),
			}).ServeHTTP(recorder, tc.request)
			var want []string
			if tc.named {
				want = []string{"a"}
			}
			if got := recorder.Header().Values(serverHeader); len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
				t.Errorf("named %q, want %q", got, want)
			}
			if closed := recorder.Header().Get("Connection") == "close"; closed != tc.closed {
				t.Errorf("the connection ends: %t", closed)
			}
			if tc.named && passed != nil && len(passed.Header.Values(serverHeader)) > 0 {
				t.Error("the header went on to the local chain")
			}
		})
	}
}
