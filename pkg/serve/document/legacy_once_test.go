package document

import (
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	"peerproxy.internal/pkg/snapshot"
)

// walk asks for all legacy documents of a snapshot, in two formats.
func walk(t testing.TB, s *Server, snap *snapshot.Snapshot, paths []string) {
	t.Helper()
	for _, path := range paths {
		for _, accept := range []string{"application/json", "application/yaml"} {
			serve(t, s, snap, newRequest("GET", path, "Accept", accept, "Accept-Encoding", "gzip"))
		}
	}
}

// snapshotWith is a cluster of two servers with 20 groups, of which the peer has
// the resources in the third.
func snapshotWith(etag string, resources ...string) *snapshot.Snapshot {
	list := manyGroups(20)
	other := slices.Clone(list)
	other[2] = testGroup(2, resources...)
	return snapshot.New(snapshot.Content{
		Local: &snapshot.Document{ServerID: "a", Groups: snapshot.List{ETag: "a", Items: list}},
		Peers: []*snapshot.Peer{{ServerID: "b", Document: &snapshot.Document{ServerID: "b", Groups: snapshot.List{ETag: etag, Items: other}}}},
		Ready: true,
	})
}

func TestOnlyWhatChangedIsEncodedAnew(t *testing.T) {
	s, built := newCounted()
	first := snapshotWith("1", "widgets", "gadgets")
	paths := slices.DeleteFunc(legacyPaths(first), func(path string) bool { return path == "/api/v1" })
	encoded := func(snap *snapshot.Snapshot) int32 {
		before := built.encoded.Load()
		walk(t, s, snap, paths)
		return built.encoded.Load() - before
	}
	if got, want := encoded(first), int32(2*len(paths)); got != want {
		t.Errorf("encoded %d times for %d documents in two formats", got, len(paths))
	}
	for _, test := range []struct {
		name string
		snap *snapshot.Snapshot
		want int32
	}{
		{"nothing changed", first, 0},
		{"the same in another snapshot", snapshotWith("1", "widgets", "gadgets"), 0},
		{"the same in other documents", snapshotWith("2", "widgets", "gadgets"), 0},
		{"a resource more", snapshotWith("3", "widgets", "gadgets", "gizmos"), 2},
		{"and gone again", first, 2},
	} {
		if got := encoded(test.snap); got != test.want {
			t.Errorf("%s: encoded %d times, want %d", test.name, got, test.want)
		}
	}
	third := "/apis/" + testGroup(2).Name + "/v1"
	if got := serve(t, s, snapshotWith("3", "widgets", "gadgets", "gizmos"), newRequest("GET", third, "Accept", "application/json")).Body.String(); !strings.Contains(got, "gizmos") {
		t.Errorf("after a change: %s", got)
	}
}

func TestAChangeOfTheOwnGroupsIsEncodedAnewAlone(t *testing.T) {
	s, built := newCounted()
	for _, test := range []struct {
		name string
		snap *snapshot.Snapshot
		want int32
	}{
		{"at first", snapshotOf(manyGroups(5)), 2},
		{"nothing changed", snapshotOf(manyGroups(5), manyGroups(7)), 0},
		{"a group more", snapshotOf(manyGroups(6)), 1},
	} {
		before := built.encoded.Load()
		for _, path := range []string{"/apis", "/apis/" + testGroup(0).Name} {
			r := newRequest("GET", path, "Accept", "application/json;profile=nopeer")
			request, _ := s.Parse(r)
			s.Serve(httptest.NewRecorder(), r, request, s.LookAlone(test.snap, request))
		}
		if got := built.encoded.Load() - before; got != test.want {
			t.Errorf("%s: encoded %d times, want %d", test.name, got, test.want)
		}
	}
	if built.merged.Load() != 0 {
		t.Error("merged for what one server lists")
	}
}

func TestConcurrentFirstLegacyRequestsBuildOnce(t *testing.T) {
	s, built := newCounted()
	walk(t, s, snapshotWith("1", "widgets"), []string{"/apis"})
	merged, encoded := built.merged.Load(), built.encoded.Load()
	snap := snapshotWith("2", "gizmos")
	path := "/apis/" + testGroup(2).Name + "/v1"
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 16 {
		wg.Go(func() {
			<-start
			walk(t, s, snap, []string{path})
		})
	}
	close(start)
	wg.Wait()
	if built.merged.Load() != merged+1 || built.encoded.Load() != encoded+2 {
		t.Errorf("merged %d times and encoded %d times, want 1 and 2", built.merged.Load()-merged, built.encoded.Load()-encoded)
	}
}

// TestNothingIsKeptOfOldContent wants the garbage collector to find all that
// belongs to an older snapshot, but for bodies that are still true.
func TestNothingIsKeptOfOldContent(t *testing.T) {
	s := New()
	changed, same, members, body := traces(t, s)
	serve(t, s, snapshotWith("2", "widgets"), newRequest("GET", "/apis", "Accept", "application/json"))
	runtime.GC()
	runtime.GC()
	if changed.Value() != nil || same.Value() != nil || members.Value() != nil {
		t.Errorf("kept: the changed document: %t, the same one: %t, the member's own: %t", changed.Value() != nil, same.Value() != nil, members.Value() != nil)
	}
	if body.Value() == nil {
		t.Error("a body that is still true was let go")
	}
	runtime.KeepAlive(s)
}

// traces serves all documents of a snapshot, and returns some of what that
// leaves: two documents, a member's, and a body.
func traces(t *testing.T, s *Server) (changed, same weak.Pointer[document], members weak.Pointer[snapshot.Document], body weak.Pointer[representation]) {
	snap := snapshotWith("1", "widgets", "gadgets")
	walk(t, s, snap, slices.DeleteFunc(legacyPaths(snap), func(path string) bool { return path == "/api/v1" }))
	resources := s.legacy[snapshot.PathAPIs].Load().documents().resources
	unchanged := resources[versionOf(3)].document
	return weak.Make(resources[versionOf(2)].document), weak.Make(unchanged), weak.Make(snap.Peers()[0].Document), weak.Make(unchanged.made[0].Load())
}

func TestLegacyRequestsAndNewSnapshotsAtOnce(t *testing.T) {
	s := New()
	path := "/apis/" + testGroup(2).Name + "/v1"
	var snaps []*snapshot.Snapshot
	var want []string
	for i, resource := range []string{"widgets", "gadgets", "gizmos"} {
		snaps = append(snaps, snapshotWith(string(rune('1'+i)), resource))
		want = append(want, serve(t, New(), snaps[i], newRequest("GET", path, "Accept", "application/json")).Body.String())
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for j := range 30 {
				n := (i + j) % len(snaps)
				if got := serve(t, s, snaps[n], newRequest("GET", path, "Accept", "application/json")).Body.String(); got != want[n] {
					t.Errorf("snapshot %d got another's document", n)
				}
			}
		})
	}
	wg.Wait()
}
