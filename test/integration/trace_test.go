package integration

import (
	"net/http"
	"slices"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// tracer is a server's tracer, as --tracing-config-file makes one, and the spans
// that have ended.
func tracer() (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample()))), spans
}

// A kube-apiserver makes what comes a child for system:masters alone, and links
// it for anyone else. Both servers do.
func TestOneTraceLeadsFromTheClientThroughBothServers(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	tracerOfA, spansOfA := tracer()
	tracerOfB, spansOfB := tracer()
	c.ready(spec{id: "b", serves: []resource{ours()}, tracer: tracerOfB})
	a := c.ready(spec{id: "a", tracer: tracerOfA})
	a.learns(ours())
	for _, test := range []struct {
		client        *client
		trace, parent string
		child         bool
	}{
		{a.admin(), "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", true},
		{a.as("alice"), "0af7651916cd43dd8448eb211c80319d", "b7ad6b7169203332", false},
	} {
		test.client.want(http.StatusOK, http.MethodGet, ours().path("default"), "", "Traceparent", "00-"+test.trace+"-"+test.parent+"-01")
		atA := serverSpan(t, spansOfA, test.parent)
		forward := ended(t, spansOfA, "the forward", func(s tracetest.SpanStub) bool {
			return s.Name == "Forward to a peer" && s.SpanContext.TraceID() == atA.SpanContext.TraceID()
		})
		atB := serverSpan(t, spansOfB, forward.SpanContext.SpanID().String())
		for _, span := range []tracetest.SpanStub{atA, atB} {
			if got := span.SpanContext.TraceID().String() == test.trace; got != test.child || span.Parent.IsValid() != test.child {
				t.Errorf("%s of trace %s has the parent %s", span.Name, span.SpanContext.TraceID(), span.Parent.SpanID())
			}
		}
	}
}

// serverSpan returns the span by which a server answers a request, which follows
// from the one with that ID.
func serverSpan(t *testing.T, spans *tracetest.InMemoryExporter, from string) tracetest.SpanStub {
	t.Helper()
	return ended(t, spans, "a server's span that follows from "+from, func(s tracetest.SpanStub) bool {
		linked := slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool { return l.SpanContext.SpanID().String() == from })
		return s.SpanKind == trace.SpanKindServer && (linked || s.Parent.SpanID().String() == from)
	})
}

// ended waits for a span: an answer comes before its span ends.
func ended(t *testing.T, spans *tracetest.InMemoryExporter, what string, is func(tracetest.SpanStub) bool) tracetest.SpanStub {
	t.Helper()
	var found tracetest.SpanStub
	eventually(t, what, func() bool {
		all := spans.GetSpans()
		i := slices.IndexFunc(all, is)
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}
