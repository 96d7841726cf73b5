package openapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"peerproxy.internal/pkg/snapshot"
)

// Config is what a [Server] needs. All fields are required.
type Config struct {
	// Local makes what carries requests to this server's own handler, in process.
	// That may carry one at a time: OpenAPI v2, which takes the handler a second to
	// make after a change, has one of its own.
	Local func() http.RoundTripper
	// Peers carries requests to the host in their URL, in this server's name.
	Peers http.RoundTripper
	// Serializer negotiates the encoding of errors.
	Serializer runtime.NegotiatedSerializer
	// Clock is the source of time.
	Clock clock.Clock
}

// Server serves merged OpenAPI documents. It may be used by any number of
// goroutines.
type Server struct {
	serializer runtime.NegotiatedSerializer
	clock      clock.Clock
	compresses bool

	life   *life
	local  localServer
	peers  peers
	merged mergedV3
	custom customV3
	v2     mergedV2

	// building is held by who makes the next index.
	building sync.Mutex
	latest   atomic.Pointer[index]
}

// New returns a server, which asks no peer before it runs. It compresses where
// the feature gate APIResponseCompression is on now.
func New(c Config) *Server {
	s := &Server{
		serializer: c.Serializer,
		clock:      c.Clock,
		compresses: utilfeature.DefaultFeatureGate.Enabled(genericfeatures.APIResponseCompression),
		local:      localServer{origin: origin{host: "local", transport: c.Local()}, clock: c.Clock},
		v2:         mergedV2{local: origin{host: "local", transport: c.Local()}},
		life:       newLife(),
		merged:     mergedV3{documents: map[documentKey]*documentV3{}},
		custom:     customV3{documents: lru.New(keptCustom)},
	}
	s.peers.transport, s.peers.clock, s.peers.life = c.Peers, c.Clock, s.life
	s.peers.members, s.peers.documents = map[memberKey]*member{}, map[documentKey]*kept{}
	return s
}

// Run lets the server ask peers until ctx ends, and returns when all that it
// started is gone. To be called once. Without it documents are made of what this
// server has.
func (s *Server) Run(ctx context.Context) { s.life.run(ctx) }

// Serve answers a request that [Server.Parse] understood with the merged
// document of the snapshot. What is this server's own as it stands, and what
// can't be merged, is left to local.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, snap *snapshot.Snapshot, request Request, local http.Handler) {
	index, err := s.index(r.Context(), snap)
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("The own OpenAPI could not be read", "reason", err.Error())
	}
	if index == nil {
		local.ServeHTTP(w, r)
		return
	}
	x := exchange{Server: s, ctx: r.Context(), w: w, r: r, snap: snap, index: index, request: request, local: local}
	switch request.path {
	case pathV2:
		x.serveV2()
	case pathV3:
		x.send(index.document, subresourceIndex)
	default:
		x.serveV3(r.Context())
	}
}

// forget drops what an index does not need.
func (s *Server) forget(next *index) {
	s.merged.keep(next)
	if len(next.v2) == 0 {
		s.v2.drop()
	}
	s.peers.keep(next)
}
