package sim

import (
	"slices"
	"time"
)

// checkDoubts checks that what no one ever had was not refused for longer than
// the doubts about the other members may last in all.
func (w *world) checkDoubts() {
	h := w.history
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, lives := range h.lives {
		for _, a := range lives {
			allowed := time.Duration(len(h.lives)-1)*doubtLimit + 2*noticing
			if spent := doubted(h.probes(a, w.outcomes)); spent > allowed {
				w.violate("%s, started at %v, refused for %v what no one has", id, a.from.Sub(w.began), spent)
			}
		}
	}
}

// probes are the requests for what no one has that an incarnation answered, once
// it knew who is a member.
func (h *history) probes(a *span, outcomes []*outcome) []*outcome {
	listed := h.listed(a).Add(noticing)
	return slices.DeleteFunc(slices.Clone(outcomes), func(o *outcome) bool {
		return o.server.id != a.id || o.lost || o.ask.resource != nothings[0] || !a.holds(o.from) || o.from.Before(listed)
	})
}

// doubted is how long such requests were refused in the worst window: the times
// between any two of which both were refused, and none in between was answered.
func doubted(probes []*outcome) (worst time.Duration) {
	for first := range probes {
		var total time.Duration
		for i := first + 1; i < len(probes) && probes[i].from.Sub(probes[first].from) < doubtWindow; i++ {
			if probes[i-1].code == 503 && probes[i].code == 503 {
				total += probes[i].from.Sub(probes[i-1].from)
			}
		}
		worst = max(worst, total)
	}
	return worst
}
