package forward

import (
	"net/http"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/tracing"

	"peerproxy.internal/test/peertest"
)

const (
	clientTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	// laterTrace is of a later version of the standard, with more to it.
	laterTrace = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-more"
)

// traced puts a handler behind the filter by which a kube-apiserver traces, and
// returns the spans that it makes.
func traced(next http.Handler) (http.Handler, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	return filters.WithTracing(next, provider), spans
}

// asNamed is who a peer takes the user for.
func asNamed(next http.Handler) http.Handler {
	return handler(func(w http.ResponseWriter, r *http.Request) {
		u := &user.DefaultInfo{Name: r.Header.Get("X-Remote-User"), Groups: r.Header["X-Remote-Group"]}
		next.ServeHTTP(w, r.WithContext(apirequest.WithUser(r.Context(), u)))
	})
}

// ask sends a client's request with a trace to a server A that forwards behind
// the given filter.
func ask(t *testing.T, w *world, u user.Info, parent string, filter func(http.Handler) http.Handler) {
	t.Helper()
	front := peertest.Front(t, peertest.Chain(t, u, filter(handler(func(rw http.ResponseWriter, r *http.Request) {
		w.forwarder.Forward(rw, r, w.candidates)
	}))))
	req := w.request("GET", things, "")
	req.URL.Host = front.Listener.Addr().String()
	req.Header.Set("Traceparent", parent)
	req.Header.Set("Tracestate", "a=1,b=2")
	req.Header.Set("Baggage", "k=v;p")
	if got := w.doWith(front.Client(), req); got.code != http.StatusOK {
		t.Fatalf("got %d %s", got.code, got.body)
	}
}

// The chain of a kube-apiserver makes what comes a child only of those that it
// trusts with it, and links it otherwise. That holds at both servers.
func TestSpansAreJoinedAcrossServers(t *testing.T) {
	for _, test := range []struct {
		user    user.Info
		trusted bool
	}{
		{&user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, true},
		{alice, false},
	} {
		t.Run(test.user.GetName(), func(t *testing.T) {
			b := &peertest.Peer{ID: "b"}
			atB, spansOfB := traced(handler(func(http.ResponseWriter, *http.Request) {}))
			b.Handler = asNamed(atB)
			w := newWorld(t, b)
			var spansOfA *tracetest.InMemoryExporter
			ask(t, w, test.user, clientTrace, func(next http.Handler) (filter http.Handler) {
				filter, spansOfA = traced(next)
				return filter
			})
			var a, forward tracetest.SpanStub
			for _, span := range spansOfA.GetSpans() {
				if span.Name == "Forward to a peer" {
					forward = span
				} else {
					a = span
				}
			}
			ofB := spansOfB.GetSpans()
			if len(spansOfA.GetSpans()) != 2 || len(ofB) != 1 {
				t.Fatalf("A has made %d spans and B %d, want 2 and 1", len(spansOfA.GetSpans()), len(ofB))
			}
			if forward.Parent.SpanID() != a.SpanContext.SpanID() {
				t.Error("the forward is not part of A's request")
			}
			if got := b.Requests()[0].Header["Traceparent"]; len(got) != 1 {
				t.Errorf("B gets %q", got)
			}
			if test.trusted {
				wantChild(t, a, "b7ad6b7169203331", "0af7651916cd43dd8448eb211c80319c")
				wantChild(t, ofB[0], forward.SpanContext.SpanID().String(), "0af7651916cd43dd8448eb211c80319c")
				return
			}
			wantLinked(t, a, "b7ad6b7169203331")
			wantLinked(t, ofB[0], forward.SpanContext.SpanID().String())
		})
	}
}

func wantChild(t *testing.T, span tracetest.SpanStub, parent, traceID string) {
	t.Helper()
	if span.Parent.SpanID().String() != parent || span.SpanContext.TraceID().String() != traceID {
		t.Errorf("%s of trace %s is a child of %s, want of %s in %s", span.Name, span.SpanContext.TraceID(), span.Parent.SpanID(), parent, traceID)
	}
}

func wantLinked(t *testing.T, span tracetest.SpanStub, to string) {
	t.Helper()
	if span.Parent.IsValid() || len(span.Links) != 1 || span.Links[0].SpanContext.SpanID().String() != to {
		t.Errorf("%s has the parent %v and the links %v, want one to %s alone", span.Name, span.Parent, span.Links, to)
	}
}

// A server that traces nothing passes on what the client says.
func TestTraceOfAClientPassesAServerThatDoesNotTrace(t *testing.T) {
	for name, provider := range map[string]trace.TracerProvider{"off": nil, "no configuration": tracing.NewNoopTracerProvider()} {
		t.Run(name, func(t *testing.T) {
			b := &peertest.Peer{ID: "b"}
			w := newWorld(t, b)
			ask(t, w, alice, laterTrace, func(next http.Handler) http.Handler {
				if provider == nil {
					return next
				}
				return filters.WithTracing(next, provider)
			})
			got := b.Requests()[0].Header
			for header, want := range map[string]string{"Traceparent": laterTrace, "Tracestate": "a=1,b=2", "Baggage": "k=v;p"} {
				if values := got[header]; len(values) != 1 || values[0] != want {
					t.Errorf("%s is %q, want %q", header, values, want)
				}
			}
		})
	}
}
