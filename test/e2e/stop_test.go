package e2e

import (
	"context"
	"fmt"
	"io"
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
	for _, tc := range []struct{ name, binary, flags string }{
		{"1.36", ours136, ""},
		{"1.37", ours137, ",runtime-config=certificates.k8s.io/v1=false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := start(t)
			etcd, err := cluster.NewWire(strings.TrimPrefix(c.EtcdURL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(etcd.Close)
			flags := ",flag.shutdown-watch-termination-grace-period=2s,flag.etcd-servers=http://" + etcd.Address() + tc.flags
			add(t, c, "new="+ours137, "on="+tc.binary+flags, "off="+tc.binary+flags+",peers=off,flag.feature-gates=UnknownVersionInteroperabilityProxy=false")
			s := &stops{t: t, etcd: etcd, newer: c.Server("new"), on: c.Server("on"), off: c.Server("off")}
			s.compare("beside watches", time.Second, s.besideWatches)
			s.compare("with etcd and its peer dead", 2*time.Second, s.amongTheDead)
		})
	}
}

// stops stops two servers at the same time, and starts them again.
type stops struct {
	t              *testing.T
	etcd           *cluster.Wire
	newer, on, off *cluster.Server
}

// compare stops both servers, and once more where the one with the gate on took
// longer by more than a slack: another program may have held it up, but not each
// time.
func (s *stops) compare(when string, slack time.Duration, stop func() [2]time.Duration) {
	s.t.Helper()
	const tries = 3
	for range tries {
		s.start()
		took := stop()
		s.t.Logf("%s it stops in %v, with the gate off in %v", when, took[0], took[1])
		if took[0] <= took[1]+slack {
			return
		}
	}
	s.t.Errorf("%s it takes longer to stop than with the gate off, %d times by more than %v", when, tries, slack)
}

// start starts what does not run.
func (s *stops) start() {
	s.t.Helper()
	s.etcd.Mend()
	s.each(func(server *cluster.Server) error {
		if server.Err() == nil {
			return nil
		}
		return server.Start(s.t.Context())
	}, s.newer, s.on, s.off)
}

func (s *stops) besideWatches() [2]time.Duration {
	s.t.Helper()
	as(s.t, s.on).until(10*time.Second, 200, "GET", bundlesPath, "")
	for _, watch := range []io.Closer{openWatch(s.t, s.on, bundlesPath), openWatch(s.t, s.on, "/api/v1/configmaps"), openWatch(s.t, s.off, "/api/v1/configmaps")} {
		defer watch.Close()
	}
	return s.both()
}

func (s *stops) amongTheDead() [2]time.Duration {
	s.t.Helper()
	as(s.t, s.on).until(10*time.Second, 200, "GET", bundlesPath, "")
	// A stop waits for an identity lease that is being renewed, every 10 s: with
	// etcd dead for half a minute and more, gate or no gate.
	within(s.t, 30*time.Second, func() error { return renewed(as(s.t, s.on), 5*time.Second, s.on.ID(), s.off.ID()) })
	if err := s.newer.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.etcd.Cut()
	return s.both()
}

// both stops both servers and returns how long each took.
func (s *stops) both() [2]time.Duration {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 60*time.Second)
	defer cancel()
	took := s.each(func(server *cluster.Server) error { return server.Stop(ctx) }, s.on, s.off)
	return [2]time.Duration(took)
}

// each does something to servers at the same time and returns how long it took
// for each.
func (s *stops) each(do func(*cluster.Server) error, servers ...*cluster.Server) []time.Duration {
	s.t.Helper()
	took := make([]time.Duration, len(servers))
	var done sync.WaitGroup
	for i, server := range servers {
		done.Go(func() {
			began := time.Now()
			if err := do(server); err != nil {
				s.t.Error(err)
			}
			took[i] = time.Since(began)
		})
	}
	done.Wait()
	return took
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
