package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/legacyregistry"
	clocktesting "k8s.io/utils/clock/testing"

	"peerproxy.internal/test/peertest"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// moody is a peer whose way of answering discovery can be changed.
type moody struct {
	*peertest.Peer
	asked   atomic.Int64
	handler atomic.Pointer[http.HandlerFunc]
}

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api" || r.URL.Path == "/apis" {
		m.asked.Add(1)
	}
	(*m.handler.Load())(w, r)
}

func (m *moody) set(handler http.HandlerFunc) { m.handler.Store(&handler) }

// What was known of a peer stays when it can't be asked again.
func TestTheLastGoodDocumentStays(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, bad := range map[string]http.HandlerFunc{
		"500":                     status(http.StatusInternalServerError),
		"404":                     status(http.StatusNotFound),
		"401":                     status(http.StatusUnauthorized),
		"304 to another question": status(http.StatusNotModified),
		"a page":                  answering("<html>"),
		"half a document": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", aggregated)
			_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","items":[{`)
		},
		"a broken connection":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a refused connection": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			b := &moody{}
			b.set(discovering(documentOf(ours()), answering("from b")))
			b.Peer = c.join(&peertest.Peer{ID: "b", Handler: b})
			clock := clocktesting.NewFakeClock(time.Now())
			a := c.ready(spec{id: "a", clock: clock})
			a.learns(ours())
			if bad == nil {
				refuses(t, a, b, clock)
				return
			}
			b.set(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/api" || r.URL.Path == "/apis" {
					bad(w, r)
					return
				}
				answering("from b")(w, r)
			})
			asked := b.asked.Load()
			eventually(t, "b is asked again and again", func() bool {
				clock.Step(time.Second)
				return b.asked.Load() > asked+2
			})
			checkKept(t, a)
			if got := a.as("alice").want(http.StatusOK, http.MethodGet, ours().path("default"), ""); string(got.body) != "from b" {
				t.Errorf("got %q, want b's answer", got.body)
			}
		})
	}
}

// refuses lets the peer refuse connections.
func refuses(t *testing.T, a *server, b *moody, clock *clocktesting.FakeClock) {
	t.Helper()
	before := counted(t, "apiserver_peer_discovery_sync_errors_total", nil)
	b.Refuse()
	b.CloseConnections()
	eventually(t, "b was asked in vain", func() bool {
		clock.Step(time.Second)
		return counted(t, "apiserver_peer_discovery_sync_errors_total", nil) > before+1
	})
	checkKept(t, a)
	a.as("alice").wantRetry(http.MethodGet, ours().path("default"), "")
	a.as("alice").wantRetry(http.MethodPost, ours().path("default"), ours().thing(t, "one", ""))
}

func checkKept(t *testing.T, a *server) {
	t.Helper()
	if got := a.as("alice").document("/apis"); !got.lists(t, ours()) {
		t.Errorf("b's resource has left discovery: %s", got.body)
	}
}

// counted is the sum of a counter over all its labels that match.
func counted(t *testing.T, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			matching := 0
			for _, pair := range metric.GetLabel() {
				if labels[pair.GetName()] == pair.GetValue() && pair.GetValue() != "" {
					matching++
				}
			}
			if matching == len(labels) {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestPeersThatAreDeadWhileTheirRecordsLive(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	lost := resource{group: "lost.k8s.io", name: "things"}
	b, other := c.actor("b", answering("from b"), lost), c.actor("c", answering("from c"), lost)
	a := c.ready(spec{id: "a"})
	a.learns(lost)
	alice := a.as("alice")
	alice.want(http.StatusOK, http.MethodGet, lost.path("default"), "")
	b.Stop()
	other.Stop()
	// What is sent on an old connection may have been executed: no Retry-After.
	eventually(t, "the old connections are known to be dead", func() bool {
		return alice.do(http.MethodGet, lost.path("default"), "").header.Get("Retry-After") != ""
	})
	labels := map[string]string{"group": "lost.k8s.io"}
	for i, method := range []string{http.MethodGet, http.MethodPost} {
		before := counted(t, "apiserver_peer_proxy_errors_total", labels)
		alice.wantRetry(method, lost.path("default"), map[string]string{http.MethodPost: lost.thing(t, "one", "")}[method])
		if got := counted(t, "apiserver_peer_proxy_errors_total", labels) - before; got != 1 {
			t.Errorf("request %d: %v errors were counted, want 1", i, got)
		}
	}
	if !alice.document("/apis").lists(t, lost) {
		t.Error("the dead peers' resource has left discovery")
	}
	// When the records go, too, it stays out of reach, and is not absent.
	c.remove(c.recordKey("b"))
	c.remove(c.recordKey("c"))
	a.misses("b")
	a.misses("c")
	alice.wantRetry(http.MethodGet, lost.path("default"), "")
}

// One of two peers is dead: the other has every request, once.
func TestRequestsPassOverADeadPeer(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	dead, alive := c.actor("b", answering("from b"), ours()), c.actor("c", drainingBody("from c"), ours())
	a := c.ready(spec{id: "a"})
	a.sees("b", dead.Address())
	a.sees("c", alive.Address())
	a.learns(ours())
	a.settles() // no document is missing
	dead.Stop()
	alice, path := a.as("alice"), ours().path("default")
	const n = 20
	for range n {
		alice.want(http.StatusOK, http.MethodGet, path, "")
	}
	// By now it has shown that the old connections are of no use: what is sent
	// there would be lost, and a POST not be sent again.
	for i := range n {
		alice.want(http.StatusOK, http.MethodPost, path, ours().thing(t, fmt.Sprint("thing-", i), ""))
	}
	if got := len(under(alive, path)); got != 2*n {
		t.Errorf("%d requests came to c, want %d", got, 2*n)
	}
}

func drainingBody(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, text)
	}
}

// What may have been executed is not tried again by anyone.
func TestALostAnswerToAWriteIsNoRetry(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	lose := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}
	b := c.actor("b", lose, ours())
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	path := ours().path("default")
	got := a.as("alice").want(http.StatusGatewayTimeout, http.MethodPost, path, ours().thing(t, "one", ""))
	if retry, set := got.header["Retry-After"]; set {
		t.Errorf("got Retry-After %q, want none", retry)
	}
	if got := fromJSON[metav1.Status](t, got.body); got.Reason != metav1.StatusReasonTimeout {
		t.Errorf("got reason %q, want Timeout", got.Reason)
	}
	if n := len(under(b, path)); n != 1 {
		t.Errorf("the request came to b %d times, want once", n)
	}
}

// The server's own time limit holds for what it forwards, too. What answers is
// the chain's timeout filter, which cuts off an answer that has been begun just
// then: hence more than one request.
func TestAnAnswerThatTakesTooLong(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.actor("b", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ours())
	a := c.ready(spec{id: "a", timeout: 2 * time.Second})
	a.learns(ours())
	alice, path := a.as("alice"), ours().path("default")+"/one"
	var asking sync.WaitGroup
	const each = 8
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		for range each {
			asking.Go(func() { checkTimeout(t, alice, method, path) })
		}
	}
	asking.Wait()
	eventually(t, "b is rid of the requests", func() bool { return len(under(b, path)) == 2*each })
}

func checkTimeout(t *testing.T, c *client, method, path string) {
	t.Helper()
	res, err := c.http.Do(c.request(t.Context(), method, path, nil))
	if err != nil {
		t.Errorf("%s: %v, want 504", method, err)
		return
	}
	defer res.Body.Close()
	retry, set := res.Header["Retry-After"]
	if res.StatusCode != http.StatusGatewayTimeout || set {
		t.Errorf("%s: got %s and Retry-After %q, want 504 and none", method, res.Status, retry)
	}
}

func TestWithoutAUserNothingIsForwarded(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.actor("b", answering("from b"), ours())
	a := c.ready(spec{id: "a", before: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/apis/ours.k8s.io/") {
				r = r.WithContext(apirequest.WithUser(r.Context(), nil))
			}
			next.ServeHTTP(w, r)
		})
	}})
	a.learns(ours())
	for _, target := range []string{"", "?watch=true"} {
		got := fromJSON[metav1.Status](t, a.as("alice").want(http.StatusInternalServerError, http.MethodGet, ours().path("default")+target, "").body)
		if got.Kind != "Status" || got.Reason != metav1.StatusReasonInternalError {
			t.Errorf("got %+v, want a Status of reason InternalError", got)
		}
	}
	if n := len(under(b, ours().path("default"))); n != 0 {
		t.Errorf("%d requests came to b, want none", n)
	}
}

// The timeout filter takes a 103 for the final status.
func TestEarlyHintsDoNotTurnA404IntoA200(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	missing := toJSON(t, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   metav1.StatusReasonNotFound,
		Details:  &metav1.StatusDetails{Name: "one", Group: "ours.k8s.io", Kind: "things"},
		Code:     http.StatusNotFound,
	})
	c.actor("b", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, missing)
	}, ours())
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	for _, target := range []string{"/one", "/one?watch=true"} {
		got := a.as("alice").want(http.StatusNotFound, http.MethodGet, ours().path("default")+target, "")
		if string(got.body) != missing {
			t.Errorf("got %s, want %s", got.body, missing)
		}
	}
}
