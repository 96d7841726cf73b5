package document

import (
	"fmt"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"

	"peerproxy.internal/pkg/snapshot"
)

// discard is a response writer that costs nothing.
type discard struct {
	header http.Header
	bytes  int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     { d.bytes = 0 }
func (d *discard) Flush()              {}
func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// representations are headers to ask with, by name.
func representations(etag string) []struct {
	name    string
	headers []string
} {
	return []struct {
		name    string
		headers []string
	}{
		{"JSON", []string{"Accept", acceptJSON}},
		{"JSON-gzip", []string{"Accept", acceptJSON, "Accept-Encoding", "gzip"}},
		{"protobuf", []string{"Accept", acceptProtobuf}},
		{"304", []string{"Accept", acceptJSON, "If-None-Match", etag}},
	}
}

// BenchmarkServe answers requests for a document of 300 groups that is built,
// beside upstream's handler.
func BenchmarkServe(b *testing.B) {
	metrics.Register()
	lists := []groups{manyGroups(300), manyGroups(300)}
	s, snap, stock := New(), snapshotOf(lists...), upstream(lists...)
	ours := handler(s, snap)
	etag := serve(b, s, snap, newRequest("GET", "/apis", "Accept", acceptJSON)).Header().Get("Etag")
	for _, asked := range representations(etag) {
		r := newRequest("GET", "/apis", asked.headers...)
		b.Run(asked.name, func(b *testing.B) { benchmark(b, ours, r) })
		b.Run(asked.name+"/upstream", func(b *testing.B) { benchmark(b, stock, r) })
	}
}

func benchmark(b *testing.B, handler http.Handler, r *http.Request) {
	b.ReportAllocs()
	w := &discard{}
	for b.Loop() {
		w.header = http.Header{}
		handler.ServeHTTP(w, r)
	}
	b.ReportMetric(float64(w.bytes), "body-bytes")
}

// BenchmarkRebuild answers the first request after a change of three documents
// of 300 groups.
func BenchmarkRebuild(b *testing.B) {
	s := New()
	var snaps []*snapshot.Snapshot
	for i := range 2 {
		snaps = append(snaps, snapshotOf(manyGroups(300), manyGroups(300), manyGroups(301+i)))
	}
	for _, asked := range representations("*") {
		b.Run(asked.name, func(b *testing.B) {
			r := newRequest("GET", "/apis", asked.headers...)
			request, _ := s.Parse(r)
			n := 0
			benchmark(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.Serve(w, r, request, s.Look(snaps[n%2], request))
				n++
			}), r)
		})
	}
}

// benchSizes are clusters: with as many groups as kube-apiserver has when all is
// on and more, without and with many custom resources.
var benchSizes = []struct {
	name            string
	customResources int
}{
	{"70-groups", 0},
	{"70-groups-2000-CRDs", 2000},
}

// clusterOf is a snapshot of three servers that serve the same: 70 groups of two
// versions with four resources, and custom resources, ten to a group, of which
// the last has some more resources.
func clusterOf(customResources, more int) *snapshot.Snapshot {
	var list groups
	for i := range 70 {
		group := testGroup(i, "widgets", "gadgets", "gizmos", "doodads")
		group.Versions = append(group.Versions, group.Versions[0])
		group.Versions[1].Version = "v1beta1"
		list = append(list, group)
	}
	excluded := excluding()
	for i := range customResources / 10 {
		var names []string
		for j := range 10 {
			names = append(names, fmt.Sprintf("custom%d", j))
		}
		for j := range more {
			if i == customResources/10-1 {
				names = append(names, fmt.Sprintf("more%d", j))
			}
		}
		list = append(list, testGroup(100+i, names...))
		for _, name := range names {
			excluded.Resources[versionOf(100+i).WithResource(name)] = time.Time{}
		}
	}
	if customResources == 0 {
		for j := range more {
			list[0].Versions[0].Resources = append(list[0].Versions[0].Resources, testGroup(0, fmt.Sprintf("more%d", j)).Versions[0].Resources...)
		}
	}
	content := snapshot.Content{Excluded: excluded, Ready: true}
	for _, id := range []string{"a", "b", "c"} {
		// Servers send documents of their own, which share no memory.
		copied := (&apidiscoveryv2.APIGroupDiscoveryList{Items: list}).DeepCopy().Items
		doc := &snapshot.Document{ServerID: id, Core: snapshot.List{ETag: "core"}, Groups: snapshot.List{ETag: fmt.Sprint(customResources, more), Items: copied}}
		if id == "a" {
			content.Local = doc
			continue
		}
		content.Peers = append(content.Peers, &snapshot.Peer{ServerID: id, Document: doc})
	}
	return snapshot.New(content)
}

// BenchmarkServeLegacy answers requests for documents that are built, beside
// upstream's handlers of the same content.
func BenchmarkServeLegacy(b *testing.B) {
	for _, size := range benchSizes {
		s, snap := New(), clusterOf(size.customResources, 0)
		for _, path := range []string{"/apis", "/apis/" + testGroup(7).Name, "/apis/" + testGroup(7).Name + "/v1"} {
			request, _ := s.Parse(newRequest("GET", path))
			stock := upstreamLegacy(path, s.Look(snap, request).document.content.object())
			etag := serve(b, s, snap, newRequest("GET", path, "Accept", "application/json")).Header().Get("Etag")
			for _, asked := range []struct {
				name    string
				headers []string
			}{
				{"JSON", []string{"Accept", "application/json"}},
				{"JSON-gzip", []string{"Accept", "application/json", "Accept-Encoding", "gzip"}},
				{"protobuf", []string{"Accept", "application/vnd.kubernetes.protobuf"}},
				{"304", []string{"Accept", "application/json", "If-None-Match", etag}},
			} {
				r := newRequest("GET", path, asked.headers...)
				name := fmt.Sprintf("%s/%s/%s", size.name, [...]string{"groups", "group", "resources"}[strings.Count(path, "/")-1], asked.name)
				b.Run(name, func(b *testing.B) { benchmark(b, handler(s, snap), r) })
				b.Run(name+"/upstream", func(b *testing.B) { benchmark(b, stock, r) })
			}
		}
	}
}

// upstreamLegacy is upstream's handler of a document. That of the groups is
// without what upstream does to make them of its APIServices.
func upstreamLegacy(path string, obj runtime.Object) http.Handler {
	codecs := newCodecs(false)
	switch obj := obj.(type) {
	case *metav1.APIGroup:
		return discovery.NewAPIGroupHandler(codecs, *obj)
	case *metav1.APIResourceList:
		return discovery.NewAPIVersionHandler(codecs, versionOf(7), discovery.APIResourceListerFunc(func() []metav1.APIResource { return obj.APIResources }))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		responsewriters.WriteObjectNegotiated(codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, r, http.StatusOK, obj.DeepCopyObject(), false)
	})
}

// BenchmarkChange answers the first request after one resource came or went,
// while all documents have been asked for before.
func BenchmarkChange(b *testing.B) {
	for _, size := range benchSizes {
		snaps := []*snapshot.Snapshot{clusterOf(size.customResources, 1), clusterOf(size.customResources, 2)}
		paths := slices.DeleteFunc(legacyPaths(snaps[0]), func(path string) bool { return path == "/api/v1" })
		b.Run(size.name+"/aggregated", func(b *testing.B) { benchmarkChange(b, snaps, []string{"/apis"}, acceptJSON) })
		b.Run(size.name+"/legacy-groups", func(b *testing.B) { benchmarkChange(b, snaps, []string{"/apis"}, "application/json") })
		b.Run(size.name+"/legacy-walk", func(b *testing.B) { benchmarkChange(b, snaps, paths, "application/json") })
	}
}

func benchmarkChange(b *testing.B, snaps []*snapshot.Snapshot, paths []string, accept string) {
	s := New()
	walk(b, s, snaps[0], slices.DeleteFunc(legacyPaths(snaps[0]), func(path string) bool { return path == "/api/v1" }))
	var requests []*http.Request
	for _, path := range paths {
		requests = append(requests, newRequest("GET", path, "Accept", accept, "Accept-Encoding", "gzip"))
	}
	b.ReportAllocs()
	w := &discard{}
	for n := 0; b.Loop(); n++ {
		h := handler(s, snaps[n%2])
		for _, r := range requests {
			w.header = http.Header{}
			h.ServeHTTP(w, r)
		}
	}
}

// BenchmarkKept tells what is kept for a client that walks legacy discovery in
// JSON, compressed.
func BenchmarkKept(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			snap := clusterOf(size.customResources, 0)
			paths := slices.DeleteFunc(legacyPaths(snap), func(path string) bool { return path == "/api/v1" })
			var kept uint64
			for b.Loop() {
				before := heap()
				s := New()
				for _, path := range paths {
					serve(b, s, snap, newRequest("GET", path, "Accept", "application/json", "Accept-Encoding", "gzip"))
				}
				kept = heap() - before
				goruntime.KeepAlive(s)
			}
			b.ReportMetric(float64(kept)/1024, "KiB-kept")
			b.ReportMetric(float64(len(paths)), "documents")
		})
	}
}

func heap() uint64 {
	goruntime.GC()
	goruntime.GC()
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
