package merge

import (
	"fmt"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilsort "k8s.io/apimachinery/pkg/util/sort"
	utilversion "k8s.io/apimachinery/pkg/version"

	"peerproxy.internal/pkg/snapshot"
)

// order is where the members' whole lists put groups, versions and resources.
type order struct {
	groups    lists
	versions  map[string]*lists
	resources map[schema.GroupVersion]*lists
}

func newOrder(sources []snapshot.Source) *order {
	o := &order{versions: map[string]*lists{}, resources: map[schema.GroupVersion]*lists{}}
	for i := range sources {
		o.add(sources[i].State == snapshot.StateStarting, sources[i].Whole.Items)
	}
	return o
}

func (o *order) add(starting bool, groups []apidiscoveryv2.APIGroupDiscovery) {
	o.groups.add(starting, names(groups, func(g *apidiscoveryv2.APIGroupDiscovery) string { return g.Name }))
	for _, group := range groups {
		at(o.versions, group.Name).add(starting, names(group.Versions, func(v *apidiscoveryv2.APIVersionDiscovery) string { return v.Version }))
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			at(o.resources, gv).add(starting, names(version.Resources, func(r *apidiscoveryv2.APIResourceDiscovery) string { return r.Resource }))
		}
	}
}

func (o *order) ofGroups() []string {
	return o.groups.merged(utilsort.MergePreservingRelativeOrder)
}

func (o *order) ofVersions(group string) []string {
	return o.versions[group].merged(pairwise(preferringVersions))
}

func (o *order) ofResources(gv schema.GroupVersion) []string {
	return o.resources[gv].merged(pairwise(utilsort.MergePreservingRelativeOrder))
}

// lists are the members' lists of names in one place, by precedence.
type lists struct {
	settled, starting [][]string
}

func (l *lists) add(starting bool, list []string) {
	if starting {
		l.starting = append(l.starting, list)
	} else {
		l.settled = append(l.settled, list)
	}
}

// merged returns the settled members' names merged, and then merged in the same
// way those that only starting members have.
func (l *lists) merged(merge func([][]string) []string) []string {
	known := merge(l.settled)
	if len(l.starting) == 0 {
		return known
	}
	settled := sets.New(known...)
	added := make([][]string, 0, len(l.starting))
	for _, list := range l.starting {
		added = append(added, slices.DeleteFunc(slices.Clone(list), settled.Has))
	}
	return slices.Concat(known, merge(added))
}

// pairwise merges the first list with the second, the result with the third,
// and so on, as upstream does for all but groups.
func pairwise(merge func([][]string) []string) func([][]string) []string {
	return func(lists [][]string) []string {
		var merged []string
		for i, list := range lists {
			switch {
			case i == 0:
				merged = list
			case !slices.Equal(merged, list):
				merged = merge([][]string{merged, list})
			}
		}
		return merged
	}
}

// preferringVersions merges lists of versions, and puts the one that Kubernetes
// prefers first where they leave that open or contradict each other.
func preferringVersions(lists [][]string) []string {
	versions := slices.Concat(lists...)
	slices.SortFunc(versions, func(a, b string) int { return utilversion.CompareKubeAwareVersionStrings(b, a) })
	versions = slices.Compact(versions)

	// The merge prefers what comes first in the alphabet: let it sort ranks.
	ranks := make(map[string]string, len(versions))
	byRank := make(map[string]string, len(versions))
	for i, version := range versions {
		ranks[version] = fmt.Sprintf("%09d", i)
		byRank[ranks[version]] = version
	}
	ranked := make([][]string, 0, len(lists))
	for _, list := range lists {
		ranked = append(ranked, translated(list, ranks))
	}
	return translated(utilsort.MergePreservingRelativeOrder(ranked), byRank)
}

func translated(list []string, dictionary map[string]string) []string {
	words := make([]string, 0, len(list))
	for _, word := range list {
		words = append(words, dictionary[word])
	}
	return words
}

// names returns the items' names, each once: a name that stands twice would be
// a contradiction, and drown the order of all the others.
func names[T any](items []T, name func(*T) string) []string {
	list := make([]string, 0, len(items))
	seen := make(sets.Set[string], len(items))
	for i := range items {
		n := name(&items[i])
		if seen.Has(n) {
			continue
		}
		seen.Insert(n)
		list = append(list, n)
	}
	return list
}

func at[K comparable](m map[K]*lists, key K) *lists {
	l := m[key]
	if l == nil {
		l = &lists{}
		m[key] = l
	}
	return l
}
