package forward

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/serve/health"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
)

// Forwarder sends requests to peers. Set its fields before the first use; after
// that it is safe for concurrent use, and must not be copied.
type Forwarder struct {
	// Transport reaches the peers and tells them the user. Required.
	Transport *transport.Transport

	// Serializer encodes the answers of this server's own. Required.
	Serializer runtime.NegotiatedSerializer

	// Health knows the suspects, is told of more, and of peers that answer.
	// Required.
	Health *health.Tracker

	// Stopping is closed when the server that this is part of stops. Watches end
	// then, at the latest; they end before if the request's context has a shutdown
	// signal. Nil is never closed.
	Stopping <-chan struct{}

	// Random returns a number from 0 up to but not including n. Nil stands for
	// math/rand/v2's IntN.
	Random func(n int) int

	// Clock is the source of time. Nil stands for the real one.
	Clock clock.Clock

	inFlight inFlight
	kept     atomic.Int64 // bytes of requests' bodies
	held     atomic.Int64 // bytes of answers
	buffers  bufferPool
	troubles transport.Troubles
}

// Forward sends a request to one of the candidates and writes the answer to w.
// The candidates are in order of their state, the best first; the slice is not
// changed. RequestInfo, user, audit ID and shutdown signal come from the
// request's context.
//
// Forward returns when the answer, a watch or an upgraded connection has ended.
// It panics with [http.ErrAbortHandler] to cut off an answer that the peer has
// cut off.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, candidates []*snapshot.Peer) {
	// A forwarded watch has to hold no seat here.
	utilflowcontrol.RequestDelegated(r.Context())
	ctx, span := tracing.Start(r.Context(), "Forward to a peer")
	defer span.End(noLogThreshold)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	x := &exchange{forwarder: f, client: r, ctx: ctx, w: w, left: slices.Clone(candidates)}
	defer x.end()
	if info, ok := apirequest.RequestInfoFrom(ctx); ok {
		x.info = info
	} else {
		x.info = &apirequest.RequestInfo{}
		x.unfit = &failure{reason: reasonNoRequestInfo}
	}
	if x.watches() {
		go f.endAtShutdown(ctx, cancel)
	}
	defer x.recoverIfClientGone()
	proxy := &httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      x,
		ModifyResponse: x.modifyResponse,
		ErrorHandler:   x.answerError,
		FlushInterval:  -1,
		BufferPool:     &f.buffers,
		ErrorLog:       silent,
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// silent is the reverse proxy's log: read errors are logged where they are met,
// with the request's logger.
var silent = log.New(io.Discard, "", 0)

// exchange is one request on its way to a peer and back.
type exchange struct {
	forwarder *Forwarder
	// client is the request as the client sent it.
	client *http.Request
	// ctx ends with the client's request or, for a watch, with this server.
	ctx  context.Context
	w    http.ResponseWriter
	info *apirequest.RequestInfo

	// unfit is why the request can't be sent at all.
	unfit *failure
	// left are the candidates that were not tried.
	left []*snapshot.Peer
	// peer is the one that has the request now.
	peer *snapshot.Peer
	body *replay
	// reused is whether the connection that the request was given last had been
	// used before.
	reused atomic.Bool
	// switched is the connection on which the peer has agreed to another protocol.
	switched io.Closer
}

// end frees what the exchange holds.
func (x *exchange) end() {
	x.release()
	x.body.close()
	if x.switched != nil {
		// Where the reverse proxy fails to switch it leaves the connection open.
		_ = x.switched.Close()
	}
}

func (x *exchange) watches() bool { return x.info.Verb == "watch" }

// mayComeFromBehind reports whether the answer may come from behind the peer,
// from a pod or a service: then nothing in it but the mark speaks for the peer.
func (x *exchange) mayComeFromBehind() bool { return x.info.Subresource == "proxy" }

func (x *exchange) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: x.info.APIGroup, Version: x.info.APIVersion, Resource: x.info.Resource}
}

// recoverIfClientGone keeps the panic by which the reverse proxy ends an answer
// to itself when there is no one who could hear of it.
func (x *exchange) recoverIfClientGone() {
	if !x.clientGone() {
		return
	}
	v := recover()
	if err, _ := v.(error); v != nil && !errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
}

func (x *exchange) clientGone() bool { return errors.Is(x.client.Context().Err(), context.Canceled) }

// endAtShutdown ends a forwarded watch when this server shuts down, as a local
// one ends. There is a signal only where the server gives watches time to end; a
// local one without lasts as long as its connection.
func (f *Forwarder) endAtShutdown(ctx context.Context, cancel context.CancelCauseFunc) {
	var shuttingDown <-chan struct{}
	if signal := apirequest.ServerShutdownSignalFrom(ctx); signal != nil {
		shuttingDown = signal.ShuttingDown()
	}
	select {
	case <-shuttingDown:
		cancel(errShutdown)
	case <-f.Stopping:
		cancel(errShutdown)
	case <-ctx.Done():
	}
}

// noLogThreshold keeps the span from being logged for its length alone: a watch
// is long.
const noLogThreshold = time.Duration(1<<63 - 1)

// bufferPool keeps the buffers through which answers are copied.
type bufferPool struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (p *bufferPool) Get() []byte {
	if buffer, ok := p.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

func (p *bufferPool) Put(buffer []byte) { p.pool.Put((*[bufferSize]byte)(buffer)) }
