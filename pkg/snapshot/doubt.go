package snapshot

import "k8s.io/apimachinery/pkg/runtime/schema"

// InDoubt reports whether a group-version that no known document lists, or with
// an empty version a group, may be served by a member whose document is not
// known. What custom resource definitions or aggregated APIServices own is not
// in doubt: this server serves it, or no one does.
func (s *Snapshot) InDoubt(gv schema.GroupVersion) bool {
	return s.content.Unsure && s.builtIn(gv.Group) && !s.content.Excluded.ownsSome(gv)
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
