package forward

import (
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
)

// troubleInterval is how often the same trouble with the same peer is logged at
// the default verbosity.
const troubleInterval = time.Minute

// logFailure names a peer that failed and why. Each kind of trouble is logged
// once in a while, so that a peer that is down does not fill the log. Where the
// cause is a misconfiguration the log says what to do, and each request is counted,
// whether another peer takes it or not.
func (x *exchange) logFailure(f *failure) {
	logger := klog.FromContext(x.ctx)
	switch f.reason {
	case reasonBadRequest, reasonClientGone, reasonClientBody, reasonDeadline, reasonShutdown:
		return // no fault of the peer's
	}
	message, err := "A peer failed to take a request", f.err
	if remedy := f.reason.remedy(); remedy != "" {
		metrics.IncForwardError(x.ctx, string(f.reason), x.gvr())
		message = "A peer can't be used as it or this server is configured"
		if err == nil {
			err = errors.New(remedy)
		}
	}
	if x.forwarder.troubles.isNews(x.forwarder.clock().Now(), trouble{f.peer, f.reason}) {
		logger.Error(err, message, "peer", f.peer, "reason", f.reason)
		return
	}
	logger.V(4).Info(message, "peer", f.peer, "reason", f.reason, "err", err)
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
