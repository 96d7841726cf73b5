package peerproxy

import (
	"net/http"
	"sync/atomic"
)

// localHandler is the handler that the proxy wraps, which is not there yet when
// the observer that asks it is made.
type localHandler struct{ next atomic.Pointer[http.Handler] }

func (h *localHandler) set(next http.Handler) { h.next.Store(&next) }

// ServeHTTP implements http.Handler. It is asked by the observer alone.
func (h *localHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next := h.next.Load()
	if next == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	(*next).ServeHTTP(w, r)
}
