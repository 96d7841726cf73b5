package merge

import (
	"fmt"
	"math/rand/v2"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"peerproxy.internal/pkg/snapshot"
)

var (
	// Of these the alphabet and Kubernetes think the same.
	sameOrderVersions = []string{"v1", "v1beta1", "w1", "x2"}
	allVersions       = []string{"v1", "v2", "v10", "v1beta1", "v1alpha1", "v2beta1", "odd"}
	verbNames         = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
)

// generator makes random lists. Members draw from the same few names, so that
// they overlap, agree and contradict each other.
type generator struct {
	*rand.Rand
	versions []string
	// sharedVerbs gives a subresource the same verbs in every list.
	sharedVerbs bool
}

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 1)), versions: allVersions}
}

// pick returns some of n names in an order that is mostly, but not always, that
// of the numbers.
func (g *generator) pick(n int) []int {
	var picked []int
	for i := range n {
		if g.IntN(3) > 0 {
			picked = append(picked, i)
		}
	}
	if g.IntN(4) == 0 {
		g.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	}
	return picked
}

func (g *generator) list() []apidiscoveryv2.APIGroupDiscovery {
	items := []apidiscoveryv2.APIGroupDiscovery{}
	for _, i := range g.pick(6) {
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("g%d", i)}}
		for _, j := range g.pick(len(g.versions)) {
			item.Versions = append(item.Versions, apidiscoveryv2.APIVersionDiscovery{
				Version:   g.versions[j],
				Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
				Resources: g.resources(),
			})
		}
		items = append(items, item)
	}
	return items
}

func (g *generator) resources() []apidiscoveryv2.APIResourceDiscovery {
	var resources []apidiscoveryv2.APIResourceDiscovery
	for _, i := range g.pick(5) {
		r := apidiscoveryv2.APIResourceDiscovery{
			Resource:     fmt.Sprintf("r%d", i),
			ResponseKind: &metav1.GroupVersionKind{Kind: fmt.Sprintf("K%d", g.IntN(5)/4)},
			Scope:        apidiscoveryv2.ScopeCluster,
			Verbs:        g.verbs(),
		}
		if g.IntN(5) == 0 {
			r.ShortNames = []string{"short"}
		}
		for _, j := range g.pick(3) {
			sub := apidiscoveryv2.APISubresourceDiscovery{
				Subresource:  fmt.Sprintf("s%d", j),
				ResponseKind: &metav1.GroupVersionKind{Kind: fmt.Sprintf("K%d", g.IntN(5)/4)},
				Verbs:        []string{"update", "get"},
			}
			if !g.sharedVerbs {
				sub.Verbs = g.verbs()
			}
			r.Subresources = append(r.Subresources, sub)
		}
		resources = append(resources, r)
	}
	return resources
}

func (g *generator) verbs() []string {
	if g.IntN(3) > 0 {
		return []string{"list", "get"}
	}
	var verbs []string
	for _, i := range g.pick(len(verbNames)) {
		verbs = append(verbs, verbNames[i])
	}
	return verbs
}

// sources returns up to four members; some share a list.
func (g *generator) sources(states ...snapshot.State) []snapshot.Source {
	var sources []snapshot.Source
	for i := range 1 + g.IntN(4) {
		list := &snapshot.List{Items: g.list()}
		if i > 0 && g.IntN(4) == 0 {
			list = sources[i-1].Whole
		}
		sources = append(sources, snapshot.Source{
			ServerID: fmt.Sprintf("server-%d", i),
			State:    states[g.IntN(len(states))],
			Whole:    list,
			Own:      list,
		})
	}
	return sources
}
