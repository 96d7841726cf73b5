package document

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/serve/represent"
	"peerproxy.internal/pkg/snapshot"
)

const paths = snapshot.PathAPIs + 1

// Server serves merged documents. It may be used by any number of goroutines.
type Server struct {
	// Immutable.
	codecs     serializer.CodecFactory
	formats    []format
	compresses bool
	merge      func([]snapshot.Source) []apidiscoveryv2.APIGroupDiscovery

	// merged and legacy are the latest documents by path of aggregated discovery,
	// alone is the latest legacy discovery of this server alone.
	merged [paths]atomic.Pointer[merged]
	legacy [paths]atomic.Pointer[legacy]
	alone  atomic.Pointer[legacy]
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

// The values of headers of answers. Upstream's Vary, of aggregated discovery
// alone, names Accept only.
var (
	vary         = []string{"Accept, Accept-Encoding"}
	cacheControl = []string{"public"}
)

// Serve answers a request with a document that is [Listed]. Aggregated
// discovery counts in the metrics where upstream counts it; upstream does not
// count legacy discovery.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, request Request, answer Answer) {
	if request.Kind != Aggregated {
		s.serve(w, r, request, answer.document)
		return
	}
	metrics.InstrumentHandlerFunc(http.MethodGet, "", "", "", metricsPath(request.Path), "", metrics.APIServerComponent, false, "",
		func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, request, answer.document) })(w, r)
}

// metricsPath is the subresource under which upstream counts requests.
func metricsPath(path snapshot.Path) string { return path.String()[1:] }

func (s *Server) serve(w http.ResponseWriter, r *http.Request, request Request, doc *document) {
	if request.format < 0 {
		mediaTypes, _ := negotiation.MediaTypesForSerializer(s.codecs)
		responsewriters.ErrorNegotiated(negotiation.NewNotAcceptableError(mediaTypes), s.codecs, groupVersion, w, r)
		return
	}
	etag, b, err := s.answer(r, request, doc)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	setCaching(w.Header(), request.Kind, etag)
	if b == nil {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if audited(r.Context()) {
		audit.LogResponseObject(r.Context(), doc.content.object(), groupVersion, s.codecs)
	}
	write(w, r, b, s.formats[request.format].contentType(request.Kind))
}

// answer returns the entity tag and what to send, nil for nothing but a 304.
func (s *Server) answer(r *http.Request, request Request, doc *document) (etag []string, b *body, err error) {
	if doc.etag != nil {
		if etag, err = doc.etag(); err != nil || represent.Matches(r.Header, etag[0]) {
			return etag, nil, err
		}
	}
	b, err = s.body(doc, request.format, s.compresses && represent.AcceptsGzip(r.Header))
	if err != nil {
		return nil, nil, err
	}
	if doc.etag == nil && represent.Matches(r.Header, b.etag[0]) {
		return b.etag, nil, nil
	}
	return b.etag, b, nil
}

// audited reports whether the audit policy wants what is answered.
func audited(ctx context.Context) bool {
	event := audit.AuditContextFrom(ctx)
	return event != nil && !event.GetEventLevel().Less(auditinternal.LevelRequestResponse)
}

// setCaching sets the headers about caching, in the place of those that the
// chain has set. The values are shared between answers: no one changes a value
// in its place. Clients ask again for legacy documents each time, as the chain
// wants of all that it does not know.
func setCaching(h http.Header, kind Kind, etag []string) {
	h["Etag"] = etag
	h["Vary"] = vary
	if kind == Aggregated {
		h["Cache-Control"] = cacheControl
	}
}

func write(w http.ResponseWriter, r *http.Request, b *body, contentType []string) {
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
