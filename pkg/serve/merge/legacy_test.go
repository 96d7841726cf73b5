package merge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints"

	"peerproxy.internal/pkg/snapshot"
)

// legacyDocuments are legacy discovery by path.
type legacyDocuments struct {
	Groups    *metav1.APIGroupList
	Group     map[string]*metav1.APIGroup
	Resources map[string]*metav1.APIResourceList
}

// add adds what stands below /api or /apis.
func (d *legacyDocuments) add(path snapshot.Path, groups []apidiscoveryv2.APIGroupDiscovery) {
	if path == snapshot.PathAPIs {
		d.Groups = LegacyGroups(groups)
		for _, group := range d.Groups.Groups {
			group.TypeMeta = LegacyGroupType
			d.Group["/apis/"+group.Name] = &group
		}
	}
	for _, group := range groups {
		for i := range group.Versions {
			list := LegacyResources(group.Name, &group.Versions[i])
			d.Resources[path.String()+"/"+list.GroupVersion] = list
		}
	}
}

func newLegacyDocuments() *legacyDocuments {
	return &legacyDocuments{Group: map[string]*metav1.APIGroup{}, Resources: map[string]*metav1.APIResourceList{}}
}

// readLegacy reads legacy discovery as a server wrote it.
func readLegacy(t *testing.T, name string) *legacyDocuments {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var paths map[string]json.RawMessage
	if err := json.Unmarshal(data, &paths); err != nil {
		t.Fatal(err)
	}
	documents := newLegacyDocuments()
	for path, document := range paths {
		var into any
		switch {
		case path == "/apis":
			documents.Groups = &metav1.APIGroupList{}
			into = documents.Groups
		case strings.Count(path, "/") == 2 && strings.HasPrefix(path, "/apis/"):
			documents.Group[path] = &metav1.APIGroup{}
			into = documents.Group[path]
		default:
			documents.Resources[path] = &metav1.APIResourceList{}
			into = documents.Resources[path]
		}
		if err := json.Unmarshal(document, into); err != nil {
			t.Fatal(err)
		}
	}
	return documents
}

// TestLegacyIsWhatServersSay compares with what real servers list in both ways,
// with all their APIs on and two custom resources in one group-version.
func TestLegacyIsWhatServersSay(t *testing.T) {
	for _, version := range []string{"v1.36", "v1.37"} {
		dir := filepath.Join("legacy", version)
		got, want := newLegacyDocuments(), readLegacy(t, filepath.Join(dir, "legacy.json"))
		got.add(snapshot.PathAPI, readList(t, filepath.Join(dir, "api.json")))
		got.add(snapshot.PathAPIs, readList(t, filepath.Join(dir, "apis.json")))
		for path, list := range want.Resources {
			for i := range list.APIResources {
				list.APIResources[i].StorageVersionHash = ""
			}
			if path != "/apis/example.com/v1" {
				continue
			}
			// Servers list custom resources in the order of a map, and ours differs.
			for _, list := range []*metav1.APIResourceList{list, got.Resources[path]} {
				slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
			}
		}
		if len(want.Groups.Groups) < 20 || len(want.Resources) < 30 {
			t.Fatalf("%s has %d groups and %d group-versions", version, len(want.Groups.Groups), len(want.Resources))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-server +ours):\n%s", version, diff)
		}
	}
}

// TestLegacyOfAnUpgrade writes down what clients of legacy discovery see in the
// middle of an upgrade.
func TestLegacyOfAnUpgrade(t *testing.T) {
	members, excluded := upgrade(t)
	documents := newLegacyDocuments()
	documents.add(snapshot.PathAPIs, Discovery(seenFrom("apiserver-old", members, excluded)))
	checkGolden(t, "legacy-upgrade.json", documents)
}

// TestLegacyLosesNothing wants every group, version, resource, subresource and
// verb in the documents, in their order, and that upstream makes of them what
// they were made of.
func TestLegacyLosesNothing(t *testing.T) {
	for seed := range uint64(80) {
		checkLegacy(t, Discovery(newGenerator(seed).sources(serving, starting, unreachable)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func checkLegacy(t *testing.T, groups []apidiscoveryv2.APIGroupDiscovery) {
	t.Helper()
	list := LegacyGroups(groups).Groups
	for i := range groups {
		if len(groups[i].Versions) > 0 {
			checkLegacyGroup(t, &groups[i], list[0])
			list = list[1:]
		}
		for j := range groups[i].Versions {
			checkLegacyResources(t, groups[i].Name, &groups[i].Versions[j])
		}
	}
	if len(list) > 0 {
		t.Errorf("invented %v", list)
	}
}

func checkLegacyGroup(t *testing.T, group *apidiscoveryv2.APIGroupDiscovery, legacy metav1.APIGroup) {
	t.Helper()
	var want, got []string
	for _, version := range group.Versions {
		want = append(want, version.Version)
	}
	for _, version := range legacy.Versions {
		got = append(got, version.Version)
	}
	if legacy.Name != group.Name || !slices.Equal(want, got) {
		t.Errorf("group %s %v became %s %v", group.Name, want, legacy.Name, got)
	}
	if !slices.Contains(legacy.Versions, legacy.PreferredVersion) {
		t.Errorf("prefers %s of %v", legacy.PreferredVersion.Version, got)
	}
}

func checkLegacyResources(t *testing.T, group string, version *apidiscoveryv2.APIVersionDiscovery) {
	t.Helper()
	list := LegacyResources(group, version).APIResources
	var want, got []string
	for _, r := range version.Resources {
		if r.ResponseKind.Kind != "" || len(r.Verbs) > 0 {
			want = append(want, r.Resource+" "+strings.Join(r.Verbs, ","))
		}
		for _, sub := range r.Subresources {
			want = append(want, r.Resource+"/"+sub.Subresource+" "+strings.Join(sub.Verbs, ","))
		}
	}
	for _, r := range list {
		got = append(got, r.Name+" "+strings.Join(r.Verbs, ","))
		if r.Verbs == nil {
			t.Errorf("%s has nil verbs", r.Name)
		}
	}
	if !slices.Equal(want, got) {
		t.Errorf("%s/%s (-want +got):\n%s", group, version.Version, cmp.Diff(want, got))
	}
}

// TestUpstreamReadsLegacyAsItWasMeant converts to legacy discovery and, by
// upstream's own function, back.
func TestUpstreamReadsLegacyAsItWasMeant(t *testing.T) {
	for _, version := range []string{"v1.36", "v1.37"} {
		for _, path := range []string{"api.json", "apis.json"} {
			for _, group := range readList(t, filepath.Join("legacy", version, path)) {
				for i := range group.Versions {
					want := group.Versions[i].Resources
					got, err := endpoints.ConvertGroupVersionIntoToDiscovery(LegacyResources(group.Name, &group.Versions[i]).APIResources)
					if err != nil {
						t.Fatal(err)
					}
					if group.Name == "example.com" {
						fillKinds(got, group.Name, group.Versions[i].Version)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s/%s (-want +got):\n%s", group.Name, group.Versions[i].Version, diff)
					}
				}
			}
		}
	}
}

// fillKinds spells out group and version of kinds, as aggregated discovery does
// for custom resources.
func fillKinds(list []apidiscoveryv2.APIResourceDiscovery, group, version string) {
	fill := func(kind *metav1.GroupVersionKind) {
		if kind.Version == "" {
			kind.Group, kind.Version = group, version
		}
	}
	for i := range list {
		fill(list[i].ResponseKind)
		for j := range list[i].Subresources {
			fill(list[i].Subresources[j].ResponseKind)
		}
	}
}

func TestLegacyPrefersAVersionThatCanBeServed(t *testing.T) {
	for text, want := range map[string]string{
		"g/v1 r get\ng/v2 r get":                   "g/v1",
		"g/v3* r get\ng/v2* r get\ng/v1 r get":     "g/v1",
		"g/v2* r get\ng/v1* r get":                 "g/v2",
		"g/v2* r get\ng/v1beta1\ng/v1alpha1 r get": "g/v1beta1",
	} {
		if got := LegacyGroups(parse(t, text)).Groups[0].PreferredVersion.GroupVersion; got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestLegacyKinds(t *testing.T) {
	kind := func(group, version, kind string) *metav1.GroupVersionKind {
		return &metav1.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	version := &apidiscoveryv2.APIVersionDiscovery{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{
		{Resource: "built-in", ResponseKind: kind("", "", "A"), Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"get"}},
		{Resource: "custom", ResponseKind: kind("g", "v1", "B"), Scope: apidiscoveryv2.ScopeCluster, Verbs: []string{}},
		{Resource: "parent", ResponseKind: kind("", "", ""), Subresources: []apidiscoveryv2.APISubresourceDiscovery{
			{Subresource: "scale", ResponseKind: kind("autoscaling", "v1", "Scale"), Verbs: []string{"get"}},
			{Subresource: "nil"},
		}},
		{Resource: "kindless", Verbs: []string{"get"}},
		{Resource: "nothing"},
	}}
	want := []metav1.APIResource{
		{Name: "built-in", Namespaced: true, Kind: "A", Verbs: []string{"get"}},
		{Name: "custom", Kind: "B", Verbs: []string{}},
		{Name: "parent/scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Verbs: []string{"get"}},
		{Name: "parent/nil", Verbs: []string{}},
		{Name: "kindless", Verbs: []string{"get"}},
	}
	if diff := cmp.Diff(want, LegacyResources("g", version).APIResources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLegacyOfNothing(t *testing.T) {
	for _, groups := range [][]apidiscoveryv2.APIGroupDiscovery{nil, parse(t, "g")} {
		if got := LegacyGroups(groups); got.Groups == nil || len(got.Groups) > 0 {
			t.Errorf("got %#v", got.Groups)
		}
	}
	if got := LegacyResources("g", &apidiscoveryv2.APIVersionDiscovery{}); got.APIResources == nil || len(got.APIResources) > 0 {
		t.Errorf("got %#v", got.APIResources)
	}
}
