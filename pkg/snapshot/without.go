package snapshot

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// excludes reports whether a resource is excluded, or with an empty one its
// group-version as a whole.
type excludes func(schema.GroupVersionResource) bool

// without returns the list without what is excluded. Versions and groups that
// have nothing left go too; those that were empty from the start stay, unless
// they are those of an aggregated API. The list itself is returned where nothing
// is excluded, and is never changed.
func without(list *List, excluded excludes) *List {
	names := newNames()
	var items []apidiscoveryv2.APIGroupDiscovery
	for _, group := range list.Items {
		kept := versionsWithout(group, excluded, names)
		if len(kept) == 0 && len(group.Versions) > 0 {
			continue
		}
		group.Versions = kept
		items = append(items, group)
	}
	if names.count == 0 {
		return list
	}
	return &List{ETag: list.ETag + "-" + names.sum(), Items: items}
}

// versionsWithout returns a group's versions without what is excluded, and adds
// that to the names.
func versionsWithout(group apidiscoveryv2.APIGroupDiscovery, excluded excludes, names *names) []apidiscoveryv2.APIVersionDiscovery {
	var kept []apidiscoveryv2.APIVersionDiscovery
	for _, version := range group.Versions {
		before := names.count
		names.addExcluded(group.Name, &version, excluded)
		switch n := names.count - before; {
		case n == 0:
		case n >= len(version.Resources):
			continue
		default:
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			version.Resources = slices.DeleteFunc(slices.Clone(version.Resources), func(r apidiscoveryv2.APIResourceDiscovery) bool {
				return excluded(gv.WithResource(r.Resource))
			})
		}
		kept = append(kept, version)
	}
	return kept
}

// excludedTag names all of a list that is excluded.
func excludedTag(list *List, excluded excludes) string {
	names := newNames()
	for _, group := range list.Items {
		for i := range group.Versions {
			names.addExcluded(group.Name, &group.Versions[i], excluded)
		}
	}
	return names.sum()
}

// names are names of resources, of which a hash is made.
type names struct {
	hash   hash.Hash
	writer *bufio.Writer
	count  int
}

func newNames() *names {
	h := sha256.New()
	return &names{hash: h, writer: bufio.NewWriter(h)}
}

// addExcluded adds all of a version that is excluded, and for one that is so as
// a whole a name of its own.
func (n *names) addExcluded(group string, version *apidiscoveryv2.APIVersionDiscovery, excluded excludes) {
	gv := schema.GroupVersion{Group: group, Version: version.Version}
	if whole := gv.WithResource(""); excluded(whole) {
		n.add(whole)
	}
	for i := range version.Resources {
		if gvr := gv.WithResource(version.Resources[i].Resource); excluded(gvr) {
			n.add(gvr)
		}
	}
}

func (n *names) add(gvr schema.GroupVersionResource) {
	n.count++
	for _, part := range [...]string{gvr.Group, " ", gvr.Version, " ", gvr.Resource, "\n"} {
		_, _ = n.writer.WriteString(part) // a hash takes all
	}
}

// sum returns the hash of the names so far.
func (n *names) sum() string {
	_ = n.writer.Flush()
	return hex.EncodeToString(n.hash.Sum(nil))
}
