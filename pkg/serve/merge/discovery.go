package merge

import (
	"cmp"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"peerproxy.internal/pkg/snapshot"
)

// Discovery merges aggregated discovery: it returns every group, version,
// resource, subresource and verb that a source brings, and nothing else. The
// order of the sources does not matter, their server IDs must differ. The
// result is never nil and shares memory with the sources: read only.
//
// The content is that of the sources' own lists, in the order that their whole
// lists agree on. What can't be united (scope, kinds, names, categories) is
// taken from the settled member with the lowest server ID, and from a starting
// member only where no one else has it.
func Discovery(sources []snapshot.Source) []apidiscoveryv2.APIGroupDiscovery {
	sources = byPrecedence(sources)
	order := newOrder(sources)
	all := newUnion(sources)
	merged := make([]apidiscoveryv2.APIGroupDiscovery, 0, len(all))
	for _, name := range order.ofGroups() {
		if group, found := all[name]; found {
			merged = append(merged, group.assemble(order))
		}
	}
	return merged
}

// byPrecedence returns the settled sources by server ID, then the starting
// ones: a server that crashes again and again while it starts only ever adds.
func byPrecedence(sources []snapshot.Source) []snapshot.Source {
	return slices.SortedFunc(slices.Values(sources), func(a, b snapshot.Source) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ServerID, b.ServerID))
	})
}

func rank(src snapshot.Source) int {
	if src.State == snapshot.StateStarting {
		return 1
	}
	return 0
}

func (g *group) assemble(order *order) apidiscoveryv2.APIGroupDiscovery {
	merged := *g.first
	merged.Versions = make([]apidiscoveryv2.APIVersionDiscovery, 0, len(g.versions))
	for _, name := range order.ofVersions(g.first.Name) {
		if version, found := g.versions[name]; found {
			gv := schema.GroupVersion{Group: g.first.Name, Version: name}
			merged.Versions = append(merged.Versions, version.assemble(order.ofResources(gv)))
		}
	}
	return merged
}

func (v *version) assemble(order []string) apidiscoveryv2.APIVersionDiscovery {
	merged := *v.first
	merged.Freshness = freshness(v.listings)
	merged.Resources = make([]apidiscoveryv2.APIResourceDiscovery, 0, len(v.resources))
	for _, name := range order {
		if resource, found := v.resources[name]; found {
			merged.Resources = append(merged.Resources, withKinds(resource))
		}
	}
	return merged
}

// withKinds returns the resource without nil response kinds, over which
// clients of 1.26 panic (kubernetes/kubernetes#118361).
func withKinds(r apidiscoveryv2.APIResourceDiscovery) apidiscoveryv2.APIResourceDiscovery {
	if r.ResponseKind == nil {
		r.ResponseKind = &metav1.GroupVersionKind{}
	}
	lacks := func(sub apidiscoveryv2.APISubresourceDiscovery) bool { return sub.ResponseKind == nil }
	if !slices.ContainsFunc(r.Subresources, lacks) {
		return r
	}
	r.Subresources = slices.Clone(r.Subresources)
	for i := range r.Subresources {
		if lacks(r.Subresources[i]) {
			r.Subresources[i].ResponseKind = &metav1.GroupVersionKind{}
		}
	}
	return r
}
