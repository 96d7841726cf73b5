package discovery

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
)

// follow reads at the given times after a change that does not tell when it
// has its effect. A further change, told by touched, begins the row anew after
// the next reading: a stream of changes does not put readings off. It returns
// early when ctx ends.
func follow(ctx context.Context, clock clock.Clock, touched dirty.Flag, times []time.Duration, read func()) {
	var waited time.Duration
	for i := 0; i < len(times); i++ {
		select {
		case <-ctx.Done():
			return
		case <-clock.After(times[i] - waited):
		}
		waited = times[i]
		read()
		select {
		case <-touched:
			i, waited = -1, 0
		default:
		}
	}
}
