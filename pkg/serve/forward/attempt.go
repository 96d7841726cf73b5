package forward

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/transport"
)

// maxAttempts is how many candidates are tried for a request.
const maxAttempts = 3

// RoundTrip sends the request to one candidate after another until one has
// answered it. It makes an exchange the reverse proxy's transport. The error is
// a [*failure], that of the last attempt.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	if x.unfit != nil {
		return nil, x.unfit
	}
	x.body = newReplay(req.Body, req.ContentLength, &x.forwarder.kept)
	last := &failure{reason: reasonNoCandidate}
	for attempts := 0; attempts < maxAttempts && x.pick(); attempts++ {
		res, failed := x.try(req)
		if failed == nil {
			x.body.settle()
			return res, nil
		}
		failed.peer = x.peer.ServerID
		x.noteFailure(failed)
		if x.mayTryAgain(failed) {
			x.left = append(x.left, x.peer)
		}
		x.release()
		if failed.reason == reasonNotKept {
			break
		}
		last = failed
		x.logFailure(failed)
		if !failed.reason.mayGoOn(req.Method) {
			break
		}
	}
	return nil, last
}

// try sends the request to the candidate that was picked.
func (x *exchange) try(req *http.Request) (*http.Response, *failure) {
	out, err := x.outgoing(req)
	if err != nil {
		return nil, &failure{reason: reasonNotKept, err: err}
	}
	klog.FromContext(x.ctx).V(4).Info("Forwarding request", "peer", x.peer.ServerID, "method", req.Method, "path", req.URL.Path)
	tracing.SpanFromContext(x.ctx).AddEvent("Sending to peer", attribute.String("peer", x.peer.ServerID))
	res, err := x.forwarder.Transport.RoundTrip(out)
	if err != nil {
		return nil, &failure{reason: x.reasonOf(err), err: err}
	}
	if res.StatusCode < 100 || res.StatusCode > 999 {
		// net/http takes any number from a peer, and panics if it has to write it.
		_ = res.Body.Close()
		return nil, &failure{reason: reasonLost, err: fmt.Errorf("answered with status %d", res.StatusCode)}
	}
	x.noteAnswer()
	if reason := x.judge(res); reason != "" {
		_ = res.Body.Close()
		return nil, &failure{reason: reason}
	}
	if !x.mayBeHeld(res) {
		return res, nil
	}
	if err := x.forwarder.hold(res); err != nil {
		return nil, &failure{reason: x.reasonOf(err), err: err}
	}
	return res, nil
}

// reasonOf says what an error of the transport means.
func (x *exchange) reasonOf(err error) reason {
	var connect *transport.ConnectError
	var refused *transport.RefusedError
	var unsendable *transport.UnsendableError
	switch clientErr := x.client.Context().Err(); {
	case x.clientGone():
		return reasonClientGone
	case clientErr != nil:
		return reasonDeadline
	case errors.Is(context.Cause(x.ctx), errShutdown):
		return reasonShutdown
	case x.body.failed():
		return reasonClientBody
	case errors.As(err, &unsendable):
		return reasonBadRequest
	case errors.As(err, &connect):
		return reason(connect.Reason)
	case errors.As(err, &refused), errors.Is(err, errNotKept):
		// The transport asks for a body once more only when the peer has given
		// the request back.
		return reasonRefused
	}
	return reasonLost
}
