package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// without returns the list without what the exclusions hide from a document
// checked at the given time. Versions and groups that have nothing left go too;
// those that were empty from the start stay, unless they are those of an
// aggregated API. The list itself is returned where nothing is hidden, and is
// never changed.
func without(list *List, excluded *Exclusions, checked time.Time) *List {
	if excluded.empty() {
		return list
	}
	hidden := sha256.New()
	some := false
	hides := func(gvr schema.GroupVersionResource) bool {
		if !excluded.Hides(gvr, checked) {
			return false
		}
		some = true
		fmt.Fprintln(hidden, gvr.Group, gvr.Version, gvr.Resource)
		return true
	}
	items := make([]apidiscoveryv2.APIGroupDiscovery, 0, len(list.Items))
	for _, group := range list.Items {
		kept := versionsWithout(group, hides)
		if len(kept) == 0 && len(group.Versions) > 0 {
			continue
		}
		group.Versions = kept
		items = append(items, group)
	}
	if !some {
		return list
	}
	return &List{ETag: list.ETag + "-" + hex.EncodeToString(hidden.Sum(nil)), Items: items}
}

func versionsWithout(group apidiscoveryv2.APIGroupDiscovery, hides func(schema.GroupVersionResource) bool) []apidiscoveryv2.APIVersionDiscovery {
	kept := make([]apidiscoveryv2.APIVersionDiscovery, 0, len(group.Versions))
	for _, version := range group.Versions {
		gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
		hidden := func(r apidiscoveryv2.APIResourceDiscovery) bool { return hides(gv.WithResource(r.Resource)) }
		resources := slices.DeleteFunc(slices.Clone(version.Resources), hidden)
		if len(resources) == 0 && (len(version.Resources) > 0 || hides(gv.WithResource(""))) {
			continue
		}
		version.Resources = resources
		kept = append(kept, version)
	}
	return kept
}
