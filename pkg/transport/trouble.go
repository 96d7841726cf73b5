package transport

import (
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// troubleInterval is how often the same trouble with the same peer is logged at
// the default verbosity.
const troubleInterval = time.Minute

// Troubles remembers what was logged of peers that can't be used, so that one that
// stays so does not fill the log. The zero value is ready. It is safe for concurrent
// use, and must not be copied.
type Troubles struct {
	mu     sync.Mutex
	logged map[trouble]time.Time
}

type trouble struct{ peer, reason string }

// Log logs at the time now why a peer failed. Each reason is logged once a minute
// for a peer, one that is new at once; in between at V(4).
func (t *Troubles) Log(logger klog.Logger, now time.Time, message, peer, reason string, err error) {
	logger = logger.WithCallDepth(1)
	if t.isNews(now, trouble{peer, reason}) {
		logger.Error(err, message, "peer", peer, "reason", reason)
		return
	}
	logger.V(4).Info(message, "peer", peer, "reason", reason, "err", err)
}

// isNews reports whether the trouble was not reported as news for a while, and
// forgets what is older.
func (t *Troubles) isNews(now time.Time, what trouble) bool {
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

// Misconfiguration returns why a peer could not be asked where the cause is a
// misconfiguration, and "" for any other error.
func Misconfiguration(err error) Reason {
	if connect, ok := errors.AsType[*ConnectError](err); ok && connect.Reason.Remedy() != "" {
		return connect.Reason
	}
	return ""
}
