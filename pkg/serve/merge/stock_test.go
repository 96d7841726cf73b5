package merge

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"peerproxy.internal/pkg/snapshot"
)

// stock is what upstream's own server with the ID makes of the sources.
func stock(at string, sources []snapshot.Source) []apidiscoveryv2.APIGroupDiscovery {
	var local []apidiscoveryv2.APIGroupDiscovery
	peers := map[string][]apidiscoveryv2.APIGroupDiscovery{}
	for _, src := range sources {
		if src.ServerID == at {
			local = src.Own.Items
		} else {
			peers[src.ServerID] = src.Own.Items
		}
	}
	return aggregated.TestMergeResources(at, local, peers)
}

// TestSameBytesAsUpstream merges random documents of serving members, whose
// versions have an order on which the alphabet and Kubernetes agree and whose
// subresources have the verbs of their namesakes: all that we do otherwise.
func TestSameBytesAsUpstream(t *testing.T) {
	for seed := range uint64(150) {
		g := newGenerator(seed)
		g.versions, g.sharedVerbs = sameOrderVersions, true
		sources := g.sources(serving)
		got := encode(t, Discovery(sources))
		for _, src := range sources {
			if want := encode(t, stock(src.ServerID, sources)); got != want {
				t.Fatalf("seed %d at %s (-upstream +ours):\n%s", seed, src.ServerID, cmp.Diff(want, got))
			}
		}
	}
}

// TestSameContentAsUpstream takes versions as they come, and wants the same but
// for their order.
func TestSameContentAsUpstream(t *testing.T) {
	for seed := range uint64(150) {
		g := newGenerator(seed)
		g.sharedVerbs = true
		sources := g.sources(serving)
		want, got := stock("server-0", sources), Discovery(sources)
		sortVersions(want)
		sortVersions(got)
		if want, got := encode(t, want), encode(t, got); got != want {
			t.Fatalf("seed %d (-upstream +ours):\n%s", seed, cmp.Diff(want, got))
		}
	}
}

func sortVersions(groups []apidiscoveryv2.APIGroupDiscovery) {
	for i := range groups {
		groups[i].Versions = slices.Clone(groups[i].Versions)
		slices.SortFunc(groups[i].Versions, func(a, b apidiscoveryv2.APIVersionDiscovery) int { return strings.Compare(a.Version, b.Version) })
	}
}
