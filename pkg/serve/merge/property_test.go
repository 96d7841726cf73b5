package merge

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

	"peerproxy.internal/pkg/snapshot"
)

// facts are the single things that lists say: that a group, a version, a
// resource or a subresource exists, and its verbs.
func facts(lists ...[]apidiscoveryv2.APIGroupDiscovery) []string {
	all := map[string]bool{}
	for _, list := range lists {
		for _, g := range list {
			all[fmt.Sprintf("%q", g.Name)] = true
			for _, v := range g.Versions {
				all[fmt.Sprintf("%q %q", g.Name, v.Version)] = true
				for _, r := range v.Resources {
					addFacts(all, fmt.Sprintf("%q %q %q", g.Name, v.Version, r.Resource), r.Verbs)
					for _, sub := range r.Subresources {
						addFacts(all, fmt.Sprintf("%q %q %q %q", g.Name, v.Version, r.Resource, sub.Subresource), sub.Verbs)
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func addFacts(all map[string]bool, of string, verbs []string) {
	all[of] = true
	for _, verb := range verbs {
		all[fmt.Sprintf("%s verb %q", of, verb)] = true
	}
}

func encode(t *testing.T, list []apidiscoveryv2.APIGroupDiscovery) string {
	t.Helper()
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// check merges the sources and fails unless all that must hold of any merge
// holds.
func check(t *testing.T, sources []snapshot.Source) {
	t.Helper()
	before := make([]string, 0, len(sources))
	own := make([][]apidiscoveryv2.APIGroupDiscovery, 0, len(sources))
	for _, src := range sources {
		before = append(before, encode(t, src.Whole.Items))
		own = append(own, src.Own.Items)
	}
	merged := Discovery(sources)

	if want, got := facts(own...), facts(merged); !slices.Equal(want, got) {
		t.Errorf("lost (-) or invented (+):\n%s", cmp.Diff(want, got))
	}
	want := encode(t, merged)
	shuffled := slices.Clone(sources)
	for range 3 {
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if got := encode(t, Discovery(shuffled)); got != want {
			t.Errorf("the order of arrival matters:\n%s\n%s", want, got)
		}
	}
	for i, src := range sources {
		if encode(t, src.Whole.Items) != before[i] {
			t.Errorf("source %s was changed", src.ServerID)
		}
	}
	checkNames(t, merged)
	checkLegacy(t, merged)
	again := snapshot.List{Items: merged}
	if got := encode(t, Discovery([]snapshot.Source{{ServerID: "a", Whole: &again, Own: &again}, {ServerID: "b", Whole: &again, Own: &again}})); got != want {
		t.Errorf("merged with itself it changes:\n%s\n%s", want, got)
	}
}

// checkNames fails if a name stands twice or a kind is nil.
func checkNames(t *testing.T, merged []apidiscoveryv2.APIGroupDiscovery) {
	t.Helper()
	seen := map[string]bool{}
	once := func(what ...string) {
		key := fmt.Sprintf("%q", what)
		if seen[key] {
			t.Errorf("%s stands twice", key)
		}
		seen[key] = true
	}
	for _, g := range merged {
		once(g.Name)
		for _, v := range g.Versions {
			once(g.Name, v.Version)
			for _, r := range v.Resources {
				once(g.Name, v.Version, r.Resource)
				if r.ResponseKind == nil {
					t.Errorf("%s has a nil kind", r.Resource)
				}
				for _, sub := range r.Subresources {
					if sub.ResponseKind == nil {
						t.Errorf("%s/%s has a nil kind", r.Resource, sub.Subresource)
					}
				}
			}
		}
	}
}

func TestNothingIsLostAndOrderOfArrivalDoesNotMatter(t *testing.T) {
	for seed := range uint64(80) {
		check(t, newGenerator(seed).sources(serving, serving, starting, unreachable, departed))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestEqualDocumentsMergeToThemselves(t *testing.T) {
	for seed := range uint64(80) {
		list := &snapshot.List{Items: newGenerator(seed).list()}
		var sources []snapshot.Source
		for _, id := range []string{"a", "b", "c"} {
			sources = append(sources, snapshot.Source{ServerID: id, Whole: list, Own: list})
		}
		if want, got := encode(t, list.Items), encode(t, Discovery(sources)); got != want {
			t.Fatalf("seed %d (-want +got):\n%s", seed, cmp.Diff(want, got))
		}
	}
}

// TestStartingMembersOnlyAdd wants whatever settled members make together to
// stay in its order when a starting one comes and goes.
func TestStartingMembersOnlyAdd(t *testing.T) {
	for seed := range uint64(80) {
		g := newGenerator(seed)
		settled := g.sources(serving)
		list := &snapshot.List{Items: g.list()}
		with := Discovery(append(slices.Clone(settled), snapshot.Source{ServerID: "a", State: starting, Whole: list, Own: list}))
		without := Discovery(settled)
		for i, group := range without {
			if with[i].Name != group.Name {
				t.Fatalf("seed %d: group %s is no longer at %d", seed, group.Name, i)
			}
			for j, version := range group.Versions {
				if with[i].Versions[j].Version != version.Version {
					t.Fatalf("seed %d: version %s/%s is no longer at %d", seed, group.Name, version.Version, j)
				}
			}
		}
	}
}

// FuzzDiscovery merges what hostile members may send.
func FuzzDiscovery(f *testing.F) {
	f.Add([]byte(`[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"r","verbs":["get"],"subresources":[{"subresource":"s","verbs":null}]}]}]}]`),
		[]byte(`[{"metadata":{"name":"g"},"versions":[{"version":"v2"},{"version":"v1"},{"version":"v2"}]},{"metadata":{"name":"g"}}]`), []byte(`[]`), byte(7))
	f.Add([]byte(`[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]`), []byte(`[{"metadata":{"name":"b"}},{"metadata":{"name":"a"}}]`), []byte(`[{},{}]`), byte(0))
	f.Fuzz(func(t *testing.T, a, b, c []byte, states byte) {
		var sources []snapshot.Source
		for i, data := range [][]byte{a, b, c} {
			list := &snapshot.List{}
			if json.Unmarshal(data, &list.Items) != nil {
				return
			}
			state := snapshot.State(states >> (2 * i) & 3)
			sources = append(sources, snapshot.Source{ServerID: string(rune('a' + i)), State: state, Whole: list, Own: list})
		}
		check(t, sources)
	})
}
