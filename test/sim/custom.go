package sim

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// definitions are the names of all custom resource definitions that come and go.
// The group of the last one looks like a built-in one.
var definitions = []string{"widgets.example.com", "gadgets.example.com", "routes.gateway.networking.k8s.io"}

const (
	// taking is how long a server may take to serve what was defined, or to forget
	// it, forgetting how long the others may list what is deleted.
	taking     = 100 * time.Millisecond
	forgetting = 2 * time.Second
)

// judgeCustom judges the answer to a request for a custom resource, and tells
// whether it was for one. All servers share those through etcd: none is ever
// refused, and one that is deleted is gone.
func (h *history) judgeCustom(a *span, o *outcome) (custom bool, err error) {
	r := o.ask.resource
	name := r.name + "." + r.group
	if !slices.Contains(definitions, name) {
		return false, nil
	}
	periods := h.defined[name]
	within := period{o.from.Add(-taking), o.to}
	defined, undefined := false, true
	for _, p := range periods {
		defined = defined || p.holds(within.from) && (p.to.IsZero() || p.to.After(within.to))
		undefined = undefined && !p.overlaps(within)
	}
	switch since, calm := h.calmEtcdSince(a.id, "", o.to); {
	case !calm || since.After(within.from) || a.from.After(within.from):
		return true, nil
	case defined && (o.aborted || o.code == http.StatusNotFound && !namesObject(o) || o.code >= 405):
		return true, fmt.Errorf("%d for a custom resource that is defined", o.code)
	case undefined && o.code == http.StatusServiceUnavailable && h.allKnowOfEnds(a, periods, o.to) && !(builtIn(r.group) && h.mayDoubt(a, o.from)):
		return true, fmt.Errorf("503 for a custom resource that is not defined")
	}
	return true, nil
}

// allKnowOfEnds reports whether all servers must have noticed by a time that the
// definition is gone: no one lists it any more.
func (h *history) allKnowOfEnds(a *span, periods []*period, t time.Time) bool {
	if len(periods) == 0 {
		return true
	}
	last := periods[len(periods)-1].to
	if a.from.After(last.Add(-forgetting)) && a.from.Before(last.Add(learning)) {
		return false // it began among documents that still listed it
	}
	for _, trouble := range h.troubles {
		if trouble.to.IsZero() || trouble.to.After(last.Add(-learning)) {
			return false
		}
	}
	return t.After(last.Add(forgetting))
}

// overlaps reports whether two periods have a time in common.
func (p period) overlaps(o period) bool {
	return p.from.Before(o.to) && (p.to.IsZero() || p.to.After(o.from))
}
