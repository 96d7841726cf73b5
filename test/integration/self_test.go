package integration

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
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
