package snapshot

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Exclusions is the set of what is never taken from a peer: custom resources
// and aggregated APIs, which all servers share through etcd. It is immutable;
// the nil set is empty.
type Exclusions struct {
	// Grace is how much longer than an owner lives its resources stay out of
	// peers' documents.
	Grace time.Duration
	// Resources are excluded one by one (custom resources), GroupVersions as a
	// whole (aggregated APIs). The value is when the owner went, the zero time
	// while it lives.
	Resources     map[schema.GroupVersionResource]time.Time
	GroupVersions map[schema.GroupVersion]time.Time
}

// Owns reports whether a custom resource definition or an aggregated
// APIService owns the resource now.
func (e *Exclusions) Owns(gvr schema.GroupVersionResource) bool {
	if e == nil {
		return false
	}
	if gone, found := e.Resources[gvr]; found && gone.IsZero() {
		return true
	}
	gone, found := e.GroupVersions[gvr.GroupVersion()]
	return found && gone.IsZero()
}

// Hides reports whether the resource must stay out of a document checked at
// the given time: something owns it, or did later than the grace before the
// check. A document that was checked before its author can have noticed the
// deletion never stops hiding the resource, however long it is kept.
func (e *Exclusions) Hides(gvr schema.GroupVersionResource, checked time.Time) bool {
	if e == nil {
		return false
	}
	if gone, found := e.Resources[gvr]; found && e.hides(gone, checked) {
		return true
	}
	gone, found := e.GroupVersions[gvr.GroupVersion()]
	return found && e.hides(gone, checked)
}

// Expiring reports whether some exclusion is that of an owner who went, and so
// ends for documents that are checked later.
func (e *Exclusions) Expiring() bool {
	if e == nil {
		return false
	}
	gone := func(at time.Time) bool { return !at.IsZero() }
	return slices.ContainsFunc(slices.Collect(maps.Values(e.Resources)), gone) ||
		slices.ContainsFunc(slices.Collect(maps.Values(e.GroupVersions)), gone)
}

// Equal reports whether e and o exclude the same.
func (e *Exclusions) Equal(o *Exclusions) bool {
	if e == nil || o == nil {
		return e == o
	}
	return e.Grace == o.Grace && maps.Equal(e.Resources, o.Resources) && maps.Equal(e.GroupVersions, o.GroupVersions)
}

func (e *Exclusions) hides(gone, checked time.Time) bool {
	return gone.IsZero() || gone.After(checked.Add(-e.Grace))
}

// from returns what must stay out of a document checked at the given time.
func (e *Exclusions) from(checked time.Time) func(schema.GroupVersionResource) bool {
	return func(gvr schema.GroupVersionResource) bool { return e.Hides(gvr, checked) }
}
