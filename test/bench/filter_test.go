// Package bench measures this project's hot paths beside upstream's, in the
// same run: `make bench`.
package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	upstream "k8s.io/apiserver/pkg/util/peerproxy"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"peerproxy.internal/pkg/serve"
	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/snapshot"
)

// groups are as many as a default kube-apiserver serves, and more.
const groups = 70

// discovered is the document of a server: each group has two versions with
// four resources that have a status.
func discovered() *snapshot.List {
	verbs := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	var list []apidiscoveryv2.APIGroupDiscovery
	for g := range groups {
		group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("group%d.k8s.io", g)}}
		for _, version := range []string{"v1", "v1beta1"} {
			v := apidiscoveryv2.APIVersionDiscovery{Version: version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
			for r := range 4 {
				v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{
					Resource:     fmt.Sprintf("resource%d", r),
					ResponseKind: &metav1.GroupVersionKind{Kind: "Resource"},
					Scope:        apidiscoveryv2.ScopeNamespace,
					Verbs:        verbs,
					Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status", ResponseKind: &metav1.GroupVersionKind{Kind: "Resource"}, Verbs: []string{"get", "patch", "update"}}},
				})
			}
			group.Versions = append(group.Versions, v)
		}
		list = append(list, group)
	}
	return snapshot.NewList("bench", "", list)
}

// content is what a server knows in a cluster of three that serve the same.
func content() snapshot.Content {
	c := snapshot.Content{Local: &snapshot.Document{ServerID: "a", Groups: *discovered()}, Ready: true}
	for _, id := range []string{"b", "c"} {
		c.Peers = append(c.Peers, &snapshot.Peer{ServerID: id, Document: &snapshot.Document{ServerID: id, Groups: *discovered()}})
	}
	return c
}

// fixed is one snapshot for ever.
type fixed struct {
	serve.Snapshots
	snapshot *snapshot.Snapshot
}

func (f fixed) Load() *snapshot.Snapshot { return f.snapshot }

// localHit is a request for a resource that the server itself has.
func localHit() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/apis/group7.k8s.io/v1/namespaces/default/resource2/x", nil)
	ctx := apirequest.WithRequestInfo(r.Context(), &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: "group7.k8s.io", APIVersion: "v1", Resource: "resource2", Namespace: "default", Name: "x",
	})
	return r.WithContext(apirequest.WithUser(ctx, &user.DefaultInfo{Name: "alice"}))
}

func BenchmarkFilterLocalHit(b *testing.B) {
	for _, filter := range []struct {
		name string
		wrap func(http.Handler) http.Handler
	}{
		{"ours", func(next http.Handler) http.Handler {
			return serve.WithPeerProxy(next, serve.Config{Snapshots: fixed{snapshot: snapshot.New(content())}, Documents: document.New()})
		}},
		{"upstream", upstreamFilter(b)},
		{"none", func(next http.Handler) http.Handler { return next }},
	} {
		served := false
		filter.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).ServeHTTP(httptest.NewRecorder(), localHit())
		if !served {
			b.Fatalf("%s does not serve the request locally", filter.name)
		}
		handler := filter.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		b.Run(filter.name, func(b *testing.B) {
			b.ReportAllocs()
			r, w := localHit(), httptest.NewRecorder()
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
		b.Run(filter.name+"-parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r, w := localHit(), httptest.NewRecorder()
				for pb.Next() {
					handler.ServeHTTP(w, r)
				}
			})
		})
	}
}

// upstreamFilter is upstream's filter of a server with the same document, in
// sync.
func upstreamFilter(b *testing.B) func(http.Handler) http.Handler {
	b.Helper()
	list := discovered()
	body, err := json.Marshal(apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    list.Items,
	})
	if err != nil {
		b.Fatal(err)
	}
	loopback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		if r.URL.Path == "/api" {
			w.Write([]byte(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}`))
			return
		}
		w.Write(body)
	}))
	b.Cleanup(loopback.Close)
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	proxy, err := upstream.NewPeerProxyHandler("a", "apiserver.kubernetes.io/identity=kube-apiserver",
		factory.Coordination().V1().Leases(), nil, scheme.Codecs.WithoutConversion(), &rest.Config{Host: loopback.URL}, &transport.Config{})
	if err != nil {
		b.Fatal(err)
	}
	stop := make(chan struct{})
	b.Cleanup(func() { close(stop); factory.Shutdown() })
	for _, step := range []func() error{
		func() error {
			return proxy.RegisterCRDInformerHandlers(factory.Core().V1().ConfigMaps().Informer(), nil)
		},
		func() error {
			return proxy.RegisterAPIServiceInformerHandlers(factory.Core().V1().Secrets().Informer(), nil)
		},
		func() error { factory.Start(stop); return proxy.RunLocalDiscoveryCacheSync(stop) },
		func() error { return proxy.WaitForCacheSync(stop) },
	} {
		if err := step(); err != nil {
			b.Fatal(err)
		}
	}
	return proxy.WrapHandler
}
