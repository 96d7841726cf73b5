package merge

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Legacy discovery says in many small documents what aggregated discovery says
// in one. The functions here are the reverse of what servers do to get the
// latter from the former (ConvertGroupVersionIntoToDiscovery in package
// k8s.io/apiserver/pkg/endpoints): what they make of a server's aggregated
// document is, field for field, what that server lists itself. Only
// storageVersionHash is in no aggregated document, and so in none of these.

// LegacyGroups returns what stands at /apis: the groups that have a version, in
// their order. Its items stand at /apis/<group>, with [LegacyGroupType]. It is
// never nil and shares no memory with the groups.
func LegacyGroups(groups []apidiscoveryv2.APIGroupDiscovery) *metav1.APIGroupList {
	list := &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   make([]metav1.APIGroup, 0, len(groups)),
	}
	for i := range groups {
		if len(groups[i].Versions) > 0 {
			list.Groups = append(list.Groups, legacyGroup(&groups[i]))
		}
	}
	return list
}

// LegacyGroupType is the type of the document at /apis/<group>. In a list
// groups have none.
var LegacyGroupType = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}

// legacyGroup returns a group with at least one version. The preferred one is
// the first that some member in reach serves, as for clients of the aggregated
// document, who do not see the others.
func legacyGroup(group *apidiscoveryv2.APIGroupDiscovery) metav1.APIGroup {
	legacy := metav1.APIGroup{Name: group.Name, Versions: make([]metav1.GroupVersionForDiscovery, 0, len(group.Versions))}
	preferred := -1
	for i, version := range group.Versions {
		gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
		legacy.Versions = append(legacy.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: version.Version})
		if preferred < 0 && version.Freshness != apidiscoveryv2.DiscoveryFreshnessStale {
			preferred = i
		}
	}
	legacy.PreferredVersion = legacy.Versions[max(preferred, 0)]
	return legacy
}

// LegacyResources returns what stands at /apis/<group>/<version>, or /api/v1
// for the empty group. It shares memory with the version: read only.
func LegacyResources(group string, version *apidiscoveryv2.APIVersionDiscovery) *metav1.APIResourceList {
	gv := schema.GroupVersion{Group: group, Version: version.Version}
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(),
		APIResources: make([]metav1.APIResource, 0, len(version.Resources)),
	}
	if group == "" {
		// Servers leave it out for the sake of clients of Kubernetes 1.1.
		list.APIVersion = ""
	}
	for i := range version.Resources {
		list.APIResources = appendResource(list.APIResources, gv, &version.Resources[i])
	}
	return list
}

// appendResource appends a resource and its subresources.
func appendResource(list []metav1.APIResource, gv schema.GroupVersion, r *apidiscoveryv2.APIResourceDiscovery) []metav1.APIResource {
	itself := metav1.APIResource{
		Name:         r.Resource,
		SingularName: r.SingularResource,
		Namespaced:   r.Scope == apidiscoveryv2.ScopeNamespace,
		Verbs:        verbsOf(r.Verbs),
		ShortNames:   r.ShortNames,
		Categories:   r.Categories,
	}
	setKind(&itself, gv, r.ResponseKind)
	// Without kind and verbs it is there for its subresources alone: legacy
	// discovery does not list it, aggregated discovery can't do without.
	if itself.Kind != "" || len(itself.Verbs) > 0 {
		list = append(list, itself)
	}
	for _, sub := range r.Subresources {
		subresource := metav1.APIResource{
			Name:       r.Resource + "/" + sub.Subresource,
			Namespaced: itself.Namespaced,
			Verbs:      verbsOf(sub.Verbs),
		}
		setKind(&subresource, gv, sub.ResponseKind)
		list = append(list, subresource)
	}
	return list
}

// verbsOf returns verbs that are never nil: clients expect a list.
func verbsOf(verbs []string) []string {
	if verbs == nil {
		return []string{}
	}
	return verbs
}

// setKind sets the kind, and its group and version only where they are not the
// list's. So servers list built-in resources in both ways, and custom ones in
// legacy discovery.
func setKind(r *metav1.APIResource, gv schema.GroupVersion, kind *metav1.GroupVersionKind) {
	if kind == nil {
		return
	}
	r.Kind = kind.Kind
	if kind.Group != gv.Group || kind.Version != gv.Version {
		r.Group, r.Version = kind.Group, kind.Version
	}
}
