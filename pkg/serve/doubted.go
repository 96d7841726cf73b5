package serve

import (
	"maps"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"peerproxy.internal/pkg/serve/forward"
)

// serveOrRefuse hands a request on to the local chain. Where this answers that it
// does not serve the resource at all, another member may: nothing was executed,
// and the client is told to try again.
func (f *filter) serveOrRefuse(w http.ResponseWriter, r *http.Request) {
	before := w.Header().Clone()
	doubted := &doubtedWriter{ResponseWriter: w}
	f.next.ServeHTTP(responsewriter.WrapForHTTP1Or2(doubted), r)
	header := w.Header()
	if !forward.SaysNotServed(doubted.code, header.Get("Content-Type"), doubted.body, f.Serializer.SupportedMediaTypes()) {
		doubted.release()
		return
	}
	clear(header)
	maps.Copy(header, before)
	forward.Refuse(w, r, f.Serializer)
}

// doubtedWriter holds a 404 or 405 back, as long as it is short and not flushed.
// Everything else passes at once.
type doubtedWriter struct {
	http.ResponseWriter
	// code and body are what is held back, the code zero if nothing is.
	code int
	body []byte
	// passes is true once the answer's header was let through.
	passes bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *doubtedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *doubtedWriter) WriteHeader(code int) {
	switch {
	case w.code != 0:
		return // there is a status already
	case !w.passes && (code == http.StatusNotFound || code == http.StatusMethodNotAllowed):
		w.code = code
		return
	}
	w.passes = w.passes || code >= http.StatusOK
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *doubtedWriter) Write(p []byte) (int, error) {
	if w.code != 0 && len(w.body)+len(p) <= forward.MaxPeeked {
		w.body = append(w.body, p...)
		return len(p), nil
	}
	w.release()
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *doubtedWriter) Flush() {
	w.release()
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// release lets through what is held back, and all that follows.
func (w *doubtedWriter) release() {
	code, body := w.code, w.body
	w.code, w.body, w.passes = 0, nil, true
	if code == 0 {
		return
	}
	w.ResponseWriter.WriteHeader(code)
	if len(body) > 0 {
		_, _ = w.ResponseWriter.Write(body) // the client has left
	}
}
