package observe

import (
	"slices"
	"time"
)

// DoubtLimits bound the doubt about one server: it lasts at most Longest in
// all within any Window.
type DoubtLimits struct {
	Longest, Window time.Duration
}

// Doubt is the account of how long requests for what no one is known to serve
// were answered 503, not 404, because one server's document was missing. A
// server that stays broken must not keep that up.
type Doubt struct {
	// incarnation is the one that the doubt is about, zero without one; from and
	// until are when it began and when it ends if the document does not come.
	incarnation string
	from, until time.Time
	// spent are the earlier doubts.
	spent []span
}

type span struct{ from, until time.Time }

// about takes in whether the document of the server's incarnation is missing
// and reports whether to doubt. until is when a doubt ends by itself.
//
// A doubt that used up its time is not renewed for the same incarnation: a
// server that can't be asked for an hour is doubted once.
func (d *Doubt) about(missing bool, incarnation string, now time.Time, limits DoubtLimits) (unsure bool, until time.Time) {
	if !missing {
		d.end(now)
		return false, time.Time{}
	}
	if d.from.IsZero() || d.incarnation != incarnation {
		d.end(now)
		d.forget(now, limits)
		d.incarnation, d.from, d.until = incarnation, now, now.Add(limits.Longest-d.total())
	}
	return now.Before(d.until), d.until
}

// end puts the doubt that lasts among those that were.
func (d *Doubt) end(now time.Time) {
	if d.from.IsZero() {
		return
	}
	if now.After(d.until) {
		now = d.until
	}
	// A clone: the account is remembered in more than one state.
	d.spent = append(slices.Clone(d.spent), span{d.from, now})
	d.incarnation, d.from, d.until = "", time.Time{}, time.Time{}
}

// forget drops the doubts that ended a window ago.
func (d *Doubt) forget(now time.Time, limits DoubtLimits) {
	limit := now.Add(-limits.Window)
	d.spent = slices.DeleteFunc(slices.Clone(d.spent), func(s span) bool { return s.until.Before(limit) })
}

func (d *Doubt) total() (total time.Duration) {
	for _, s := range d.spent {
		total += s.until.Sub(s.from)
	}
	return total
}

// recent reports whether there is a doubt that still counts: until then the
// account must be kept.
func (d *Doubt) recent(now time.Time, limits DoubtLimits) bool {
	d.forget(now, limits)
	return !d.from.IsZero() || len(d.spent) > 0
}
