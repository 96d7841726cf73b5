package observe

import (
	"context"
	"errors"
	"time"
)

var errStopped = errors.New("the observer has stopped")

// Refresh makes sure that the current snapshot holds a document of this server
// that was read less than maxAge ago: the handlers behind it do not tell when
// they change. It reads the document if need be (some microseconds when nothing
// changed) and waits for its publication. An error is that of reading, or of
// ctx; the last good document then stays.
func (o *Observer) Refresh(ctx context.Context, maxAge time.Duration) error {
	if err := o.local.Refresh(ctx, maxAge); err != nil {
		return err
	}
	newest := o.local.Document()
	for {
		o.mu.Lock()
		published := o.published
		o.mu.Unlock()
		if shown := o.store.Load().Local(); shown != nil && !shown.Checked.Before(newest.Checked) || newest.SameContent(shown) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-o.stopped:
			return errStopped
		case <-published:
		}
	}
}
