package upgrade

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"
)

// How often each client does what it does.
const (
	readPeriod      = 100 * time.Millisecond
	writePeriod     = 300 * time.Millisecond
	discoveryPeriod = 250 * time.Millisecond
	walkPeriod      = 2 * time.Second
	namespacePeriod = time.Second
	retryPeriod     = 500 * time.Millisecond
)

// How many clients of a kind there are.
const (
	readers           = 4
	informersEach     = 2
	namespacesAtATime = 3
)

// LoadConfig is what a [Load] needs. All fields are required.
type LoadConfig struct {
	// Config is the admin's access through the load balancer.
	Config *rest.Config
	// Etcd is asked what a deleted namespace has left behind.
	Etcd *clientv3.Client
	// TrustBundle holds certificates, as PEM, that a ClusterTrustBundle may hold.
	TrustBundle []byte
	Counts      *Counts
	Epoch       *Epoch
}

// Load is a set of clients at work.
type Load struct {
	config  *rest.Config
	etcd    *clientv3.Client
	counts  *Counts
	epoch   *Epoch
	objects []*object

	running sync.WaitGroup
	mu      sync.Mutex
	clients []*http.Client
}

// NewLoad returns a load that has not begun.
func NewLoad(c LoadConfig) *Load {
	return &Load{
		config:  c.Config,
		etcd:    c.Etcd,
		counts:  c.Counts,
		epoch:   c.Epoch,
		objects: []*object{configMaps(), trustBundles(c.TrustBundle)},
	}
}

// Run works until ctx ends, and returns when all that it started is gone. Until
// then it has an error only if it could not begin.
func (l *Load) Run(ctx context.Context) error {
	defer l.close()
	defer l.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, begin := range []func(context.Context) error{
		l.beginReading, l.beginWatching, l.beginWalking, l.beginDiscovering, l.beginNamespaces,
	} {
		if err := begin(ctx); err != nil {
			return fmt.Errorf("beginning the load: %w", err)
		}
	}
	<-ctx.Done()
	return nil
}

// close closes the connections that are idle: all of them.
func (l *Load) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
}

// every calls f once a period until ctx ends, or later if f takes longer.
func (l *Load) every(ctx context.Context, period time.Duration, f func()) {
	l.running.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f()
			}
		}
	})
}

// until calls f every now and then until it says that it is done, or ctx ends.
func until(ctx context.Context, f func() (done bool)) {
	tick := time.NewTicker(retryPeriod)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// target is what a client's requests are about.
type target struct {
	what string
	// fresh is true for what only the new version has.
	fresh bool
	// seen is true once the client had it: from then on it must not be absent.
	seen bool
}

// safe says whether a request may be executed twice.
type safe bool

// do makes a request and counts how it went. What nobody served all the time is
// not counted.
func (l *Load) do(ctx context.Context, t *target, safe safe, verb string, request func(context.Context) error) error {
	served := !t.fresh || l.epoch.Serving()
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	began := time.Now()
	err := request(bounded)
	if ctx.Err() != nil {
		return err // the run is over
	}
	if served = served && (!t.fresh || l.epoch.Serving()); !served {
		return err
	}
	l.judge(t, safe, fmt.Sprintf("%s %s after %v", verb, t.what, time.Since(began).Round(time.Millisecond)), err)
	return err
}

func (l *Load) judge(t *target, safe safe, what string, err error) {
	if safe {
		l.counts.Add(SafeRequests)
	} else {
		l.counts.Add(UnsafeRequests)
	}
	switch {
	case err == nil:
		t.seen = true
	case isAbsent(err) && t.fresh && !t.seen: // this server has not heard of it yet
	case isAbsent(err):
		l.counts.Note(WrongAbsent, "%s: %v", what, err)
	case bool(safe):
		l.counts.Note(FailedSafe, "%s: %v", what, err)
	default:
		l.counts.Note(unsafeKind(err), "%s: %v", what, err)
	}
}
