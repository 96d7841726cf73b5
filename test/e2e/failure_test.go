package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"peerproxy.internal/test/cluster"
)

// load asks a server for what only its peers have, until it is told to stop.
type load struct {
	mu       sync.Mutex
	requests int
	slowest  time.Duration
	bad      []string
	unknown  int // unsafe requests whose outcome is not known

	stop chan struct{}
	done sync.WaitGroup
}

// put starts a load of reads and writes, without any retry.
func put(t *testing.T, c *cluster.Cluster, through *cluster.Server) *load {
	l := &load{stop: make(chan struct{})}
	manifest := bundle(t, c, "x")
	as(t, through).want(201, "POST", bundlesPath, mustJSON(t, manifest))
	for worker := range 8 {
		who := as(t, through)
		l.done.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				// A list longer than what is held back would be cut off with its peer.
				l.read(t, who, []string{bundlesPath + "/x", bundlesPath + "?limit=500"}[i%2])
				if i%4 == 0 {
					object := manifest.DeepCopy()
					object.SetName(fmt.Sprintf("load-%d-%d", worker, i))
					l.write(t, who, mustJSON(t, object))
				}
			}
		})
	}
	return l
}

func (l *load) read(t *testing.T, who *client, path string) {
	began := time.Now()
	a, err := who.try(t.Context(), "GET", path, "")
	took := time.Since(began)
	l.note(func() {
		l.slowest = max(l.slowest, took)
		if err != nil || a.code != 200 {
			l.bad = append(l.bad, fmt.Sprintf("GET %s after %v: %d %.200s %v", path, took, a.code, a.body, err))
		}
	})
}

// write creates an object that is new. That it is there already would mean that
// the request was executed twice.
func (l *load) write(t *testing.T, who *client, body string) {
	began := time.Now()
	a, err := who.try(t.Context(), "POST", bundlesPath, body)
	took := time.Since(began)
	l.note(func() {
		switch {
		case a.code == 201: // the peer may have gone with the rest of its answer
		case err == nil && a.code == 504 && a.header.Get("Retry-After") == "":
			l.unknown++
		default:
			l.bad = append(l.bad, fmt.Sprintf("POST after %v: %d %.200s %v", took, a.code, a.body, err))
		}
	})
}

func (l *load) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	f()
}

// end stops the load and complains of what went wrong.
func (l *load) end(t *testing.T, slowest time.Duration) {
	t.Helper()
	close(l.stop)
	l.done.Wait()
	t.Logf("%d requests, the slowest GET took %v, %d POSTs with an unknown outcome, %d failed", l.requests, l.slowest, l.unknown, len(l.bad))
	for _, bad := range l.bad[:min(10, len(l.bad))] {
		t.Error(bad)
	}
	if l.slowest > slowest {
		t.Errorf("the slowest GET took %v, want at most %v", l.slowest, slowest)
	}
}

// lasts lets the load go on for a while.
func lasts(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// One of two capable peers dies, or freezes, under load. Once it runs again it is
// asked again.
func TestOneOfTwoCapablePeersFails(t *testing.T) {
	for _, tc := range []struct {
		name       string
		fail, mend func(*cluster.Server) error
		slowest    time.Duration
	}{
		{"killed", (*cluster.Server).Kill, nil, 3 * time.Second},
		{"frozen", (*cluster.Server).Freeze, (*cluster.Server).Thaw, 6 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := start(t, "new1="+ours137, "new2="+ours137, "old="+ours136)
			as(t, c.Server("old")).until(5*time.Second, 200, "GET", bundlesPath, "")
			l := put(t, c, c.Server("old"))
			lasts(t, 2*time.Second)
			if err := tc.fail(c.Server("new1")); err != nil {
				t.Fatal(err)
			}
			lasts(t, 20*time.Second)
			l.end(t, tc.slowest)
			if tc.mend == nil {
				return
			}
			if err := tc.mend(c.Server("new1")); err != nil {
				t.Fatal(err)
			}
			t.Logf("it has requests again %v after it was mended", untilAsked(t, as(t, c.Server("old")), as(t, c.Server("new1"))))
		})
	}
}

// untilAsked asks through a server until a peer of it was asked, too, beside the
// other one that can take the request.
func untilAsked(t *testing.T, through, peer *client) time.Duration {
	t.Helper()
	began := time.Now()
	before := missed(t, peer)
	within(t, time.Minute, func() error {
		through.want(404, "GET", bundlesPath+"/absent", "")
		if missed(t, peer) == before {
			return fmt.Errorf("no request has come to %s", peer.server.Name())
		}
		return nil
	})
	return time.Since(began)
}

// missed is how many bundles a server itself has answered not to have.
func missed(t *testing.T, c *client) (sum float64) {
	t.Helper()
	for line := range strings.Lines(string(c.want(200, "GET", "/metrics", "").body)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `code="404"`) || !strings.Contains(line, `resource="clustertrustbundles"`) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

// The only capable peer crashes, comes back, is stopped, and comes back.
func TestTheOnlyCapablePeerComesAndGoes(t *testing.T) {
	c := start(t, "new="+ours137, "old="+ours136)
	newer, old := c.Server("new"), as(t, c.Server("old"))
	old.until(5*time.Second, 200, "GET", bundlesPath, "")
	old.want(201, "POST", bundlesPath, mustJSON(t, bundle(t, c, "x")))

	codes := map[int]int{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			a, err := old.try(t.Context(), "GET", bundlesPath+"/x", "")
			codes[a.code]++
			if err != nil || a.code != 200 && (a.code != 503 || a.header.Get("Retry-After") == "") {
				t.Errorf("%d %.200s %v, want 200, or 503 with Retry-After", a.code, a.body, err)
				return
			}
		}
	}()
	back := func(how string) {
		if err := newer.Launch(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := newer.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("after a %s it is forwarded again %v after it is ready", how, old.until(time.Second, 200, "GET", bundlesPath+"/x", ""))
	}
	if err := newer.Kill(); err != nil {
		t.Fatal(err)
	}
	lasts(t, 3*time.Second)
	back("crash")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := newer.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	lasts(t, 3*time.Second)
	back("stop")
	close(stop)
	<-done
	t.Logf("answers by code: %v", codes)
}
