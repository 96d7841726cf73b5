package forward

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"peerproxy.internal/pkg/transport"
)

// rewrite makes the request that goes to a peer. It differs from the client's
// in hop-by-hop headers, identity, the loop header, the audit ID and
// X-Forwarded-For alone. The Host stays the client's, too.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	out.URL.Scheme = "https"
	// The reverse proxy cleans the query and drops these headers.
	out.URL.RawQuery = in.URL.RawQuery
	out.URL.Opaque = opaquePath(in.URL)
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := in.Header[name]; ok {
			out.Header[name] = values
		}
	}
	appendForwardedFor(out.Header, in.RemoteAddr)
	out.Header.Set(transport.LoopHeader, "true")
	if id, ok := audit.AuditIDFrom(x.ctx); ok && id != "" {
		out.Header.Set(auditinternal.HeaderAuditID, string(id))
	}
	hideIdempotencyKey(out.Header)
	joinTrace(x.ctx, out.Header)
	if x.unfit == nil {
		x.unfit = x.setIdentity(x.ctx, out.Header)
	}
}

func (x *exchange) setIdentity(ctx context.Context, h http.Header) *failure {
	user, ok := apirequest.UserFrom(ctx)
	if !ok || user == nil {
		return &failure{reason: reasonNoUser}
	}
	if err := x.forwarder.Transport.SetIdentity(h, user); err != nil {
		return &failure{reason: reasonIdentity, err: err}
	}
	return nil
}

// joinTrace makes the peer's span follow the one of the forward. Where this server
// traces nothing the client's headers stay as they are.
func joinTrace(ctx context.Context, h http.Header) {
	if !trace.SpanContextFromContext(ctx).IsRemote() {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// opaquePath returns the path in a form that net/url will not escape anew, or ""
// where it would not anyway.
func opaquePath(u *url.URL) string {
	if u.RawPath == "" || u.RawPath == u.EscapedPath() {
		return ""
	}
	// Neither can stand there: the one would be taken for a host, the other for
	// the end of a path.
	if strings.HasPrefix(u.RawPath, "//") || strings.Contains(u.RawPath, " ") {
		return ""
	}
	return u.RawPath
}

// appendForwardedFor adds the client's address to the list of those that the
// request has come by.
func appendForwardedFor(h http.Header, remoteAddr string) {
	client, _, err := net.SplitHostPort(remoteAddr)
	if err != nil {
		return
	}
	if prior := h["X-Forwarded-For"]; len(prior) > 0 {
		client = strings.Join(prior, ", ") + ", " + client
	}
	h.Set("X-Forwarded-For", client)
}

// hideIdempotencyKey spells the headers by which net/http takes a POST for
// repeatable in lower case: the peer reads them all the same, net/http does not,
// and the client's word is not enough to execute a request twice.
func hideIdempotencyKey(h http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
}

// outgoing is the request as the peer that was picked gets it.
func (x *exchange) outgoing(req *http.Request) (*http.Request, error) {
	body, err := x.body.open()
	if err != nil {
		return nil, err
	}
	// A context without the hook by which the reverse proxy passes 1xx answers
	// on: the apiserver's timeout filter takes a 103 for the final status.
	out := req.WithContext(httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { x.reused.Store(info.Reused) },
	}))
	target := *req.URL
	target.Host = x.peer.Address
	out.URL = &target
	out.Body = body
	if body != nil {
		out.GetBody = x.body.open
	}
	return out, nil
}
