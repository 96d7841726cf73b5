package openapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/serve/represent"
	"peerproxy.internal/pkg/snapshot"
)

// Subresources under which stock servers count requests for OpenAPI v3; those
// for v2 they do not count.
const (
	subresourceIndex    = "openapi/v3"
	subresourceDocument = "openapi/v3/"
)

// exchange is one request and its answer.
type exchange struct {
	*Server
	ctx     context.Context
	w       http.ResponseWriter
	r       *http.Request
	snap    *snapshot.Snapshot
	index   *index
	request Request
	local   http.Handler
}

// send answers with a document, and counts that under a subresource unless it is
// empty.
func (x *exchange) send(d *document, subresource string) {
	if subresource == "" {
		x.write(x.w, d)
		return
	}
	instrumented := metrics.InstrumentHandlerFunc(http.MethodGet, "", "", "", subresource, "", metrics.APIServerComponent, false, "",
		func(w http.ResponseWriter, _ *http.Request) { x.write(w, d) })
	instrumented(x.w, x.r)
}

func (x *exchange) write(w http.ResponseWriter, d *document) {
	c, err := d.content()
	if err != nil {
		x.giveUp(err, merge.IndexEntry{})
		return
	}
	compressed := 0
	if x.compresses && represent.AcceptsGzip(x.r.Header) {
		compressed = 1
	}
	b, err := d.bodies[x.request.format][compressed]()
	if err != nil {
		x.giveUp(err, x.index.entries[x.request.name])
		return
	}
	h := w.Header()
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Content-Type", x.contentType())
	h.Set("Etag", b.etag)
	if hash := x.hash(); hash != "" {
		if hash != c.tag {
			at := urlOf(x.request.name, c.tag)
			http.Redirect(w, x.r, at.String(), http.StatusMovedPermanently)
			return
		}
		// Source of the values: HandleGroupVersion in
		// k8s.io/kube-openapi/pkg/handler3.
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", x.clock.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat))
	}
	if represent.Matches(x.r.Header, b.etag) {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(b.data)))
	if b.encoding != "" {
		h.Set("Content-Encoding", b.encoding)
	}
	w.WriteHeader(http.StatusOK)
	if x.r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(b.data); err != nil {
		klog.FromContext(x.ctx).V(4).Info("Client left while it was sent an OpenAPI document", "path", x.r.URL.Path, "err", err)
	}
}

func (x *exchange) contentType() string {
	if x.request.path == pathV2 {
		return typesV2.contents[x.request.format]
	}
	return typesV3.contents[x.request.format]
}

// hash is the hash of the document that the client wants.
func (x *exchange) hash() string {
	if x.request.path != prefixV3 || x.r.URL.RawQuery == "" {
		return ""
	}
	return x.r.URL.Query().Get(hashOption)
}

// refuse answers that the document can't be had now.
func (x *exchange) refuse() {
	err := apierrors.NewServiceUnavailable("the servers that have this document can't be reached at the moment")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	responsewriters.ErrorNegotiated(err, x.serializer, schema.GroupVersion{}, x.w, x.r)
}

// giveUp answers when a document can't be merged, or not written in the form
// that is asked for: with this server's own where it has one, under no hash.
func (x *exchange) giveUp(err error, entry merge.IndexEntry) {
	klog.FromContext(x.ctx).V(2).Info("OpenAPI can't be merged, this server's own is served", "path", x.r.URL.Path, "reason", err.Error())
	if x.request.path == prefixV3 && !slices.ContainsFunc(entry.Sources, x.index.isOwn) {
		x.refuse()
		return
	}
	plain := x.r.Clone(x.ctx)
	query := plain.URL.Query()
	query.Del(hashOption)
	plain.URL = &url.URL{Path: plain.URL.Path, RawPath: plain.URL.RawPath, RawQuery: query.Encode()}
	x.local.ServeHTTP(x.w, plain)
}
