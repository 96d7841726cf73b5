package discovery

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/observe/dirty"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
)

// repolls are the times after a change of what all servers share at which a
// peer is asked again: merged documents are in the same order everywhere once
// the servers know each other's news.
var repolls = []time.Duration{300 * time.Millisecond, time.Second}

const (
	// pollInterval is how often a known document is checked for news.
	pollInterval = 10 * time.Second
	// firstRetry is the pause after a first failure; it doubles with each
	// further one, up to pollInterval.
	firstRetry = 250 * time.Millisecond
	// fetchFailed is the label that stock servers count failures with.
	fetchFailed = "fetch_discovery"
)

// Poller keeps the document of one peer up to date.
type Poller struct {
	// Server is the peer. Its incarnation is replaced by Renew.
	Server Server
	// Last is the newest known document, nil if there is none.
	Last *snapshot.Document
	// Deliver takes each document as it comes, from the poller's goroutine. A
	// document that only has a newer time of checking is delivered too.
	Deliver func(*snapshot.Document)
	// Touched is raised by others when the document may be about to change.
	Touched dirty.Flag
	// Renewed is raised by Renew.
	Renewed dirty.Flag
	// Clock is the source of time.
	Clock clock.Clock
	// Random returns a number from 0 up to but not including n.
	Random func(n int) int

	incarnation atomic.Pointer[string]
	troubles    transport.Troubles
}

// Renew tells of a new incarnation of the peer, at the same address: it is
// asked again at once. May be called by any goroutine.
func (p *Poller) Renew(incarnation string) {
	p.incarnation.Store(&incarnation)
	p.Renewed.Raise()
}

// Run polls until ctx ends.
func (p *Poller) Run(ctx context.Context) {
	failures := p.poll(ctx, 0)
	asked := p.Clock.Now()
	regular := asked.Add(p.spread(pause(failures)))
	var soon []time.Time // after a change
	for {
		next := regular
		if len(soon) > 0 && soon[0].Before(next) {
			next = soon[0]
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Touched:
			// The first that is due stays: a stream of changes does not put it off.
			soon = append(soon[:min(1, len(soon))], after(p.Clock.Now(), repolls)...)
			continue
		case <-p.Renewed:
			// A peer whose incarnation changes all the time, or of which someone
			// claims it, is not asked all the time.
			if earliest := asked.Add(firstRetry); p.Clock.Now().Before(earliest) {
				soon = slices.Insert(soon, 0, earliest)
				continue
			}
		case <-p.Clock.After(next.Sub(p.Clock.Now())):
		}
		asked = p.Clock.Now()
		soon = slices.DeleteFunc(soon, func(t time.Time) bool { return !t.After(asked) })
		failures = p.poll(ctx, failures)
		regular = p.Clock.Now().Add(p.spread(pause(failures)))
	}
}

func after(now time.Time, delays []time.Duration) []time.Time {
	times := make([]time.Time, len(delays))
	for i, delay := range delays {
		times[i] = now.Add(delay)
	}
	return times
}

// poll asks the peer and returns how often in a row it could not be asked.
func (p *Poller) poll(ctx context.Context, failures int) int {
	server := p.Server
	if renewed := p.incarnation.Load(); renewed != nil {
		server.Incarnation = *renewed
	}
	next, err := server.fetch(ctx, p.Last, p.Clock)
	if err == nil {
		p.Last = next
		p.Deliver(next)
		return 0
	}
	if ctx.Err() != nil {
		return failures
	}
	failures++
	label := labelOf(err)
	metrics.IncDiscoverySyncError(ctx, label)
	message := "A peer's discovery can't be read, the last good document stays"
	if p.Last == nil {
		message = "A peer's discovery can't be read: what it serves is not known"
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "failures", failures)
	p.troubles.Log(logger, p.Clock.Now(), message, p.Server.ID, label, err)
	return failures
}

// labelOf is the label that a failure is counted with: the cause, where that is a
// misconfiguration.
func labelOf(err error) string {
	return cmp.Or(string(transport.Misconfiguration(err)), fetchFailed)
}

// pause is how long to wait after that many failures in a row.
func pause(failures int) time.Duration {
	if failures > 0 && failures < 10 {
		return min(firstRetry<<(failures-1), pollInterval)
	}
	return pollInterval
}

// spread makes a pause longer or shorter by up to a tenth: many servers poll.
func (p *Poller) spread(pause time.Duration) time.Duration {
	return pause - pause/10 + time.Duration(p.Random(int(pause/5)))
}
