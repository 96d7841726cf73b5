package integration

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/reconcilers"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// balancer is a load balancer for connections: each new one goes to the server
// that it is told.
type balancer struct {
	address string
	next    atomic.Pointer[string]
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{address: listener.Addr().String()}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.join(conn) })
		}
	})
	return b
}

func (b *balancer) join(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	other, err := net.Dial("tcp", *b.next.Load())
	if err != nil {
		return
	}
	defer func() { _ = other.Close() }()
	go func() {
		_, _ = io.Copy(other, conn)
		_ = other.Close()
	}()
	_, _ = io.Copy(conn, other)
}

// Case 31. B's record names the load balancer before all servers, and that leads
// back to A.
func TestAnAddressThatLeadsBackIsOneHopAndNamed(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	self := resource{group: "self.k8s.io", name: "things"}
	b := c.actor("b", drainingBody("from b"), self)
	a := c.ready(spec{id: "a"})
	a.learns(self)
	lb := newBalancer(t)
	lb.next.Store(&a.address)
	c.publish("b", lb.address)
	a.sees("b", lb.address)
	alice, path := a.as("alice"), self.path("default")
	labels := map[string]string{"type": "self", "group": self.group}
	for i, method := range []string{http.MethodGet, http.MethodPost, http.MethodGet} {
		body := map[string]string{http.MethodPost: self.thing(t, "one", "")}[method]
		before, arrived := counted(t, "apiserver_peer_proxy_errors_total", labels), len(a.arrived.under(path))
		alice.wantRetry(method, path, body)
		if n := counted(t, "apiserver_peer_proxy_errors_total", labels) - before; n != 1 {
			t.Errorf("request %d: %v were counted, want 1", i, n)
		}
		if n := len(a.arrived.under(path)) - arrived; n != 2 {
			t.Errorf("request %d came to A %d times, want twice: from the client and from A", i, n)
		}
	}
	if n := len(a.local.under(path)); n != 0 {
		t.Errorf("%d requests reached A's own handlers", n)
	}
	// A never takes its own discovery for B's, and counts why.
	eventually(t, "the cause is counted for discovery, too", func() bool {
		return counted(t, "apiserver_peer_discovery_sync_errors_total", map[string]string{"type": "self"}) > 0
	})
	if !alice.document("/apis").lists(t, self) {
		t.Error("B's resource has left discovery")
	}
	// Once new connections lead to B, B is asked.
	address := b.Address()
	lb.next.Store(&address)
	alice.until(http.StatusOK, http.MethodGet, path)
	alice.want(http.StatusOK, http.MethodPost, path, self.thing(t, "one", ""))
}

// unlisted keeps a server from having a record.
type unlisted struct {
	reconcilers.PeerEndpointLeaseReconciler
}

func (unlisted) UpdateLease(string, string, []corev1.EndpointPort) error { return nil }

// Case 31. B's record names a load balancer, and that leads to C, whose document is
// not B's. C itself has no record: what it serves would be seen as B's alone.
func TestAnAddressThatLeadsToAnotherServerIsNoDocumentAndNamed(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	theirs, cs := resource{group: "balanced.k8s.io", name: "things"}, resource{group: "other.k8s.io", name: "things"}
	b := c.listen(&peertest.Peer{ID: "balanced", Handler: discovering(documentOf(theirs), drainingBody("from b"))})
	other := c.start(spec{id: "other", serves: []resource{cs}, records: func(writer reconcilers.PeerEndpointLeaseReconciler) reconcilers.PeerEndpointLeaseReconciler {
		return unlisted{writer}
	}})
	a := c.ready(spec{id: "a"})
	other.as("alice").until(http.StatusOK, http.MethodGet, cs.path("default"))
	lb := newBalancer(t)
	lb.next.Store(&other.address)
	c.identify("balanced", "first")
	c.publish("balanced", lb.address)
	a.sees("balanced", lb.address)
	alice := a.as("alice")
	labels := map[string]string{"type": "another_server"}
	cause := func() float64 { return counted(t, "apiserver_peer_discovery_sync_errors_total", labels) }
	eventually(t, "the cause is counted again and again", func() bool { return cause() > 2 })
	eventually(t, "the cause is logged", func() bool {
		return logged.says(`peer="balanced"`, `reason="another_server"`, transport.ReasonAnotherServer.Remedy())
	})
	if got := alice.do(http.MethodGet, "/apis", "", "Accept", aggregated); got.code == http.StatusOK && got.lists(t, cs) {
		t.Error("C's document is taken for B's")
	}
	if got := alice.do(http.MethodGet, cs.path("default"), ""); got.code == http.StatusOK {
		t.Error("C is asked in B's place")
	}
	// C ends the connection each time. Once one leads to B its document is taken, and
	// stays when the next leads to C again.
	address := b.Address()
	lb.next.Store(&address)
	a.learns(theirs)
	lb.next.Store(&other.address)
	b.CloseConnections()
	before := cause()
	eventually(t, "C is asked for B's document again", func() bool { return cause() > before })
	if !alice.document("/apis").lists(t, theirs) {
		t.Error("B's resource has left discovery")
	}
	path := theirs.path("default")
	for i, method := range []string{http.MethodGet, http.MethodPost} {
		body := map[string]string{http.MethodPost: theirs.thing(t, "one", "")}[method]
		atA, atC := len(a.arrived.under(path)), len(other.arrived.under(path))
		alice.wantRetry(method, path, body)
		if n := len(a.arrived.under(path)) - atA; n != 1 {
			t.Errorf("request %d came to A %d times, want once", i, n)
		}
		if n := len(other.arrived.under(path)) - atC; n != 1 {
			t.Errorf("request %d came to C %d times, want once", i, n)
		}
	}
	if n := len(other.local.under(path)); n != 0 {
		t.Errorf("%d requests reached C's own handlers", n)
	}
}

// What servers tell each other is not for clients.
func TestNoClientIsToldWhichServerAnswers(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.actor("b", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(transport.ServerHeader, "b") }, ours())
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	for _, target := range []string{"/apis", "/apis/ours.k8s.io/v1", "/api", "/openapi/v3", ours().path("default"), "/healthz"} {
		for _, headers := range [][]string{nil, {"Accept", aggregated + ";profile=nopeer"}, {"Accept", aggregated, transport.LoopHeader, "true", transport.ServerHeader, "b"}} {
			got := a.as("alice").do(http.MethodGet, target, "", headers...)
			if named := got.header.Values(transport.ServerHeader); len(named) > 0 {
				t.Errorf("%s with %q: %q has answered", target, headers, named)
			}
			if got.header.Get("Connection") != "" {
				t.Errorf("%s with %q: ends the connection", target, headers)
			}
		}
	}
}
