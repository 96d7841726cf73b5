package document

import (
	"errors"
	"net/http"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/snapshot"
)

// Server serves merged documents. It may be used by any number of goroutines.
type Server struct {
	// Immutable.
	codecs     serializer.CodecFactory
	formats    []format
	compresses bool
	merge      func([]snapshot.Source) []apidiscoveryv2.APIGroupDiscovery

	// documents are the latest ones by path.
	documents [snapshot.PathAPIs + 1]atomic.Pointer[document]
}

// New returns a server. It offers CBOR and compression where the feature gates
// CBORServingAndStorage and APIResponseCompression are on now.
func New() *Server {
	codecs := newCodecs(utilfeature.DefaultFeatureGate.Enabled(genericfeatures.CBORServingAndStorage))
	return &Server{
		codecs:     codecs,
		formats:    newFormats(codecs),
		compresses: utilfeature.DefaultFeatureGate.Enabled(genericfeatures.APIResponseCompression),
		merge:      merge.Discovery,
	}
}

// The values of the headers that every answer has. Upstream names Accept only.
var (
	vary         = []string{"Accept, Accept-Encoding"}
	cacheControl = []string{"public"}
)

// Serve answers a request that [Server.Parse] understood with the merged
// document of the snapshot. It counts in the metrics where upstream's discovery
// counts.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, snap *snapshot.Snapshot, request Request) {
	metrics.InstrumentHandlerFunc(http.MethodGet, "", "", "", metricsPath(request.Path), "", metrics.APIServerComponent, false, "",
		func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, snap, request) })(w, r)
}

// metricsPath is the subresource under which upstream counts requests.
func metricsPath(path snapshot.Path) string { return path.String()[1:] }

func (s *Server) serve(w http.ResponseWriter, r *http.Request, snap *snapshot.Snapshot, request Request) {
	doc := s.document(request.Path, snap.View(request.Path))
	c, err := doc.content()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if matches(r.Header, c.etag[0]) {
		setCaching(w.Header(), c)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	bodies := doc.plain
	if s.compresses && acceptsGzip(r.Header) {
		bodies = doc.compressed
	}
	b, err := bodies[request.format]()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	audit.LogResponseObject(r.Context(), &apidiscoveryv2.APIGroupDiscoveryList{Items: c.groups}, groupVersion, s.codecs)
	setCaching(w.Header(), c)
	write(w, r, b, s.formats[request.format].contentType)
}

// document returns the document of a view. The first to ask for a new content
// puts it in the place of the old one.
func (s *Server) document(path snapshot.Path, view snapshot.View) *document {
	for {
		latest := s.documents[path].Load()
		if latest != nil && latest.key == view.Key {
			aggregated.PeerAggregatedCacheHitsCounter.Inc()
			return latest
		}
		next := s.newDocument(view)
		if s.documents[path].CompareAndSwap(latest, next) {
			aggregated.PeerAggregatedCacheMissesCounter.Inc()
			return next
		}
	}
}

// setCaching sets the headers about caching, in the place of those that the
// chain has set. The values are shared between answers: no one changes a value
// in its place.
func setCaching(h http.Header, c content) {
	h["Etag"] = c.etag
	h["Vary"] = vary
	h["Cache-Control"] = cacheControl
}

func write(w http.ResponseWriter, r *http.Request, b body, contentType []string) {
	h := w.Header()
	h["Content-Type"] = contentType
	h["Content-Length"] = b.length
	if b.encoding != nil {
		h["Content-Encoding"] = b.encoding
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(b.data); err != nil {
		klog.FromContext(r.Context()).V(4).Info("Client left while it was sent a merged document", "path", r.URL.Path, "err", err)
	}
}

// errUnavailable is all that clients are told; the log has the cause.
var errUnavailable = errors.New("the merged document can't be written")

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	klog.FromContext(r.Context()).Error(err, "Merged document can't be served", "path", r.URL.Path)
	responsewriters.ErrorNegotiated(apierrors.NewInternalError(errUnavailable), s.codecs, groupVersion, w, r)
}
