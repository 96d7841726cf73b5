package serve

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"peerproxy.internal/pkg/serve/forward"
	"peerproxy.internal/pkg/transport"
)

// markedFor returns a writer for the local chain's answer to a peer's request.
// With notServed, a 404 or 405 tells the peer that this server does not serve
// the resource at all: it may ask another. Any other answer is one, for
// instance that of a custom resource that was defined a moment ago; marked, it
// would be asked for twice. Whatever comes from behind the local chain, from a
// pod or an extension server, can't set the marker.
func markedFor(w http.ResponseWriter, notServed bool) http.ResponseWriter {
	return withHeaders(w, func(h http.Header, code int) {
		h.Del(forward.NotServedHeader)
		if notServed && (code == http.StatusNotFound || code == http.StatusMethodNotAllowed) {
			h.Set(forward.NotServedHeader, "true")
		}
	})
}

// named returns a writer for the answer to a peer that asks for itself, for a
// document. It says whose answer it is, and no one behind the local chain can say
// so in its place: an address that is known for one server's may lead to another.
// The connection then ends with the answer: the next one may lead elsewhere.
func (f *filter) named(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	asked := r.Header.Get(transport.ServerHeader)
	r.Header.Del(transport.ServerHeader)
	return withHeaders(w, func(h http.Header, _ int) {
		h.Set(transport.ServerHeader, f.ServerID)
		if asked != "" && asked != f.ServerID {
			h.Set("Connection", "close")
		}
	})
}

// withHeaders returns a writer that lets set have the last word on an answer's
// headers.
func withHeaders(w http.ResponseWriter, set func(h http.Header, code int)) http.ResponseWriter {
	return responsewriter.WrapForHTTP1Or2(&headerWriter{ResponseWriter: w, set: set})
}

type headerWriter struct {
	http.ResponseWriter
	set   func(h http.Header, code int)
	wrote bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *headerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *headerWriter) WriteHeader(code int) {
	w.wrote = true
	w.set(w.Header(), code)
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *headerWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}
