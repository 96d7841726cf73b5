package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
	"peerproxy.internal/pkg/observe/exclusion"
	"peerproxy.internal/pkg/observe/lease"
	"peerproxy.internal/pkg/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a control plane that a test changes as it likes.
type cluster struct {
	changed dirty.Flag

	mu      sync.Mutex
	members []lease.Member
	listed  bool
	// serves is the one resource in apps/v1 that the server at an address has;
	// an address without one refuses connections.
	serves map[string]string
	// silent addresses take connections and never answer.
	silent map[string]bool
	// delay is how long a peer takes for an answer, asked how often one was.
	delay time.Duration
	asked int
}

func (c *cluster) set(f func()) {
	c.mu.Lock()
	f()
	c.mu.Unlock()
	c.changed.Raise()
}

func (c *cluster) Members(context.Context) []lease.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members
}

func (c *cluster) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed
}

func (c *cluster) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	resource, silent := c.serves[r.URL.Host], c.silent[r.URL.Host]
	if r.URL.Host != "local" {
		c.asked++
	}
	c.mu.Unlock()
	if c.delay > 0 && r.URL.Host != "local" {
		time.Sleep(c.delay)
	}
	if silent {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if resource == "" {
		return nil, errors.New("connection refused")
	}
	header := http.Header{"Content-Type": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}, "Etag": {`"` + resource + `"`}}
	items := fmt.Sprintf(`{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":%q,"verbs":["get"]}]}]}`, resource)
	if r.URL.Path == "/api" {
		items = ""
	}
	body := fmt.Sprintf(`{"kind":"APIGroupDiscoveryList","items":[%s]}`, items)
	return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// newObserver returns an observer of server a in a cluster.
func newObserver(c *cluster) *Observer {
	c.changed = dirty.New()
	return New(Config{
		ServerID:   "a",
		Members:    c,
		Exclusions: exclusion.NewTracker(exclusion.Config{Changed: c.changed, Clock: clock.RealClock{}}),
		Changed:    c.changed,
		Touched:    dirty.New(),
		Local:      c,
		Peers:      c,
		Limits:     limits,
		Clock:      clock.RealClock{},
		Random:     rand.IntN,
	})
}

// observed starts an observer of server a in a cluster, in a synctest bubble.
func observed(t *testing.T, c *cluster) *Observer {
	o := newObserver(c)
	run(t, o)
	return o
}

// run runs an observer until the test ends.
func run(t *testing.T, o *Observer) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- o.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// at is a live member at an address.
func at(id, address, incarnation string) lease.Member {
	return lease.Member{
		ServerID: id,
		Identity: &lease.Identity{Incarnation: incarnation, Expires: time.Now().Add(time.Hour)},
		Record:   &lease.Record{Address: address},
	}
}

func kind(o *Observer, resource string) snapshot.Kind {
	return o.Load().Route(snapshot.Resource{Group: "apps", Version: "v1", Resource: resource}, "get").Kind
}

func isReady(o *Observer) bool {
	select {
	case <-o.Ready():
		return true
	default:
		return false
	}
}

func TestAPeerIsRoutableAsSoonAsItsRecordShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours", "b:1": "theirs"}}
		o := observed(t, c)
		synctest.Wait()
		if !isReady(o) || !o.Load().Ready() || kind(o, "ours") != snapshot.Local || kind(o, "theirs") != snapshot.Absent {
			t.Fatal("not ready, or routes wrong, before the peer")
		}
		c.set(func() { c.members = []lease.Member{at("b", "b:1", "b_1")} })
		synctest.Wait()
		if got := kind(o, "theirs"); got != snapshot.Peers {
			t.Errorf("got %v, want Peers", got)
		}
	})
}

func TestOnlyWhatCanBeBuiltInIsUnknown(t *testing.T) {
	for _, tc := range []struct {
		name    string
		builtIn func(group string) bool
		want    snapshot.Kind
	}{
		{"to Kubernetes", nil, snapshot.Absent},
		{"to a fork", func(group string) bool { return group == "fork.example.com" }, snapshot.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newObserver(&cluster{serves: map[string]string{"local": "ours"}})
				o.config.BuiltIn = tc.builtIn
				run(t, o)
				synctest.Wait()
				asked := snapshot.Resource{Group: "fork.example.com", Version: "v1", Resource: "things"}
				if got := o.Load().Route(asked, "get").Kind; got != tc.want {
					t.Errorf("before the members are known got %v, want %v", got, tc.want)
				}
			})
		})
	}
}

func TestARestartedPeerIsKnownAnewWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours", "b:1": "old"}, members: []lease.Member{at("b", "b:1", "b_1")}}
		o := observed(t, c)
		synctest.Wait()
		c.set(func() {
			c.serves["b:1"] = "new"
			c.members = []lease.Member{at("b", "b:1", "b_2")}
		})
		time.Sleep(time.Second)
		if kind(o, "new") != snapshot.Peers || kind(o, "old") != snapshot.Absent {
			t.Errorf("new is %v, old is %v", kind(o, "new"), kind(o, "old"))
		}
	})
}

func TestAFailedFetchKeepsTheLastGoodDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours", "b:1": "theirs"}, members: []lease.Member{at("b", "b:1", "b_1")}}
		o := observed(t, c)
		synctest.Wait()
		c.set(func() { delete(c.serves, "b:1") })
		time.Sleep(time.Hour / 2)
		if got := kind(o, "theirs"); got != snapshot.Peers {
			t.Errorf("after half an hour of refused fetches: %v, want Peers", got)
		}
	})
}

func TestASilentPeerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours", "b:1": "theirs"}, silent: map[string]bool{"c:1": true}, members: []lease.Member{at("c", "c:1", "c_1")}}
		o := observed(t, c)
		time.Sleep(time.Second)
		c.set(func() { c.members = append(c.members, at("b", "b:1", "b_1")) })
		synctest.Wait()
		if got := kind(o, "theirs"); got != snapshot.Peers {
			t.Errorf("got %v, want Peers", got)
		}
	})
}

func TestReadinessWaitsForPeersTenSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours"}, members: []lease.Member{at("b", "b:1", "b_1")}}
		o := observed(t, c)
		time.Sleep(10*time.Second - time.Millisecond)
		if isReady(o) || o.Load().Ready() {
			t.Error("ready without the peer's document")
		}
		if got := kind(o, "theirs"); got != snapshot.Unknown {
			t.Errorf("got %v, want Unknown", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !isReady(o) || !o.Load().Ready() {
			t.Error("not ready after ten seconds")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := kind(o, "theirs"); got != snapshot.Absent {
			t.Errorf("after thirty seconds of doubt: %v, want Absent", got)
		}
	})
}

func TestNoMergedDocumentBeforeTheLeasesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{serves: map[string]string{"local": "ours"}}
		o := observed(t, c)
		time.Sleep(time.Minute)
		if !isReady(o) {
			t.Error("the server waits for ever")
		}
		if o.Load().Ready() {
			t.Error("merged documents without the peers")
		}
		if got := kind(o, "theirs"); got != snapshot.Unknown {
			t.Errorf("got %v, want Unknown", got)
		}
		c.set(func() { c.listed = true })
		synctest.Wait()
		if !o.Load().Ready() || kind(o, "theirs") != snapshot.Absent {
			t.Error("not ready once they are listed")
		}
	})
}

func TestADocumentThatCameTooLateIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours", "b:1": "theirs"}, members: []lease.Member{at("b", "b:1", "b_1")}}
		o := observed(t, c)
		synctest.Wait()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		o.deliver(ctx, &snapshot.Document{ServerID: "b"}, time.Now())
		c.changed.Raise()
		synctest.Wait()
		if got := kind(o, "theirs"); got != snapshot.Peers {
			t.Errorf("got %v, want Peers", got)
		}
	})
}

func TestRefreshShowsANewLocalResourceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "old"}}
		o := observed(t, c)
		synctest.Wait()
		time.Sleep(time.Second)
		c.set(func() { c.serves["local"] = "new" })
		if err := o.Refresh(t.Context(), 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if got := kind(o, "new"); got != snapshot.Local {
			t.Errorf("got %v, want Local", got)
		}
		c.set(func() { delete(c.serves, "local") })
		time.Sleep(time.Second)
		if err := o.Refresh(t.Context(), 50*time.Millisecond); err == nil {
			t.Error("a failure to read is no error")
		}
		if got := kind(o, "new"); got != snapshot.Local {
			t.Errorf("after a failure: %v, want Local", got)
		}
	})
}

// Whoever may write leases can change a holder identity all the time.
func TestAnIncarnationThatChangesAllTheTimeStarvesNoFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours", "b:1": "theirs"}, delay: 60 * time.Millisecond}
		o := observed(t, c)
		for i := range 100 {
			c.set(func() { c.members = []lease.Member{at("b", "b:1", fmt.Sprint(i))} })
			time.Sleep(100 * time.Millisecond)
		}
		if got := kind(o, "theirs"); got != snapshot.Peers {
			t.Errorf("got %v, want Peers", got)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asked > 2*50 {
			t.Errorf("the peer was asked %d times in 10 s", c.asked/2)
		}
	})
}

// A server that can't read what it serves still knows what others do.
func TestAnUnreadableOwnDocumentBlindsTheServerAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"b:1": "theirs"}, members: []lease.Member{at("b", "b:1", "b_1")}}
		o := observed(t, c)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !isReady(o) || !o.Load().Blind() || kind(o, "ours") != snapshot.Absent || kind(o, "theirs") != snapshot.Peers || o.Load().Ready() {
			t.Errorf("ready %t, blind %t, ours is %v, theirs %v", isReady(o), o.Load().Blind(), kind(o, "ours"), kind(o, "theirs"))
		}
		c.set(func() { c.serves["local"] = "ours" })
		time.Sleep(11 * time.Second)
		if o.Load().Blind() || !o.Load().Ready() || kind(o, "ours") != snapshot.Local {
			t.Error("still blind when it can read again")
		}
	})
}

func TestRefreshEndsWithTheObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours"}}
		o := newObserver(c)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.Run(ctx) }()
		time.Sleep(time.Second)
		stop()
		<-done
		c.set(func() { c.serves["local"] = "others" })
		began := time.Now()
		if err := o.Refresh(t.Context(), 0); err == nil || time.Since(began) != 0 {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}
