package openapi

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// life is the time in which goroutines may be started.
type life struct {
	began, ended chan struct{}
	tasks        chan func(ctx context.Context)
}

func newLife() *life {
	return &life{began: make(chan struct{}), ended: make(chan struct{}), tasks: make(chan func(context.Context))}
}

// run runs tasks, each in a goroutine of its own, until ctx ends, and returns
// when all have returned.
func (l *life) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer close(l.ended)
	close(l.began)
	for {
		select {
		case <-ctx.Done():
			return
		case task := <-l.tasks:
			running.Go(func() { task(ctx) })
		}
	}
}

// start has a task run, and reports whether it will be. The flight is over when
// the task has returned.
func (l *life) start(task func(ctx context.Context)) (flight, bool) {
	select {
	case <-l.began:
	default:
		return nil, false
	}
	done := make(chan struct{})
	select {
	case l.tasks <- func(ctx context.Context) { defer close(done); task(ctx) }:
		return done, true
	case <-l.ended:
		return nil, false
	}
}

// flight is something that goes on; it is closed at its end.
type flight <-chan struct{}

// wait waits for flights until they are all over, the patience is spent, or ctx
// ends.
func wait(ctx context.Context, clock clock.Clock, patience time.Duration, flights ...flight) {
	if len(flights) == 0 {
		return
	}
	timer := clock.NewTimer(patience)
	defer timer.Stop()
	for _, f := range flights {
		select {
		case <-f:
		case <-timer.C():
			return
		case <-ctx.Done():
			return
		}
	}
}
