package document

import (
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSameAnswerAsUpstream compares status, body, tag and type with those of
// Kubernetes' own handler over the same members.
func TestSameAnswerAsUpstream(t *testing.T) {
	more := append(manyGroups(3), testGroup(3, "gizmos"))
	for _, members := range []struct {
		name  string
		lists []groups
	}{
		{"nothing", []groups{nil}},
		{"one server", []groups{manyGroups(2)}},
		{"three servers", []groups{manyGroups(3), more, {testGroup(1, "extras", "widgets")}}},
	} {
		s, snap, handler := New(), snapshotOf(members.lists...), upstream(members.lists...)
		for _, test := range []struct {
			name    string
			headers []string
		}{
			{"JSON", []string{"Accept", acceptJSON}},
			{"indented JSON", []string{"Accept", acceptJSON + ";pretty=1"}},
			{"JSON for people", []string{"Accept", acceptJSON, "User-Agent", "curl/8"}},
			{"YAML", []string{"Accept", acceptYAML}},
			{"protobuf", []string{"Accept", acceptProtobuf}},
			{"the second choice", []string{"Accept", "text/html," + acceptProtobuf + ";q=0.5," + acceptJSON + ";q=0.4"}},
		} {
			t.Run(members.name+", "+test.name, func(t *testing.T) {
				r := newRequest("GET", "/apis", test.headers...)
				want, got := httptest.NewRecorder(), serve(t, s, snap, r)
				handler.ServeHTTP(want, r)
				if got.Code != want.Code {
					t.Errorf("got %d, upstream says %d", got.Code, want.Code)
				}
				if diff := cmp.Diff(want.Body.String(), got.Body.String()); diff != "" {
					t.Errorf("body (-upstream +ours):\n%s", diff)
				}
				for _, name := range []string{"Etag", "Content-Type", "Cache-Control", "Content-Encoding"} {
					if diff := cmp.Diff(want.Header()[name], got.Header()[name]); diff != "" {
						t.Errorf("%s (-upstream +ours):\n%s", name, diff)
					}
				}
				conditional := newRequest("GET", "/apis", append(test.headers, "If-None-Match", want.Header().Get("Etag"))...)
				if got := serve(t, s, snap, conditional); got.Code != 304 || got.Body.Len() > 0 {
					t.Errorf("got %d and %d bytes for upstream's tag, want 304", got.Code, got.Body.Len())
				}
			})
		}
	}
}
