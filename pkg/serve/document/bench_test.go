package document

import (
	"net/http"
	"testing"

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
	ours := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, _ := s.Parse(r)
		s.Serve(w, r, snap, request)
	})
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
				s.Serve(w, r, snaps[n%2], request)
				n++
			}), r)
		})
	}
}
