package merge

import (
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"peerproxy.internal/pkg/snapshot"
)

// listing is what one member says of how fresh a version is.
type listing struct {
	freshness apidiscoveryv2.DiscoveryFreshness
	reachable bool
	// owner is true if this server lists the version and owns some of it as
	// excluded content: then it alone knows.
	owner bool
}

func newListing(src *snapshot.Source, gv schema.GroupVersion, v *apidiscoveryv2.APIVersionDiscovery) listing {
	return listing{
		freshness: v.Freshness,
		reachable: src.State.Reachable(),
		owner:     src.Local && src.Excluded != nil && excludesSome(src.Excluded, gv, v),
	}
}

// excludesSome reports whether a version is excluded as a whole (its backend
// may be down, and the list empty) or any of its resources is.
func excludesSome(excluded func(schema.GroupVersionResource) bool, gv schema.GroupVersion, v *apidiscoveryv2.APIVersionDiscovery) bool {
	return excluded(gv.WithResource("")) ||
		slices.ContainsFunc(v.Resources, func(r apidiscoveryv2.APIResourceDiscovery) bool {
			return excluded(gv.WithResource(r.Resource))
		})
}

// freshness is how fresh a version is, given everyone who lists it. It is stale
// if no reachable member lists it, or all that do say so. Where reachable
// members disagree, one that is current is believed: client-go drops a stale
// version whole, and a member with a broken aggregator must not take away what
// the others serve.
func freshness(listings []listing) apidiscoveryv2.DiscoveryFreshness {
	if i := slices.IndexFunc(listings, func(l listing) bool { return l.owner }); i >= 0 {
		return listings[i].freshness
	}
	for _, l := range listings {
		if l.reachable && l.freshness != apidiscoveryv2.DiscoveryFreshnessStale {
			return l.freshness
		}
	}
	return apidiscoveryv2.DiscoveryFreshnessStale
}
