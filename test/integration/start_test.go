package integration

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"peerproxy.internal/pkg/peerproxy"
	"peerproxy.internal/test/peertest"
)

// While a peer has not said yet what it serves, what no one is known to serve
// is not absent.
func TestWhatAPeerMayServeIsNotAbsentWhileItIsBeingAsked(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	known := discovering(documentOf(ours()), answering("from b"))
	c.join(&peertest.Peer{ID: "b", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
			known(w, r)
		case <-r.Context().Done():
		}
	})})
	a := c.start(spec{id: "a"})
	<-asked
	path, alice := ours().path("default"), a.as("alice")
	alice.wantRetry(http.MethodGet, path, "")
	alice.wantRetry(http.MethodGet, path+"/one", "")
	alice.wantRetry(http.MethodPost, path, ours().thing(t, "one", ""))
	alice.wantRetry(http.MethodGet, "/apis/nobody.k8s.io/v1/things", "")
	alice.wantRetry(http.MethodGet, "/apis", "", "Accept", aggregated)
	// No server has it built in, and what is served here is served.
	alice.want(http.StatusNotFound, http.MethodGet, "/apis/custom.example.com/v1/things", "")
	alice.want(http.StatusOK, http.MethodGet, common[1].path("default"), "")
	close(answer)
	alice.until(http.StatusOK, http.MethodGet, path)
	alice.until(http.StatusNotFound, http.MethodGet, "/apis/nobody.k8s.io/v1/things")
}

// A peer that takes connections and says nothing delays no other peer.
func TestASilentPeerDelaysNoOther(t *testing.T) {
	t.Parallel()
	forever := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, silent := range map[string]*peertest.Peer{
		"from the first byte on":         {ID: "silent", OnConn: peertest.Hang},
		"to requests":                    {ID: "silent", Handler: http.HandlerFunc(forever)},
		"to requests of HTTP/1.1, alone": {ID: "silent", Handler: http.HandlerFunc(forever), HTTP1: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			c.join(silent)
			a := c.start(spec{id: "a"})
			eventually(t, "a asks the silent peer", func() bool { return silent.Connections() > 0 })
			c.actor("b", answering("from b"), ours())
			joined := time.Now()
			a.as("alice").until(http.StatusOK, http.MethodGet, ours().path("default"))
			// The silent one is given up after five seconds.
			if took := time.Since(joined); took > 4*time.Second {
				t.Errorf("b was found after %v, want at once", took)
			}
		})
	}
}

// The server's own informers come through the filter, and need no peer.
func TestAServerIsReadyBesideAPeerThatCantBeAsked(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	asked := make(chan struct{}, 100)
	c.join(&peertest.Peer{ID: "broken", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.WriteHeader(http.StatusInternalServerError)
	})})
	clock := clocktesting.NewFakeClock(time.Now())
	a := c.start(spec{id: "a", clock: clock})
	<-asked
	admin := a.admin()
	// While it waits for the peer, itself is served all the same.
	if _, err := a.loopback.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the server can't list its own leases: %v", err)
	}
	if got := a.loopback.CoordinationV1().RESTClient().Get().AbsPath("/apis/nobody.k8s.io/v1/things").Do(t.Context()); !isNotFound(got.Error()) {
		t.Errorf("what no one serves: its own client gets %v, want 404", got.Error())
	}
	admin.wantRetry(http.MethodGet, "/apis", "", "Accept", aggregated)
	admin.wantRetry(http.MethodGet, "/apis/nobody.k8s.io/v1/things", "")
	select {
	case <-a.proxy.Ready():
		t.Error("the proxy is ready before the peer was given its ten seconds")
	default:
	}
	if got := admin.do(http.MethodGet, "/readyz", ""); got.code != http.StatusInternalServerError || !strings.Contains(string(got.body), "[-]poststarthook/mixed-version-proxy-handler") {
		t.Errorf("got %d %s, want the proxy's hook to be waited for", got.code, got.body)
	}
	clock.Step(10 * time.Second)
	admin.until(http.StatusOK, http.MethodGet, "/readyz")
	admin.until(http.StatusOK, http.MethodGet, "/apis", "Accept", aggregated)
	// Nor does it keep requests from their 404 for long.
	clock.Step(20 * time.Second)
	admin.until(http.StatusNotFound, http.MethodGet, "/apis/nobody.k8s.io/v1/things")
}

// By the default a peer that can't be asked keeps requests from their 404 for
// thirty seconds, and what only one had that is gone for ten minutes.
func TestPeriodsOfTheConfigurationHold(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.listen(&peertest.Peer{ID: "b", Handler: discovering(documentOf(ours()), answering("from b"))})
	c.publish("b", b.Address()) // without an identity lease it has left with its record
	clock := clocktesting.NewFakeClock(time.Now())
	a := c.ready(spec{id: "a", clock: clock, periods: peerproxy.Periods{Unknown: 5 * time.Second, Departed: time.Minute}})
	a.learns(ours())
	admin := a.admin()
	passes := func(period time.Duration, path string) {
		clock.Step(period)
		eventually(t, path+" is answered 404", func() bool {
			clock.Step(time.Millisecond) // for a timer that was not set yet
			return admin.do(http.MethodGet, path, "").code == http.StatusNotFound
		})
	}
	b.Stop()
	c.remove(c.recordKey("b"))
	a.misses("b")
	admin.wantRetry(http.MethodGet, ours().path("default"), "")
	passes(time.Minute, ours().path("default"))

	c.join(&peertest.Peer{ID: "broken", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})})
	admin.until(http.StatusServiceUnavailable, http.MethodGet, "/apis/nobody.k8s.io/v1/things")
	passes(5*time.Second, "/apis/nobody.k8s.io/v1/things")
}
