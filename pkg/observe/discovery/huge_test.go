package discovery

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/snapshot"
)

// A peer's poller pays for its size, not who publishes: also once nothing has
// changed.
func TestAFetchedDocumentIsIndexed(t *testing.T) {
	resources := make([]string, 100_000)
	for i := range resources {
		resources[i] = fmt.Sprintf(`{"resource":"r%d","verbs":["get"]}`, i)
	}
	huge := strings.Replace(body("huge.k8s.io", "RESOURCE"), `{"resource":"RESOURCE","verbs":["get"]}`, strings.Join(resources, ","), 1)
	b := server(func(r *http.Request) *http.Response {
		switch {
		case r.Header.Get("If-None-Match") != "":
			return answerWith(304, "", "", "")
		case r.URL.Path == "/api":
			return good(r)
		}
		return answerWith(200, v2, `"huge"`, huge)
	})
	var document *snapshot.Document
	for _, when := range []string{"first", "unchanged"} {
		var err error
		if document, err = b.fetch(t.Context(), document, clock.RealClock{}); err != nil {
			t.Fatal(when, err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s := snapshot.New(snapshot.Content{Peers: []*snapshot.Peer{{ServerID: "b", Document: document}}})
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: a snapshot of it takes %d bytes", when, got)
		}
		if got := s.Route(snapshot.Resource{Group: "huge.k8s.io", Version: "v1", Resource: "r99999"}, "get").Kind; got != snapshot.Peers {
			t.Errorf("%s: its last resource is %v", when, got)
		}
	}
}
