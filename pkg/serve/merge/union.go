package merge

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"peerproxy.internal/pkg/snapshot"
)

// group is what all members together have of a group.
type group struct {
	// first is the group as the first source has it.
	first    *apidiscoveryv2.APIGroupDiscovery
	versions map[string]*version
}

// version is what all members together have of a version.
type version struct {
	first     *apidiscoveryv2.APIVersionDiscovery
	listings  []listing
	resources map[string]apidiscoveryv2.APIResourceDiscovery
}

// newUnion unites the sources' own lists, the first source first, by group.
func newUnion(sources []snapshot.Source) map[string]*group {
	all := map[string]*group{}
	for i := range sources {
		items := sources[i].Own.Items
		for j := range items {
			g := all[items[j].Name]
			if g == nil {
				g = &group{first: &items[j], versions: map[string]*version{}}
				all[items[j].Name] = g
			}
			g.add(&sources[i], &items[j])
		}
	}
	return all
}

func (g *group) add(src *snapshot.Source, item *apidiscoveryv2.APIGroupDiscovery) {
	for i := range item.Versions {
		next := &item.Versions[i]
		v := g.versions[next.Version]
		if v == nil {
			v = &version{first: next, resources: map[string]apidiscoveryv2.APIResourceDiscovery{}}
			g.versions[next.Version] = v
		}
		v.listings = append(v.listings, newListing(src, schema.GroupVersion{Group: item.Name, Version: next.Version}, next))
		v.add(next)
	}
}

func (v *version) add(next *apidiscoveryv2.APIVersionDiscovery) {
	for _, resource := range next.Resources {
		if existing, found := v.resources[resource.Resource]; found {
			resource = unite(existing, resource)
		}
		v.resources[resource.Resource] = resource
	}
}

// unite returns a with all that b can do. Verbs and subresources are sorted
// only if the two differ, as upstream has it.
func unite(a, b apidiscoveryv2.APIResourceDiscovery) apidiscoveryv2.APIResourceDiscovery {
	if reflect.DeepEqual(a, b) {
		return a
	}
	a.Verbs = uniteVerbs(a.Verbs, b.Verbs)
	a.Subresources = uniteSubresources(a.Subresources, b.Subresources)
	return a
}

func uniteVerbs(a, b []string) []string {
	if len(a)+len(b) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// uniteSubresources takes what both have from b, as upstream does, but with the
// verbs of both.
func uniteSubresources(a, b []apidiscoveryv2.APISubresourceDiscovery) []apidiscoveryv2.APISubresourceDiscovery {
	united := map[string]apidiscoveryv2.APISubresourceDiscovery{}
	for _, sub := range slices.Concat(a, b) {
		if existing, found := united[sub.Subresource]; found {
			sub.Verbs = extended(sub.Verbs, existing.Verbs)
		}
		united[sub.Subresource] = sub
	}
	return slices.SortedFunc(maps.Values(united), func(a, b apidiscoveryv2.APISubresourceDiscovery) int {
		return cmp.Compare(a.Subresource, b.Subresource)
	})
}

// extended returns verbs as they are if they contain the others, else both
// sorted.
func extended(verbs, others []string) []string {
	both := uniteVerbs(verbs, others)
	if len(both) == len(uniteVerbs(verbs, nil)) {
		return verbs
	}
	return both
}
