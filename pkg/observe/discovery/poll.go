package discovery

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/observe/dirty"
	"peerproxy.internal/pkg/snapshot"
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
	Server Server
	// Last is the newest known document, nil if there is none.
	Last *snapshot.Document
	// Deliver takes each document as it comes, from the poller's goroutine. A
	// document that only has a newer time of checking is delivered too.
	Deliver func(*snapshot.Document)
	// Touched is raised by others when the document may be about to change.
	Touched dirty.Flag
	// Clock is the source of time.
	Clock clock.Clock
}

// Run polls until ctx ends.
func (p *Poller) Run(ctx context.Context) {
	for failures := p.poll(ctx, 0); ; {
		select {
		case <-ctx.Done():
			return
		case <-p.Touched:
			follow(ctx, p.Clock, p.Touched, repolls, func() { failures = p.poll(ctx, failures) })
		case <-p.Clock.After(pause(failures, rand.Float64())):
			failures = p.poll(ctx, failures)
		}
	}
}

// poll asks the peer and returns how often in a row it could not be asked.
func (p *Poller) poll(ctx context.Context, failures int) int {
	next, err := p.Server.fetch(ctx, p.Last, p.Clock)
	if err == nil {
		p.Last = next
		p.Deliver(next)
		return 0
	}
	if ctx.Err() != nil {
		return failures
	}
	failures++
	metrics.IncDiscoverySyncError(ctx, fetchFailed)
	klog.FromContext(ctx).V(verbosity(failures)).Info("A peer's discovery can't be read, the last good document stays", "peer", p.Server.ID, "failures", failures, "reason", err.Error())
	return failures
}

// pause is how long to wait after that many failures in a row. random, in
// [0,1), spreads the polls of many servers by a tenth.
func pause(failures int, random float64) time.Duration {
	base := pollInterval
	if failures > 0 && failures < 10 {
		base = min(firstRetry<<(failures-1), pollInterval)
	}
	return time.Duration(float64(base) * (0.9 + 0.2*random))
}

// verbosity shows the first failure, and then one in ten minutes or so, to
// everyone.
func verbosity(failures int) int {
	if failures == 1 || failures%64 == 0 {
		return 0
	}
	return 4
}
