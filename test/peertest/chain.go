package peertest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// AuditID is the audit ID that [Chain] gives to every request.
const AuditID = types.UID("audit-of-the-chain")

// NewRequestInfo parses a request as a kube-apiserver does.
func NewRequestInfo(t testing.TB, r *http.Request) *apirequest.RequestInfo {
	t.Helper()
	factory := apirequest.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	info, err := factory.NewRequestInfo(r)
	if err != nil {
		t.Errorf("no RequestInfo: %v", err)
	}
	return info
}

// Chain does what the innermost filter of an apiserver finds done: RequestInfo,
// user and audit context are in the request's context, and the response has the
// headers that the chain sets. A nil user leaves the context without one.
func Chain(t testing.TB, u user.Info, next http.Handler) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.WithAuditContext(r.Context())
		audit.WithAuditID(ctx, AuditID)
		ctx = apirequest.WithRequestInfo(ctx, NewRequestInfo(t, r))
		if u != nil {
			ctx = apirequest.WithUser(ctx, u)
		}
		w.Header().Set("Audit-Id", string(AuditID))
		w.Header().Set("Cache-Control", "no-cache, private")
		w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "local")
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Front starts a TLS server that speaks HTTP/2 and HTTP/1.1, as an apiserver
// does, and returns it; its Client method makes a client for it.
func Front(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// Codecs is a serializer for Status objects, in JSON, YAML, protobuf and CBOR.
func Codecs() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{})
	return serializer.NewCodecFactory(scheme)
}
