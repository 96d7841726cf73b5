package snapshot

import (
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// InDoubt reports whether a group-version that no known document lists, or with
// an empty version a group, may be served by a member whose document is not
// known. What custom resource definitions or aggregated APIServices own is not
// in doubt: this server serves it, or no one does.
func (s *Snapshot) InDoubt(gv schema.GroupVersion) bool {
	return s.content.Unsure && s.builtIn(gv.Group) && !s.content.Excluded.ownsSome(gv)
}

// Elsewhere reports whether a peer's document at the path lists a group-version,
// with an empty version a group, with neither anything at all; or may do so.
func (s *Snapshot) Elsewhere(path Path, gv schema.GroupVersion) bool {
	return s.InDoubt(gv) || slices.ContainsFunc(s.views[path].Sources, func(src Source) bool {
		return !src.Local && (gv.Empty() || src.Own.lists(gv))
	})
}

// lists reports whether a list has a group-version, or with an empty version a
// group.
func (l *List) lists(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(l.Items, func(group apidiscoveryv2.APIGroupDiscovery) bool {
		return group.Name == gv.Group && (gv.Version == "" || slices.ContainsFunc(group.Versions, func(version apidiscoveryv2.APIVersionDiscovery) bool {
			return version.Version == gv.Version
		}))
	})
}

// ownsSome reports whether anything of a group-version, or with an empty
// version of a group, is owned now.
func (e *Exclusions) ownsSome(gv schema.GroupVersion) bool {
	if e == nil {
		return false
	}
	within := func(owned schema.GroupVersion) bool {
		return owned.Group == gv.Group && (gv.Version == "" || owned.Version == gv.Version)
	}
	for owned, gone := range e.GroupVersions {
		if gone.IsZero() && within(owned) {
			return true
		}
	}
	for owned, gone := range e.Resources {
		if gone.IsZero() && within(owned.GroupVersion()) {
			return true
		}
	}
	return false
}
