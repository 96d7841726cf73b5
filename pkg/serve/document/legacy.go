package document

import (
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/snapshot"
)

// legacy are the documents of legacy discovery that have their facts from one
// list of groups.
type legacy struct {
	key       string
	documents func() *legacyDocuments
}

// legacyDocuments are the documents by path.
type legacyDocuments struct {
	groups *document
	group  map[string]*document
	// resources are all group-versions that the groups list.
	resources map[schema.GroupVersion]resources
}

// resources is the document of a group-version.
type resources struct {
	standing Standing
	document *document
}

// newLegacy returns the documents of the groups. Of the last ones it takes over
// what has not changed.
func (s *Server) newLegacy(key string, groups func() []apidiscoveryv2.APIGroupDiscovery, backed func(schema.GroupVersion) bool, last *legacy) *legacy {
	// The closure, and with it the last documents, is let go of once it ran.
	return &legacy{key: key, documents: sync.OnceValue(func() *legacyDocuments {
		known := &legacyDocuments{}
		if last != nil {
			known = last.documents()
		}
		return s.newLegacyDocuments(groups(), backed, known)
	})}
}

func (s *Server) newLegacyDocuments(groups []apidiscoveryv2.APIGroupDiscovery, backed func(schema.GroupVersion) bool, last *legacyDocuments) *legacyDocuments {
	list := merge.LegacyGroups(groups)
	next := &legacyDocuments{
		groups:    s.renew(last.groups, groupsContent{list}),
		group:     make(map[string]*document, len(groups)),
		resources: make(map[schema.GroupVersion]resources, len(groups)),
	}
	for i := range list.Groups {
		name := list.Groups[i].Name
		next.group[name] = s.renew(last.group[name], groupContent{&list.Groups[i]})
	}
	for i := range groups {
		for j := range groups[i].Versions {
			version := &groups[i].Versions[j]
			gv := schema.GroupVersion{Group: groups[i].Name, Version: version.Version}
			next.resources[gv] = s.newResources(gv, version, backed(gv), last.resources[gv].document)
		}
	}
	return next
}

func (s *Server) newResources(gv schema.GroupVersion, version *apidiscoveryv2.APIVersionDiscovery, backed bool, last *document) resources {
	switch {
	case backed:
		return resources{standing: Backed}
	case version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale:
		return resources{standing: Stale}
	}
	return resources{standing: Listed, document: s.renew(last, resourcesContent{gv.Group, version})}
}

// find returns the document asked for, and Missing if the groups do not list it.
func (d *legacyDocuments) find(kind Kind, gv schema.GroupVersion) (Standing, *document) {
	switch kind {
	case Groups:
		return Listed, d.groups
	case Group:
		if doc, found := d.group[gv.Group]; found {
			return Listed, doc
		}
	case Resources:
		if r, found := d.resources[gv]; found {
			return r.standing, r.document
		}
	}
	return Missing, nil
}

// backedIn returns a function that reports whether a group-version is that of
// an aggregated API, according to this server's own document in the view.
func backedIn(view snapshot.View) func(schema.GroupVersion) bool {
	for i := range view.Sources {
		if excluded := view.Sources[i].Excluded; excluded != nil {
			return func(gv schema.GroupVersion) bool { return excluded(gv.WithResource("")) }
		}
	}
	return func(schema.GroupVersion) bool { return false }
}

// The contents of legacy documents. Equal contents are encoded alike.
type (
	groupsContent    struct{ list *metav1.APIGroupList }
	groupContent     struct{ group *metav1.APIGroup }
	resourcesContent struct {
		group   string
		version *apidiscoveryv2.APIVersionDiscovery
	}
)

func (c groupsContent) object() runtime.Object {
	list := *c.list
	return &list
}

func (c groupContent) object() runtime.Object {
	group := *c.group
	group.TypeMeta = merge.LegacyGroupType
	return &group
}

func (c resourcesContent) object() runtime.Object { return merge.LegacyResources(c.group, c.version) }
