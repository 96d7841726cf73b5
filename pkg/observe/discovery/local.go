package discovery

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
	"peerproxy.internal/pkg/snapshot"
)

// rereads are the times after a change of the custom resource definitions or
// APIServices at which the own document is read again: the handlers behind it
// take such a change in after some tens of milliseconds, and do not tell when.
var rereads = []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}

// Local keeps the document of this server up to date.
type Local struct {
	// Server is this server; its transport calls the handler in process.
	Server Server
	// Touched is raised by others when the document may be about to change.
	Touched dirty.Flag
	// Changed is raised when the document did change.
	Changed dirty.Flag
	// Clock is the source of time.
	Clock clock.Clock

	once sync.Once
	// turn holds a token while someone reads the document.
	turn chan struct{}
	last atomic.Pointer[snapshot.Document]
}

// Run reads the document at once, then again and again until ctx ends.
func (l *Local) Run(ctx context.Context) {
	for failures := l.read(ctx, 0); ; {
		select {
		case <-ctx.Done():
			return
		case <-l.Touched:
			follow(ctx, l.Clock, l.Touched, rereads, func() { failures = l.read(ctx, failures) })
		case <-l.Clock.After(pause(failures)):
			failures = l.read(ctx, failures)
		}
	}
}

func (l *Local) read(ctx context.Context, failures int) int {
	if err := l.Refresh(ctx, 0); err != nil && ctx.Err() == nil {
		failures++
		klog.FromContext(ctx).V(verbosity(failures)).Info("The own discovery can't be read, the last good document stays", "failures", failures, "reason", err.Error())
		return failures
	}
	return 0
}

// verbosity shows the first failure, and then one in ten minutes or so, to
// everyone.
func verbosity(failures int) int {
	if failures == 1 || failures%64 == 0 {
		return 0
	}
	return 4
}

// Refresh reads the document unless it was read less than maxAge ago. It
// returns an error when ctx ends first.
func (l *Local) Refresh(ctx context.Context, maxAge time.Duration) error {
	l.once.Do(func() { l.turn = make(chan struct{}, 1) })
	if l.isFresh(maxAge) {
		return nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	last := l.last.Load()
	if l.isFresh(maxAge) {
		return nil // by the one who had the turn before
	}
	next, err := l.Server.fetch(ctx, last, l.Clock)
	if err != nil {
		return err
	}
	l.last.Store(next)
	if !next.SameContent(last) {
		l.Changed.Raise()
	}
	return nil
}

func (l *Local) isFresh(maxAge time.Duration) bool {
	last := l.last.Load()
	return last != nil && l.Clock.Since(last.Checked) < maxAge
}

// Document returns the newest document, nil before the first.
func (l *Local) Document() *snapshot.Document { return l.last.Load() }
