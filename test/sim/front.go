package sim

import (
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// lie is how a server treats its peers.
type lie string

// The lies. The empty one is the truth.
const (
	// lieFails answers discovery with 500.
	lieFails lie = "its discovery fails"
	// lieGarbage answers discovery with what is none.
	lieGarbage lie = "its discovery is garbage"
	// lieEndless answers discovery with bytes that never end.
	lieEndless lie = "its discovery is endless"
	// lieSilent never answers.
	lieSilent lie = "it is silent"
	// lieNotFound answers everything with 404, lieStranger with 401.
	lieNotFound lie = "it finds nothing"
	lieStranger lie = "it trusts no peer"
)

var lies = []lie{lieFails, lieGarbage, lieEndless, lieSilent, lieNotFound, lieStranger}

var infos = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// serve answers what comes over the network: requests of peers.
func (l *life) serve(w http.ResponseWriter, r *http.Request) {
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	l.world.ledger.arrive(r.Header.Get(requestHeader), from, l.id)
	if l.lies(w, r) || l.refuses(w, r) {
		return
	}
	response, ok, err := l.world.pki.authenticate.AuthenticateRequest(r)
	if err != nil || !ok {
		status(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", nil)
		return
	}
	l.handler.ServeHTTP(w, r.WithContext(apirequest.WithUser(r.Context(), response.User)))
}

// startingHeader is on what a server refuses because it is not ready.
const startingHeader = "X-Sim-Starting"

// refuses answers some requests of peers with what a server says that is not
// ready: its authorizer knows no roles yet, a handler is not there yet.
func (l *life) refuses(w http.ResponseWriter, r *http.Request) bool {
	id := r.Header.Get(requestHeader)
	select {
	case <-l.isReady:
		return false
	default:
	}
	if id == "" {
		return false // discovery
	}
	w.Header().Set(startingHeader, l.id)
	switch id[len(id)-1] {
	case '0', '5':
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden: not yet", nil)
	case '1':
		notServed(w)
	case '2':
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found: not yet", &metav1.StatusDetails{Name: "one"})
	case '3':
		w.Header().Set("Retry-After", "30")
		status(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "not yet", nil)
	case '4':
		status(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "not allowed: not yet", nil)
	case '6':
		status(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", nil)
	default:
		w.Header().Del(startingHeader)
		return false
	}
	return true
}

// serveClient answers a client's request.
func (l *life) serveClient(w http.ResponseWriter, r *http.Request) {
	l.world.ledger.arrive(r.Header.Get(requestHeader), theClient, l.id)
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}}
	l.handler.ServeHTTP(w, r.WithContext(apirequest.WithUser(r.Context(), alice)))
}

// wrap puts a handler behind those parts of a handler chain that it needs.
func (l *life) wrap(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			l.world.violate("%s: no request info for %s: %v", l.id, r.URL, err)
			return
		}
		ctx := audit.WithAuditContext(r.Context())
		audit.WithAuditID(ctx, types.UID("audit-"+r.Header.Get(requestHeader)))
		ctx = apirequest.WithRequestInfo(ctx, info)
		ctx = apirequest.WithServerShutdownSignal(ctx, l)
		w.Header().Set("Cache-Control", "no-cache, private")
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// lies answers a peer's request with a lie, if the server lies about it.
func (l *life) lies(w http.ResponseWriter, r *http.Request) bool {
	told := l.world.lieOf(l.id)
	document := r.URL.Path == "/api" || r.URL.Path == "/apis"
	switch {
	case told == lieSilent:
		l.wait(r, 0)
	case told == lieNotFound:
		notServed(w)
	case told == lieStranger:
		status(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", nil)
	case told == lieFails && document:
		w.WriteHeader(http.StatusInternalServerError)
	case told == lieGarbage && document:
		w.Header().Set("Content-Type", aggregatedType)
		_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","items":[{"metadata":`)
	case told == lieEndless && document:
		w.Header().Set("Content-Type", aggregatedType)
		_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","fill":"`)
		for l.wait(r, 100*time.Millisecond) {
			if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
				return true
			}
		}
	default:
		return false
	}
	return true
}

// wait waits for a while, or for ever if that is 0, and reports whether the
// request and the server go on.
func (l *life) wait(r *http.Request, d time.Duration) bool {
	var timer <-chan time.Time
	if d > 0 {
		timer = time.After(d)
	}
	select {
	case <-timer:
		return true
	case <-r.Context().Done():
	case <-l.gone:
	}
	return false
}
