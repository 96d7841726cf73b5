package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"peerproxy.internal/test/cluster"
)

// A server stops as fast as the same one with the gate off: beside a forwarded
// watch, and when neither etcd nor a peer answers any more.
func TestAServerStopsAsFastAsWithTheGateOff(t *testing.T) {
	c := start(t)
	etcd := cuttable(t, strings.TrimPrefix(c.EtcdURL(), "http://"))
	flags := ",flag.shutdown-watch-termination-grace-period=2s,flag.etcd-servers=http://" + etcd.Addr().String()
	add(t, c, "new="+ours137, "on="+ours136+flags, "off="+ours136+flags+",peers=off,flag.feature-gates=UnknownVersionInteroperabilityProxy=false")
	on, off := c.Server("on"), c.Server("off")
	as(t, on).until(5*time.Second, 200, "GET", bundlesPath, "")

	watches := []io.Closer{openWatch(t, on, bundlesPath), openWatch(t, on, "/api/v1/configmaps"), openWatch(t, off, "/api/v1/configmaps")}
	compare(t, "beside watches", stopBoth(t, on, off))
	for _, watch := range watches {
		watch.Close()
	}

	both(t, on, off, func(s *cluster.Server) error { return s.Start(t.Context()) })
	as(t, on).until(5*time.Second, 200, "GET", bundlesPath, "")
	// A stop waits for an identity lease that is being renewed, every 10 s: with
	// etcd dead for half a minute and more, gate or no gate.
	within(t, 30*time.Second, func() error { return renewed(as(t, on), 5*time.Second, on.ID(), off.ID()) })
	if err := c.Server("new").Kill(); err != nil {
		t.Fatal(err)
	}
	etcd.Close()
	compare(t, "with etcd and its peer dead", stopBoth(t, on, off))
}

// cut is a way to a server that can be cut off.
type cut struct {
	net.Listener

	mu     sync.Mutex
	closed bool
	open   []net.Conn
}

// cuttable opens a way to an address.
func cuttable(t *testing.T, address string) *cut {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cut{Listener: listener}
	t.Cleanup(func() { c.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				near.Close()
				continue
			}
			c.join(near, far)
		}
	}()
	return c
}

// join passes bytes both ways, unless the way is cut.
func (c *cut) join(near, far net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		near.Close()
		far.Close()
		return
	}
	c.open = append(c.open, near, far)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			io.Copy(way[0], way[1])
			near.Close()
			far.Close()
		}()
	}
}

// Close cuts every connection, and takes no more.
func (c *cut) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.open {
		conn.Close()
	}
	return c.Listener.Close()
}

// openWatch opens a watch and returns when it has begun.
func openWatch(t *testing.T, s *cluster.Server, path string) io.Closer {
	t.Helper()
	who := as(t, s)
	request, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+path+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := who.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != 200 {
		t.Fatalf("watch %s at %s: %s", path, s.Name(), response.Status)
	}
	go io.Copy(io.Discard, response.Body)
	return response.Body
}

// renewed has no complaint if identity leases were renewed within a time.
func renewed(c *client, within time.Duration, ids ...string) error {
	for _, id := range ids {
		a, err := c.try(c.t.Context(), "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"+id, "")
		if err != nil {
			return err
		}
		at, _, err := unstructured.NestedString(a.object(c.t).Object, "spec", "renewTime")
		if err != nil {
			return err
		}
		renewed, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return err
		}
		if ago := time.Since(renewed); ago > within {
			return fmt.Errorf("%s was renewed %v ago", id, ago)
		}
	}
	return nil
}

// both does something to two servers at the same time and returns how long it
// took for each.
func both(t *testing.T, on, off *cluster.Server, do func(*cluster.Server) error) (took [2]time.Duration) {
	t.Helper()
	var done sync.WaitGroup
	for i, s := range []*cluster.Server{on, off} {
		done.Go(func() {
			began := time.Now()
			if err := do(s); err != nil {
				t.Error(err)
			}
			took[i] = time.Since(began)
		})
	}
	done.Wait()
	return took
}

// stopBoth stops two servers at the same time and returns how long each took.
func stopBoth(t *testing.T, on, off *cluster.Server) [2]time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	return both(t, on, off, func(s *cluster.Server) error { return s.Stop(ctx) })
}

func compare(t *testing.T, when string, took [2]time.Duration) {
	t.Helper()
	t.Logf("%s it stops in %v, with the gate off in %v", when, took[0], took[1])
	if took[0] > took[1]+5*time.Second {
		t.Errorf("%s it stops in %v, with the gate off in %v", when, took[0], took[1])
	}
}
