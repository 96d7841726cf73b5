package discovery

import (
	"context"
	"sync"
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

	mu   sync.Mutex
	last *snapshot.Document
}

// Run reads the document at once, then again and again until ctx ends.
func (l *Local) Run(ctx context.Context) {
	for failures := l.read(ctx, 0); ; {
		select {
		case <-ctx.Done():
			return
		case <-l.Touched:
			follow(ctx, l.Clock, l.Touched, rereads, func() { failures = l.read(ctx, failures) })
		case <-l.Clock.After(pause(failures, 0.5)):
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

// Refresh reads the document unless it was read less than maxAge ago.
func (l *Local) Refresh(ctx context.Context, maxAge time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && l.Clock.Since(l.last.Checked) < maxAge {
		return nil
	}
	next, err := l.Server.fetch(ctx, l.last, l.Clock)
	if err != nil {
		return err
	}
	changed := !next.SameContent(l.last)
	l.last = next
	if changed {
		l.Changed.Raise()
	}
	return nil
}

// Document returns the newest document, nil before the first.
func (l *Local) Document() *snapshot.Document {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
