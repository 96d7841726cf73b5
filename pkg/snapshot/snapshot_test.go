package snapshot

import (
	"runtime"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var checked = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// document is a server's document with the given groups.
func document(id string, groups ...apidiscoveryv2.APIGroupDiscovery) *Document {
	d := &Document{ServerID: id, Checked: checked}
	for _, g := range groups {
		if g.Name == "" {
			d.Core.Items = append(d.Core.Items, g)
			d.Core.ETag += tag(g)
		} else {
			d.Groups.Items = append(d.Groups.Items, g)
			d.Groups.ETag += tag(g)
		}
	}
	return d
}

func tag(g apidiscoveryv2.APIGroupDiscovery) string {
	t := g.Name
	for _, v := range g.Versions {
		t += "/" + v.Version
		for _, r := range v.Resources {
			t += "/" + r.Resource
		}
	}
	return t
}

func group(name, version string, resources ...apidiscoveryv2.APIResourceDiscovery) apidiscoveryv2.APIGroupDiscovery {
	return apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: version, Resources: resources}},
	}
}

func resource(name string, verbs ...string) apidiscoveryv2.APIResourceDiscovery {
	return apidiscoveryv2.APIResourceDiscovery{Resource: name, Verbs: verbs}
}

func withSub(r apidiscoveryv2.APIResourceDiscovery, name string, verbs ...string) apidiscoveryv2.APIResourceDiscovery {
	r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: name, Verbs: verbs})
	return r
}

func TestRoute(t *testing.T) {
	nodes := resource("csinodes", "get", "list")
	local := document("a",
		group("", "v1", resource("pods", "get", "list", "create")),
		group("storage.k8s.io", "v1", nodes))
	newer := document("b",
		group("", "v1", resource("pods", "get", "list", "create", "deletecollection")),
		group("storage.k8s.io", "v1", withSub(nodes, "status", "get", "update")),
		group("example.com", "v1", resource("widgets", "get")))
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	owned := &Exclusions{Grace: time.Minute, Resources: map[schema.GroupVersionResource]time.Time{widgets: {}}}
	deleted := &Exclusions{Grace: time.Minute, Resources: map[schema.GroupVersionResource]time.Time{widgets: checked}}
	later := *newer
	later.Checked = checked.Add(time.Minute)
	peer := func(state State, id string) *Peer { return &Peer{ServerID: id, State: state, Document: newer} }

	status := Resource{"storage.k8s.io", "v1", "csinodes", "status"}
	for _, tc := range []struct {
		name       string
		content    Content
		resource   Resource
		verb       string
		want       Kind
		candidates []string
	}{
		{"what this server serves is Local", Content{Local: local, Peers: []*Peer{peer(StateServing, "b")}}, Resource{"", "v1", "pods", ""}, "list", Local, nil},
		{"a verb that only a peer has is its", Content{Local: local, Peers: []*Peer{peer(StateServing, "b")}}, Resource{"", "v1", "pods", ""}, "deletecollection", Peers, []string{"b"}},
		{"a subresource that only a peer has is its", Content{Local: local, Peers: []*Peer{peer(StateServing, "b")}}, status, "update", Peers, []string{"b"}},
		{"a verb that no one has is Absent", Content{Local: local, Peers: []*Peer{peer(StateServing, "b")}}, status, "delete", Absent, nil},
		{"an empty verb is Local", Content{Local: local, Peers: []*Peer{peer(StateServing, "b")}}, status, "", Local, nil},
		{"the verb proxy is Local", Content{Local: local}, Resource{"", "v1", "pods", ""}, "proxy", Local, nil},
		{"the better state comes first", Content{Local: local, Peers: []*Peer{peer(StateUnreachable, "a0"), peer(StateServing, "c"), peer(StateStarting, "b")}}, status, "get", Peers, []string{"c", "b", "a0"}},
		{"only unreachable peers have it", Content{Local: local, Peers: []*Peer{peer(StateUnreachable, "b"), peer(StateDeparted, "c")}}, status, "get", Unreachable, []string{"b", "c"}},
		{"a custom resource is never a peer's", Content{Local: local, Excluded: owned, Peers: []*Peer{peer(StateServing, "b")}}, Resource{"example.com", "v1", "widgets", ""}, "get", Local, nil},
		{"nor is a subresource of it", Content{Local: local, Excluded: owned, Unsure: true}, Resource{"example.com", "v1", "widgets", "status"}, "get", Local, nil},
		{"a deleted custom resource stays out of the documents from before", Content{Local: local, Excluded: deleted, Peers: []*Peer{peer(StateServing, "b")}}, Resource{"example.com", "v1", "widgets", ""}, "get", Absent, nil},
		{"and is in those that were checked long after", Content{Local: local, Excluded: deleted, Peers: []*Peer{peer(StateServing, "b"), {ServerID: "c", Document: &later}}}, Resource{"example.com", "v1", "widgets", ""}, "get", Peers, []string{"c"}},
		{"a blind server knows what others serve", Content{Blind: true, Peers: []*Peer{peer(StateServing, "b")}}, status, "get", Peers, []string{"b"}},
		{"and what is excluded is its own", Content{Blind: true, Excluded: owned, Peers: []*Peer{peer(StateServing, "b")}}, Resource{"example.com", "v1", "widgets", ""}, "get", Local, nil},
		{"without doubt what no one has is Absent", Content{Local: local}, Resource{"apps", "v9", "deployments", ""}, "get", Absent, nil},
		{"in doubt it is Unknown", Content{Local: local, Unsure: true}, Resource{"apps", "v9", "deployments", ""}, "get", Unknown, nil},
		{"in doubt a group that can't be built in is Absent", Content{Local: local, Unsure: true}, Resource{"example.org", "v1", "gadgets", ""}, "get", Absent, nil},
		{"in doubt what is known to be local is Local", Content{Local: local, Unsure: true}, Resource{"", "v1", "pods", ""}, "get", Local, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			route := New(tc.content).Route(tc.resource, tc.verb)
			if route.Kind != tc.want {
				t.Errorf("got %v, want %v", route.Kind, tc.want)
			}
			var got []string
			for _, peer := range route.Candidates {
				got = append(got, peer.ServerID)
			}
			if len(got) != len(tc.candidates) {
				t.Fatalf("got candidates %v, want %v", got, tc.candidates)
			}
			for i := range got {
				if got[i] != tc.candidates[i] {
					t.Errorf("got candidates %v, want %v", got, tc.candidates)
				}
			}
		})
	}
}

func TestEmptyStoreKnowsNothing(t *testing.T) {
	var store Store
	if got := store.Load().Route(Resource{"", "v1", "pods", ""}, "get").Kind; got != Unknown {
		t.Errorf("got %v, want Unknown", got)
	}
	if store.Load().Ready() {
		t.Error("the empty snapshot is ready")
	}
}

func TestRouteDoesNotAllocate(t *testing.T) {
	s := New(Content{Local: document("a", group("", "v1", resource("pods", "get")))})
	pods := Resource{"", "v1", "pods", ""}
	if got := testing.AllocsPerRun(100, func() { s.Route(pods, "get") }); got != 0 {
		t.Errorf("a look-up allocates %v times", got)
	}
}

// Law 10: a huge peer delays no one. All that depends on the size of a document
// is made once, by the one who has read it.
func TestASnapshotCostsNoMoreForHugeDocuments(t *testing.T) {
	c := ofThree(huge)
	if got := allocated(func() { New(c) }); got > 1<<20 {
		t.Errorf("a snapshot of a peer with 100000 resources takes %d bytes", got)
	}
	if got := New(c).Route(Resource{"huge.k8s.io", "v1", "resource99999", "status"}, "get"); got.Kind != Peers {
		t.Errorf("the last of them is %v", got.Kind)
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A list is the same, indexed before or when a snapshot is made of it.
func TestAListNeedNotBeIndexed(t *testing.T) {
	local := document("a", group("", "v1", resource("pods", "get")), group("apps", "v1", resource("deployments", "get")))
	indexed := &Document{ServerID: "a", Core: *NewList("core", "", local.Core.Items), Groups: *NewList("groups", "", local.Groups.Items)}
	for _, d := range []*Document{local, indexed} {
		s := New(Content{Local: d})
		for r, want := range map[Resource]Kind{{"", "v1", "pods", ""}: Local, {"apps", "v1", "deployments", ""}: Local, {"apps", "v1", "pods", ""}: Absent} {
			if got := s.Route(r, "get").Kind; got != want {
				t.Errorf("%v is %v, want %v", r, got, want)
			}
		}
	}
}

func TestExclusionsHide(t *testing.T) {
	x := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "xs"}
	deleted := checked
	grace := 5 * time.Minute
	for _, tc := range []struct {
		name     string
		excluded *Exclusions
		checked  time.Time
		want     bool
	}{
		{"nothing is excluded", nil, deleted, false},
		{"the owner lives", &Exclusions{Grace: grace, Resources: map[schema.GroupVersionResource]time.Time{x: {}}}, deleted.Add(time.Hour), true},
		{"an aggregated API hides all of its group-version", &Exclusions{Grace: grace, GroupVersions: map[schema.GroupVersion]time.Time{x.GroupVersion(): {}}}, deleted, true},
		{"a document from before the deletion", &Exclusions{Grace: grace, Resources: map[schema.GroupVersionResource]time.Time{x: deleted}}, deleted.Add(-time.Hour), true},
		{"a document checked within the grace", &Exclusions{Grace: grace, Resources: map[schema.GroupVersionResource]time.Time{x: deleted}}, deleted.Add(grace - 1), true},
		{"a document checked after the grace", &Exclusions{Grace: grace, Resources: map[schema.GroupVersionResource]time.Time{x: deleted}}, deleted.Add(grace), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.excluded.Hides(x, tc.checked); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestViewLeavesExcludedContentToTheLocalDocument(t *testing.T) {
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	custom := group("example.com", "v1", resource("widgets", "get"))
	both := group("example.com", "v1", resource("widgets", "get"), resource("gadgets", "get"))
	s := New(Content{
		Local:    document("b", custom),
		Peers:    []*Peer{{ServerID: "c", Document: document("c", custom)}, {ServerID: "a", Document: document("a", both)}},
		Excluded: &Exclusions{Resources: map[schema.GroupVersionResource]time.Time{widgets: {}}},
	})
	sources := s.View(PathAPIs).Sources
	if len(sources) != 3 || sources[0].ServerID != "a" || sources[1].ServerID != "b" || sources[2].ServerID != "c" {
		t.Fatalf("the sources are not in the order of server IDs: %v", sources)
	}
	if got := sources[0].Own.Items; len(got) != 1 || len(got[0].Versions[0].Resources) != 1 || got[0].Versions[0].Resources[0].Resource != "gadgets" {
		t.Errorf("a peer brings %v, want gadgets alone", got)
	}
	if got := sources[1].Own.Items; len(got) != 1 {
		t.Errorf("the local document lost its custom resource: %v", got)
	}
	if got := sources[2].Own.Items; len(got) != 0 {
		t.Errorf("a group with nothing left stayed: %v", got)
	}
	if len(both.Versions[0].Resources) != 2 || len(sources[0].Whole.Items[0].Versions[0].Resources) != 2 {
		t.Error("a peer's document was changed")
	}
}

// An aggregated API whose backend is down is a version without resources. A
// kept document must not bring it back.
func TestViewLeavesOutAnEmptyAggregatedAPI(t *testing.T) {
	gv := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	peer := &Peer{ServerID: "b", Document: document("b", group(gv.Group, gv.Version))}
	content := Content{Local: document("a"), Peers: []*Peer{peer}}
	if got := New(content).View(PathAPIs).Sources[1].Own.Items; len(got) != 1 {
		t.Errorf("an empty version that nothing owns is gone: %v", got)
	}
	content.Excluded = &Exclusions{GroupVersions: map[schema.GroupVersion]time.Time{gv: {}}}
	if got := New(content).View(PathAPIs).Sources[1].Own.Items; len(got) != 0 {
		t.Errorf("an aggregated API is taken from a peer: %v", got)
	}
}

func TestViewKeyFollowsWhatIsExcludedOfTheOwnDocument(t *testing.T) {
	own := document("a", group("example.com", "v1", resource("widgets", "get")))
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	free := New(Content{Local: own}).View(PathAPIs).Key
	for name, excluded := range map[string]*Exclusions{
		"a custom resource": {Resources: map[schema.GroupVersionResource]time.Time{widgets: {}}},
		"an aggregated API": {GroupVersions: map[schema.GroupVersion]time.Time{widgets.GroupVersion(): {}}},
	} {
		if New(Content{Local: own, Excluded: excluded}).View(PathAPIs).Key == free {
			t.Errorf("%s: the key is the same", name)
		}
	}
}

func TestViewKeyFollowsContent(t *testing.T) {
	a, b := document("a", group("apps", "v1")), document("b", group("apps", "v1"), group("batch", "v1"))
	key := func(c Content) string { return New(c).View(PathAPIs).Key }
	base := key(Content{Local: a, Peers: []*Peer{{ServerID: "b", Document: b}}})
	recheckedB := *b
	recheckedB.Checked = checked.Add(time.Minute)
	if got := key(Content{Local: a, Peers: []*Peer{{ServerID: "b", Address: "elsewhere", Document: &recheckedB}}}); got != base {
		t.Error("the key depends on more than the content")
	}
	for name, other := range map[string]Content{
		"another document":         {Local: a, Peers: []*Peer{{ServerID: "b", Document: document("b", group("apps", "v1"))}}},
		"no peer":                  {Local: a},
		"an unreachable peer":      {Local: a, Peers: []*Peer{{ServerID: "b", State: StateUnreachable, Document: b}}},
		"a starting peer":          {Local: a, Peers: []*Peer{{ServerID: "b", State: StateStarting, Document: b}}},
		"content that is excluded": {Local: a, Peers: []*Peer{{ServerID: "b", Document: b}}, Excluded: &Exclusions{GroupVersions: map[schema.GroupVersion]time.Time{{Group: "batch", Version: "v1"}: {}}}},
	} {
		if name == "content that is excluded" {
			b.Groups.Items[1].Versions[0].Resources = []apidiscoveryv2.APIResourceDiscovery{resource("jobs", "get")}
		}
		if key(other) == base {
			t.Errorf("%s: the key is the same", name)
		}
	}
}
