package serve

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"peerproxy.internal/pkg/serve/forward"
)

// markedFor returns a writer for the local chain's answer to a peer's request.
// With notServed, a 404 or 405 tells the peer that this server does not serve
// the resource at all: it may ask another. Any other answer is one, for
// instance that of a custom resource that was defined a moment ago; marked, it
// would be asked for twice. Whatever comes from behind the local chain, from a
// pod or an extension server, can't set the marker.
func markedFor(w http.ResponseWriter, notServed bool) http.ResponseWriter {
	return responsewriter.WrapForHTTP1Or2(&markedWriter{ResponseWriter: w, notServed: notServed})
}

type markedWriter struct {
	http.ResponseWriter
	notServed, wrote bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *markedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *markedWriter) WriteHeader(code int) {
	w.wrote = true
	w.Header().Del(forward.NotServedHeader)
	if w.notServed && (code == http.StatusNotFound || code == http.StatusMethodNotAllowed) {
		w.Header().Set(forward.NotServedHeader, "true")
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *markedWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}
