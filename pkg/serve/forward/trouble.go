package forward

import (
	"errors"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
)

// logFailure names a peer that failed and why. Each kind of trouble is logged
// once in a while, so that a peer that is down does not fill the log. Where the
// cause is a misconfiguration the log says what to do, and each request is counted,
// whether another peer takes it or not.
func (x *exchange) logFailure(f *failure) {
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
	x.forwarder.troubles.Log(klog.FromContext(x.ctx), x.forwarder.clock().Now(), message, f.peer, string(f.reason), err)
}

func (f *Forwarder) clock() clock.Clock {
	if f.Clock == nil {
		return clock.RealClock{}
	}
	return f.Clock
}
