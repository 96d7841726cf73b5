package serve

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/serve/forward"
	"peerproxy.internal/pkg/serve/openapi"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
)

// freshEnough is how old the own document may be for a merged one to be made
// of it: a custom resource must show as soon as it would without the filter. To
// find a document unchanged takes some ten microseconds.
const freshEnough = 10 * time.Millisecond

// longestRefresh bounds how long a request waits for a newer snapshot. The
// first one follows the first request by some milliseconds, because the server
// listens before it runs its hooks; anyAge waits for that alone.
const (
	longestRefresh = 2 * time.Second
	anyAge         = time.Duration(math.MaxInt64)
)

// Snapshots is where the filter gets its view of the cluster.
type Snapshots interface {
	// Load returns the current snapshot, never nil.
	Load() *snapshot.Snapshot
	// Refresh makes sure that what this server serves was read less than maxAge
	// ago and is in the current snapshot.
	Refresh(ctx context.Context, maxAge time.Duration) error
}

// Forwarder sends requests to peers; forward.Forwarder does.
type Forwarder interface {
	// Forward answers the request with what one of the candidates says.
	Forward(w http.ResponseWriter, r *http.Request, candidates []*snapshot.Peer)
}

// Config is what the filter needs. Every field without "optional" is required.
type Config struct {
	// ServerID is this server's own. Peers are told it, clients are not.
	ServerID  string
	Snapshots Snapshots
	// Trusted reports whether a request came over a connection that only a peer
	// can have made. It is asked about requests with the loop header alone.
	Trusted func(*http.Request) bool
	// LeadsBack, optional, reports whether a request that is trusted was sent by
	// this very server: some peer's address is its own. It is refused, whatever it
	// is for.
	LeadsBack func(*http.Request) bool
	// Forwarder sends requests to peers.
	Forwarder Forwarder
	// Documents serves merged discovery.
	Documents *document.Server
	// OpenAPI serves merged OpenAPI.
	OpenAPI *openapi.Server
	// Serializer negotiates the encoding of errors.
	Serializer runtime.NegotiatedSerializer
}

// WithPeerProxy returns a handler that answers, or forwards to a peer, what the
// local chain alone would get wrong, and hands everything else to next. It
// needs the request's info and user in the context.
func WithPeerProxy(next http.Handler, c Config) http.Handler {
	return &filter{Config: c, next: next}
}

type filter struct {
	Config
	next http.Handler
}

// ServeHTTP implements http.Handler.
func (f *filter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := apirequest.RequestInfoFrom(r.Context())
	if !found {
		responsewriters.ErrorNegotiated(apierrors.NewInternalError(errors.New("no request info in the context")), f.Serializer, schema.GroupVersion{}, w, r)
		return
	}
	proxied := f.takeLoopHeader(r)
	if proxied && f.LeadsBack != nil && f.LeadsBack(r) {
		// The next connection may lead elsewhere.
		w.Header().Set("Connection", "close")
		f.act(w, r, proxied, refuseMarked, nil)
		return
	}
	if info.IsResourceRequest {
		f.serveResource(w, r, info, proxied)
		return
	}
	f.servePath(w, r, proxied)
}

// takeLoopHeader reports whether a peer forwarded the request. The header goes
// in any case: behind this filter the aggregator passes headers on to servers
// that would believe it.
func (f *filter) takeLoopHeader(r *http.Request) (proxied bool) {
	if _, set := r.Header[transport.LoopHeader]; !set {
		return false
	}
	proxied = f.Trusted(r)
	r.Header.Del(transport.LoopHeader)
	return proxied
}

// serveResource answers a request for a resource.
func (f *filter) serveResource(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo, proxied bool) {
	resource := snapshot.Resource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource}
	current := f.snapshot(r, proxied)
	route := current.Route(resource, info.Verb)
	// An answer from a pod or a service behind tells nothing about this server.
	if route.Kind == snapshot.Local || current.Blind() && info.Subresource == "proxy" {
		f.serveLocal(w, r, proxied)
		return
	}
	f.act(w, r, proxied, decideResource(originOf(r, proxied), route.Kind, current.Blind()), route.Candidates)
}

// servePath answers a request that is not for a resource. Only documents that
// can be merged are of interest.
func (f *filter) servePath(w http.ResponseWriter, r *http.Request, proxied bool) {
	if proxied {
		w = f.named(w, r)
	}
	if asked, ok := f.OpenAPI.Parse(r); ok {
		f.serveOpenAPI(w, r, asked, proxied)
		return
	}
	asked, ok := f.Documents.Parse(r)
	if !ok {
		f.serveLocal(w, r, proxied)
		return
	}
	of := decideFacts(originOf(r, proxied), asked.Alone, asked.Kind)
	if of == ofChain {
		f.serveLocal(w, r, proxied)
		return
	}
	if current := f.Snapshots.Load(); current.Blind() {
		f.act(w, r, proxied, decideBlind(of, current.Elsewhere(asked.Path, asked.GroupVersion)), nil)
		return
	}
	found := f.look(r, of, asked)
	if action := decideDocument(of, found.Standing); action != serveDocument {
		f.act(w, r, proxied, action, nil)
		return
	}
	f.Documents.Serve(w, r, asked, found)
}

// serveOpenAPI answers a request for an OpenAPI document.
func (f *filter) serveOpenAPI(w http.ResponseWriter, r *http.Request, asked openapi.Request, proxied bool) {
	current := f.Snapshots.Load()
	action := decideOpenAPI(originOf(r, proxied), asked.Alone || current.Blind(), current.Ready())
	if action != serveDocument {
		f.act(w, r, proxied, action, nil)
		return
	}
	f.OpenAPI.Serve(w, r, current, asked, f.next)
}

// look returns the document asked for, made of someone's facts. Until these are
// known it is in doubt.
func (f *filter) look(r *http.Request, of facts, asked document.Request) document.Answer {
	if of == ofAll && !f.Snapshots.Load().Ready() {
		return document.Answer{Standing: document.InDoubt}
	}
	current := f.refreshed(r.Context(), freshEnough)
	switch {
	case current.Local() == nil:
		return document.Answer{Standing: document.InDoubt}
	case of == ofOwn:
		return f.Documents.LookAlone(current, asked)
	}
	return f.Documents.Look(current, asked)
}

// snapshot returns the current snapshot. While there is none that tells what
// this server serves, what it does serve would be refused, so clients wait for
// one. The own client does not: the first snapshot may need its answers.
func (f *filter) snapshot(r *http.Request, proxied bool) *snapshot.Snapshot {
	current := f.Snapshots.Load()
	if current.Local() != nil || current.Blind() || originOf(r, proxied) == fromSelf {
		return current
	}
	return f.refreshed(r.Context(), anyAge)
}

// refreshed returns a snapshot that holds what this server served less than
// maxAge ago, or the current one if that can't be had soon.
func (f *filter) refreshed(ctx context.Context, maxAge time.Duration) *snapshot.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, longestRefresh)
	defer cancel()
	if err := f.Snapshots.Refresh(ctx, maxAge); err != nil {
		klog.FromContext(ctx).V(2).Info("What this server serves can't be read, the last good answer counts", "reason", err.Error())
	}
	return f.Snapshots.Load()
}

// act carries out what was decided.
func (f *filter) act(w http.ResponseWriter, r *http.Request, proxied bool, action action, candidates []*snapshot.Peer) {
	switch action {
	case serveLocallyMarked:
		f.next.ServeHTTP(markedFor(w, true), r)
	case serveOrRefuse:
		f.serveOrRefuse(w, r)
	case forwardToPeer:
		f.Forwarder.Forward(w, r, candidates)
	case refuseMarked:
		forward.RefuseMarked(w, r, f.Serializer)
	case refuse:
		forward.Refuse(w, r, f.Serializer)
	case denyDocument:
		absent := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, false)
		responsewriters.ErrorNegotiated(absent, f.Serializer, schema.GroupVersion{}, w, r)
	default:
		f.serveLocal(w, r, proxied)
	}
}

// serveLocal hands the request on to the local chain.
func (f *filter) serveLocal(w http.ResponseWriter, r *http.Request, proxied bool) {
	if proxied {
		w = markedFor(w, false)
	}
	f.next.ServeHTTP(w, r)
}

// originOf tells where a request comes from.
func originOf(r *http.Request, proxied bool) origin {
	if proxied {
		return fromPeer
	}
	u, found := apirequest.UserFrom(r.Context())
	if found && u.GetName() == user.APIServerUser && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return fromSelf
	}
	return fromClient
}
