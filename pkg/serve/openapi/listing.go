package openapi

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"peerproxy.internal/pkg/snapshot"
)

// listing is what a member's discovery lists: what is not in it is not taken
// from the member's OpenAPI, however new that is. So custom resources, which a
// peer's OpenAPI holds too, come from this server alone.
type listing struct {
	groups sets.Set[string]
	// own are the resources that are taken, by group-version, whole all that the
	// member lists.
	own, whole map[schema.GroupVersion]sets.Set[string]
	// excluded is set for this server alone.
	excluded func(schema.GroupVersionResource) bool
}

// listings returns the members' listings by server ID.
func listings(snap *snapshot.Snapshot) map[string]*listing {
	found := map[string]*listing{}
	for _, path := range []snapshot.Path{snapshot.PathAPI, snapshot.PathAPIs} {
		for _, src := range snap.View(path).Sources {
			l := found[src.ServerID]
			if l == nil {
				l = &listing{groups: sets.New[string](), own: map[schema.GroupVersion]sets.Set[string]{}, whole: map[schema.GroupVersion]sets.Set[string]{}}
				found[src.ServerID] = l
			}
			l.excluded = src.Excluded
			for _, group := range src.Own.Items {
				l.groups.Insert(group.Name)
			}
			addResources(l.own, src.Own)
			addResources(l.whole, src.Whole)
		}
	}
	return found
}

func addResources(to map[schema.GroupVersion]sets.Set[string], list *snapshot.List) {
	for _, group := range list.Items {
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			if to[gv] == nil {
				to[gv] = sets.New[string]()
			}
			for _, resource := range version.Resources {
				to[gv].Insert(resource.Resource)
			}
		}
	}
}

// takes reports whether a path, or the document of that name, is taken from a
// peer. Paths of no API are.
func (l *listing) takes(path string) bool {
	at := locate(path)
	switch {
	case at.group == nil:
		return true
	case at.version == "":
		return l.groups.Has(*at.group)
	}
	gv := schema.GroupVersion{Group: *at.group, Version: at.version}
	own, listed := l.own[gv]
	return listed && (own.Has(at.resource) || !l.whole[gv].Has(at.resource))
}

// excludes reports whether other members may not bring a path of this server.
func (l *listing) excludes(path string) bool {
	at := locate(path)
	if at.group == nil || at.version == "" {
		return false
	}
	gv := schema.GroupVersion{Group: *at.group, Version: at.version}
	return l.excluded(gv.WithResource("")) || at.resource != "" && l.excluded(gv.WithResource(at.resource))
}

// isCustom reports whether this server lists nothing but custom resources in
// the group-version of a document.
func (l *listing) isCustom(name string) bool {
	at := locate(name)
	if at.group == nil || at.version == "" {
		return false
	}
	gv := schema.GroupVersion{Group: *at.group, Version: at.version}
	if l.excluded(gv.WithResource("")) {
		return false // of an aggregated API
	}
	for resource := range l.whole[gv] {
		if !l.excluded(gv.WithResource(resource)) {
			return false
		}
	}
	return l.whole[gv].Len() > 0
}

// gives reports whether other members take the document of that name from this
// server.
func (l *listing) gives(name string) bool {
	at := locate(name)
	if at.group == nil || at.version == "" {
		return true
	}
	gv := schema.GroupVersion{Group: *at.group, Version: at.version}
	return l.whole[gv].Len() > 0 && !l.excluded(gv.WithResource("")) && !l.isCustom(name)
}

// apart names the resources of a document that other members may not bring, or
// that are not taken from this one.
func (l *listing) apart(name string) string {
	at := locate(name)
	if at.group == nil || at.version == "" {
		return ""
	}
	gv := schema.GroupVersion{Group: *at.group, Version: at.version}
	isApart := func(resource string) bool {
		if l.excluded != nil {
			return l.excluded(gv.WithResource(resource))
		}
		return !l.own[gv].Has(resource)
	}
	resources := slices.DeleteFunc(slices.Sorted(maps.Keys(l.whole[gv])), func(resource string) bool { return !isApart(resource) })
	return strings.Join(resources, ",")
}

// allExcluded names all that other members may not bring of what this server
// lists.
func (l *listing) allExcluded() string {
	var names []string
	for gv, resources := range l.whole {
		for resource := range resources {
			if gvr := gv.WithResource(resource); l.excluded(gvr) {
				names = append(names, gvr.String())
			}
		}
	}
	slices.Sort(names)
	return sumOf([]byte(strings.Join(names, " ")))
}

// location is what a path is about, as far as it goes.
type location struct {
	// group is nil for a path of no API, and of all APIs.
	group             *string
	version, resource string
}

// locate reads a path such as /apis/apps/v1/namespaces/{namespace}/deployments,
// or the name of a document such as apis/apps/v1.
func locate(path string) location {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	at := location{group: new(string)}
	switch {
	case segments[0] == "api" && len(segments) > 1:
		segments = segments[1:]
	case segments[0] == "apis" && len(segments) > 1:
		at.group = &segments[1]
		segments = segments[2:]
	default:
		return location{}
	}
	if len(segments) == 0 {
		return at
	}
	at.version, segments = segments[0], segments[1:]
	if len(segments) > 0 && segments[0] == "watch" {
		segments = segments[1:]
	}
	if len(segments) > 2 && segments[0] == "namespaces" && segments[1] == "{namespace}" {
		segments = segments[2:]
	}
	if len(segments) > 0 {
		at.resource = segments[0]
	}
	return at
}
