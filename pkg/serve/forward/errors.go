package forward

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/transport"
)

// reason says why a request got no peer's answer. Its text is a metric's label.
// Those of [transport.ConnectError] are reasons, too.
type reason string

const (
	// The request can't be sent.
	reasonNoRequestInfo reason = "no_request_info"
	reasonNoUser        reason = "no_user"
	reasonIdentity      reason = "identity"
	reasonBadRequest    reason = "bad_request"
	// No candidate was left at all.
	reasonNoCandidate reason = "no_candidate"
	// It is not known who serves the request, or it must not be sent on.
	reasonUnknown reason = "unknown"

	// Nothing was executed.
	reasonRefused      reason = "refused"
	reasonNotServed    reason = "not_served"
	reasonUnauthorized        = reason(transport.ReasonUnauthorized)
	reasonUnready      reason = "unready"
	reasonShutdown     reason = "shutdown"
	// reasonNotKept stands behind another reason: there is a candidate left, and
	// no body for it.
	reasonNotKept reason = "not_kept"

	// The outcome is unknown.
	reasonLost     reason = "connection_lost"
	reasonDeadline reason = "deadline"
	reasonCutOff   reason = "answer_cut_off"
	reasonSwitch   reason = "protocol_switch"

	// It is the client's doing.
	reasonClientGone reason = "client_gone"
	reasonClientBody reason = "client_body"
)

// failure is why an attempt, or all of them, brought no answer.
type failure struct {
	reason reason
	// peer is the server ID of the one tried, if any was.
	peer string
	err  error
}

func (f *failure) Error() string {
	return fmt.Sprintf("forwarding to peer %q failed (%s): %v", f.peer, f.reason, f.err)
}

func (f *failure) Unwrap() error { return f.err }

var errShutdown = errors.New("the server is shutting down")

// mayGoOn reports whether the request may be sent to another candidate.
func (r reason) mayGoOn(method string) bool {
	switch r {
	case reasonLost:
		return isSafe(method)
	case reasonDeadline, reasonShutdown, reasonBadRequest, reasonClientGone, reasonClientBody:
		return false
	}
	return true
}

// remedy says for a misconfiguration what is wrong, and what to do, and nothing
// for any other reason.
func (r reason) remedy() string { return transport.Reason(r).Remedy() }

// isSafe reports whether a request of this method may be executed twice.
func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}

// status is what the client is told. The messages are fixed and hold no address.
// A 503 carries Retry-After only when nothing was executed or the request is safe
// to repeat, and a 504 never: a client sends any method again that is answered
// with it.
func (f *failure) status(method string) *apierrors.StatusError {
	switch f.reason {
	case reasonNoRequestInfo:
		return apierrors.NewInternalError(errors.New("no RequestInfo found in the context"))
	case reasonNoUser:
		return apierrors.NewInternalError(errors.New("no user found in the context"))
	case reasonIdentity:
		return apierrors.NewInternalError(errors.New("the user can't be named to another server"))
	case reasonBadRequest:
		return apierrors.NewBadRequest("the request can't be forwarded")
	case reasonClientBody:
		return apierrors.NewBadRequest("the request's body could not be read")
	case reasonDeadline:
		return apierrors.NewTimeoutError("the server that serves this resource did not answer in time", 0)
	case reasonLost:
		if isSafe(method) {
			// It may have been executed, and may be again.
			return retryLater("the server that serves this resource did not answer")
		}
		return apierrors.NewTimeoutError("the server that serves this resource did not answer; the request may or may not have been executed", 0)
	case reasonShutdown:
		return retryLater("the server is shutting down")
	case reasonUnknown:
		return retryLater("it is not known at the moment which server serves this")
	}
	return retryLater("no server that serves this resource can be reached at the moment")
}

func retryLater(message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// Refuse answers that it is not known at the moment who serves the request.
// Nothing was executed, and the client may try again. RequestInfo comes from the
// request's context.
func Refuse(w http.ResponseWriter, r *http.Request, serializer runtime.NegotiatedSerializer) {
	// Without its names: a client makes them up, and each would be a metric for ever.
	metrics.IncForwardError(r.Context(), string(reasonUnknown), schema.GroupVersionResource{})
	refuse(w, r, serializer)
}

// RefuseMarked does the same for a peer that has forwarded the request, and tells
// it that this server does not serve it. The peer counts that.
func RefuseMarked(w http.ResponseWriter, r *http.Request, serializer runtime.NegotiatedSerializer) {
	w.Header().Set(NotServedHeader, "true")
	refuse(w, r, serializer)
}

func refuse(w http.ResponseWriter, r *http.Request, serializer runtime.NegotiatedSerializer) {
	var gv schema.GroupVersion
	if info, ok := apirequest.RequestInfoFrom(r.Context()); ok {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	klog.FromContext(r.Context()).V(4).Info("Refused a request: who serves it is not known", "method", r.Method, "path", r.URL.Path)
	refusal := &failure{reason: reasonUnknown}
	responsewriters.ErrorNegotiated(refusal.status(r.Method), serializer, gv, w, r)
}

// answerError tells the client that there is no peer's answer. It is the reverse
// proxy's error handler.
func (x *exchange) answerError(_ http.ResponseWriter, _ *http.Request, err error) {
	failed := x.failureOf(err)
	if failed.reason == reasonClientGone {
		return
	}
	if failed.reason.remedy() == "" {
		// A misconfiguration was counted where it was met.
		metrics.IncForwardError(x.ctx, string(failed.reason), x.gvr())
	}
	if failed.reason == reasonSwitch {
		// It may be too late for an answer.
		panic(http.ErrAbortHandler)
	}
	klog.FromContext(x.ctx).V(4).Info("Could not forward request", "peer", failed.peer, "reason", failed.reason, "err", failed.err)
	if failed.reason == reasonDeadline {
		// The chain's timeout filter answers at this very moment, and cuts off an
		// answer that it finds begun. This one is for a chain without it.
		<-x.forwarder.clock().After(timeoutFilterLead)
	}
	responsewriters.ErrorNegotiated(failed.status(x.client.Method), x.forwarder.Serializer, x.gvr().GroupVersion(), x.w, x.client)
}

// timeoutFilterLead is how long the chain's timeout filter has to answer a
// request whose time is up.
const timeoutFilterLead = time.Second

// failureOf says what the error means that the reverse proxy hands over: an
// attempt's, or one of its own.
func (x *exchange) failureOf(err error) *failure {
	if failed, ok := errors.AsType[*failure](err); ok {
		return failed
	}
	if x.switched != nil {
		return &failure{reason: reasonSwitch, peer: x.peer.ServerID, err: err}
	}
	// It refuses an odd Upgrade header by itself.
	return &failure{reason: reasonBadRequest, err: err}
}
