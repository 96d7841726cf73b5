package forward

import (
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// troubleInterval is how often the same trouble with the same peer is logged at
// the default verbosity.
const troubleInterval = 10 * time.Second

// logFailure names a peer that failed and why. Each kind of trouble is logged
// once in a while, so that a peer that is down does not fill the log.
func (x *exchange) logFailure(f *failure) {
	logger := klog.FromContext(x.ctx)
	switch f.reason {
	case reasonBadRequest, reasonClientGone, reasonClientBody, reasonDeadline, reasonShutdown:
		return // no fault of the peer's
	}
	if x.forwarder.troubles.isNews(x.forwarder.clock().Now(), trouble{f.peer, f.reason}) {
		logger.Error(f.err, "A peer failed to take a request", "peer", f.peer, "reason", f.reason)
		return
	}
	logger.V(4).Info("A peer failed to take a request", "peer", f.peer, "reason", f.reason, "err", f.err)
}

func (f *Forwarder) clock() clock.Clock {
	if f.Clock == nil {
		return clock.RealClock{}
	}
	return f.Clock
}

type trouble struct {
	peer   string
	reason reason
}

// troubles remembers when which trouble was logged.
type troubles struct {
	mu     sync.Mutex
	logged map[trouble]time.Time
}

// isNews reports whether the trouble was not reported as news for a while, and
// forgets what is older.
func (t *troubles) isNews(now time.Time, what trouble) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.logged[what]; ok && now.Sub(at) < troubleInterval {
		return false
	}
	for old, at := range t.logged {
		if now.Sub(at) >= troubleInterval {
			delete(t.logged, old)
		}
	}
	if t.logged == nil {
		t.logged = map[trouble]time.Time{}
	}
	t.logged[what] = now
	return true
}
