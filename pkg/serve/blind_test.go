package serve

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/snapshot"
)

// blind is the snapshot of a server that can't read what it serves, with the
// peer b that serves theirs.
func blind(change func(*snapshot.Content)) *snapshot.Snapshot {
	return view(func(c *snapshot.Content) {
		c.Local, c.Blind, c.Ready = nil, true, false
		if change != nil {
			change(c)
		}
	})
}

// blindly serves the request by the filter of a blind server with the given
// local chain.
func blindly(snap *snapshot.Snapshot, chain http.HandlerFunc) http.Handler {
	return WithPeerProxy(chain, Config{
		Snapshots: &world{snap: snap}, Trusted: func(*http.Request) bool { return true },
		Documents: document.New(), OpenAPI: noOpenAPI(), Serializer: scheme.Codecs.WithoutConversion(),
	})
}

// status answers with a Status.
func status(code int, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		resource := schema.GroupResource{}
		if name != "" {
			resource = schema.GroupResource{Group: "apps", Resource: "theirs"}
		}
		err := apierrors.NewGenericServerResponse(code, "get", resource, name, "", 0, false)
		responsewriters.ErrorNegotiated(err, scheme.Codecs.WithoutConversion(), schema.GroupVersion{}, w, r)
	}
}

func plain(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Chain", "set")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// Law 3: a blind server's local chain serves all that it can, but what it lacks
// is not absent while another member serves it, or may.
func TestABlindServerDeniesNothingThatAnotherMayServe(t *testing.T) {
	unsure := blind(func(c *snapshot.Content) { c.Unsure, c.Peers = true, nil })
	unreachable := blind(func(c *snapshot.Content) { c.Peers[0].State = snapshot.StateUnreachable })
	const page = "404 page not found\n"
	of := func(subresource string) *http.Request {
		r := get(alice, "theirs")
		info, _ := apirequest.RequestInfoFrom(r.Context())
		info.Subresource = subresource
		return r
	}
	proxied := blind(func(c *snapshot.Content) {
		c.Peers[0].Document.Groups = listOf("apps", "theirs/proxy")
		resources := c.Peers[0].Document.Groups.Items[0].Versions[0].Resources
		resources[0].Resource = "theirs"
		resources[0].Subresources = append(resources[0].Subresources, subresource("proxy", "get"))
	})
	for _, tc := range []struct {
		name    string
		snap    *snapshot.Snapshot
		request *http.Request
		chain   http.HandlerFunc
		want    int
	}{
		{"it serves what a peer serves too", blind(nil), get(alice, "theirs"), plain(200, "ok"), 200},
		{"an object that is not there is not there", blind(nil), get(alice, "theirs"), status(404, "x"), 404},
		{"a long 404 passes", blind(nil), get(alice, "theirs"), plain(404, page+strings.Repeat("x", 5000)), 404},
		{"a resource that a peer serves", blind(nil), get(alice, "theirs"), plain(404, page), 503},
		{"by a Status", blind(nil), get(alice, "theirs"), status(404, ""), 503},
		{"a verb that a peer serves", blind(nil), get(alice, "theirs"), status(405, ""), 503},
		{"a resource that a peer out of reach serves", unreachable, get(alice, "theirs"), plain(404, page), 503},
		{"a resource that a member in doubt may serve", unsure, get(alice, "theirs"), plain(404, page), 503},
		{"a resource that no one serves", blind(nil), get(alice, "nothing"), plain(404, page), 404},
		{"the own client is told the truth", blind(nil), get(self, "theirs"), plain(404, page), 404},
		{"a peer asks another one by itself", blind(nil), get(alice, "theirs", loop, "true"), plain(404, page), 404},
		{"what a pod says is passed on", proxied, of("proxy"), plain(404, page), 404},

		{"the list of groups lacks a peer's", blind(nil), get(alice, "/apis"), plain(200, "ok"), 503},
		{"aggregated, too", blind(nil), get(alice, "/apis", "Accept", aggregated), plain(200, "ok"), 503},
		{"the list of resources, too", blind(nil), get(alice, "/apis/apps/v1"), plain(200, "ok"), 503},
		{"what is elsewhere is not known", unsure, get(alice, "/apis"), plain(200, "ok"), 503},
		{"a group of no one else", blind(nil), get(alice, "/apis/example.com/v1"), plain(200, "ok"), 200},
		{"a group of no one", blind(nil), get(alice, "/apis/example.com"), plain(404, page), 404},
		{"the groups of a server alone", blind(func(c *snapshot.Content) { c.Peers = nil }), get(alice, "/apis"), plain(200, "ok"), 200},
		{"profile=nopeer", blind(nil), get(alice, "/apis", "Accept", "application/json;profile=nopeer"), plain(200, "ok"), 200},
		{"the own client's documents", blind(nil), get(self, "/apis"), plain(200, "ok"), 200},
		{"OpenAPI", blind(nil), get(alice, "/openapi/v2"), plain(200, "ok"), 200},
		{"any other path", blind(nil), get(alice, "/healthz"), plain(404, page), 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, alone := httptest.NewRecorder(), httptest.NewRecorder()
			w.Header().Set("Audit-Id", "1")
			blindly(tc.snap, tc.chain).ServeHTTP(w, tc.request)
			if w.Code != tc.want {
				t.Fatalf("got %d %s, want %d", w.Code, w.Body, tc.want)
			}
			if w.Header().Get("Audit-Id") != "1" {
				t.Error("a header of the chain before is gone")
			}
			if tc.want == 503 {
				if w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `ServiceUnavailable`) || w.Header().Get("Chain") != "" {
					t.Errorf("the refusal is %v %s", w.Header(), w.Body)
				}
				return
			}
			tc.chain(alone, tc.request)
			if w.Body.String() != alone.Body.String() || w.Header().Get("Content-Type") != alone.Header().Get("Content-Type") {
				t.Errorf("the answer was changed to %v %s", w.Header(), w.Body)
			}
		})
	}
}

// What is no refusal passes at once, as it comes.
func TestABlindServerStreamsAndUpgrades(t *testing.T) {
	passed, done := make(chan struct{}), make(chan struct{})
	chain := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "upgrade" {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				conn.Close()
			}
			return
		}
		if r.URL.RawQuery == "404" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-passed
		close(done)
	}
	filter := blindly(blind(nil), chain)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", APIGroup: "apps", APIVersion: "v1", Resource: "theirs"}
		filter.ServeHTTP(w, r.WithContext(apirequest.WithUser(apirequest.WithRequestInfo(r.Context(), info), alice)))
	}))
	defer server.Close()
	for query, want := range map[string]int{"200": 200, "404": 404} {
		passed, done = make(chan struct{}), make(chan struct{})
		res, err := http.Get(server.URL + "?" + query)
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(res.Body).ReadString('\n')
		if line != "first\n" || err != nil || res.StatusCode != want {
			t.Errorf("got %d %q %v before the answer's end", res.StatusCode, line, err)
		}
		close(passed)
		<-done
		res.Body.Close()
	}
	r, _ := http.NewRequest(http.MethodGet, server.URL+"?upgrade", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "x")
	res, err := http.DefaultClient.Do(r)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v %v", res, err)
	}
	res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

func subresource(name string, verbs ...string) apidiscoveryv2.APISubresourceDiscovery {
	return apidiscoveryv2.APISubresourceDiscovery{Subresource: name, Verbs: verbs}
}
