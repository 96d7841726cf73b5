package snapshot

import apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

// index is what a document lists. The core group is alone in its list.
type index struct{ core, groups resources }

func indexOf(d *Document) index {
	return index{core: d.Core.indexed(), groups: d.Groups.indexed()}
}

// in returns the resources of the list that has the group.
func (x *index) in(group string) resources {
	if group == "" {
		return x.core
	}
	return x.groups
}

// resources are all that one list names, with their verbs.
type resources map[Resource]Verbs

func newResources(groups []apidiscoveryv2.APIGroupDiscovery) resources {
	found := make(resources, countResources(groups))
	for _, group := range groups {
		for _, version := range group.Versions {
			for i := range version.Resources {
				found.add(group.Name, version.Version, &version.Resources[i])
			}
		}
	}
	return found
}

// add takes in a resource and its subresources.
func (found resources) add(group, version string, resource *apidiscoveryv2.APIResourceDiscovery) {
	r := Resource{Group: group, Version: version, Resource: resource.Resource}
	found[r] |= VerbsOf(resource.Verbs...)
	for _, sub := range resource.Subresources {
		r.Subresource = sub.Subresource
		found[r] |= VerbsOf(sub.Verbs...)
	}
}

// countResources counts resources and subresources.
func countResources(groups []apidiscoveryv2.APIGroupDiscovery) (n int) {
	for _, group := range groups {
		for _, version := range group.Versions {
			for i := range version.Resources {
				n += 1 + len(version.Resources[i].Subresources)
			}
		}
	}
	return n
}
