package observe

import "time"

// DoubtLimits bound the doubt about one server: it lasts at most Longest in
// all within any Window.
type DoubtLimits struct {
	Longest, Window time.Duration
}

// Doubt is the account of how long requests for what no one is known to serve
// were answered 503, not 404, because one server's document was missing. A
// server that stays broken must not keep that up.
type Doubt struct {
	// incarnation is the one that the last doubt was about, since when that
	// began, and settled when its document came; zero while it is missing.
	incarnation    string
	since, settled time.Time
	// window is when the first doubt of the window began, spent what the earlier
	// doubts of the window took.
	window time.Time
	spent  time.Duration
}

// about takes in whether the document of the server's incarnation is missing
// and reports whether to doubt. until is when a doubt ends by itself.
//
// A doubt that used up its time is not renewed for the same incarnation: a
// server that can't be asked for an hour is doubted once.
func (d *Doubt) about(missing bool, incarnation string, now time.Time, limits DoubtLimits) (unsure bool, until time.Time) {
	if !missing {
		if !d.since.IsZero() && d.settled.IsZero() {
			d.settled = now
		}
		return false, time.Time{}
	}
	if d.since.IsZero() || !d.settled.IsZero() || d.incarnation != incarnation {
		d.begin(incarnation, now, limits)
	}
	until = d.since.Add(limits.Longest - d.spent)
	return now.Before(until), until
}

// begin starts the doubt about an incarnation.
func (d *Doubt) begin(incarnation string, now time.Time, limits DoubtLimits) {
	if !d.recent(now, limits) {
		*d = Doubt{window: now}
	}
	d.spent += d.lasted(now, limits)
	d.incarnation, d.since, d.settled = incarnation, now, time.Time{}
}

// lasted is how long the last doubt kept requests waiting.
func (d *Doubt) lasted(now time.Time, limits DoubtLimits) time.Duration {
	if d.since.IsZero() {
		return 0
	}
	end := d.settled
	if end.IsZero() {
		end = now
	}
	return min(end.Sub(d.since), limits.Longest-d.spent)
}

// recent reports whether the window of the last doubt lasts: until it ends
// the account must be kept.
func (d *Doubt) recent(now time.Time, limits DoubtLimits) bool {
	return !d.window.IsZero() && now.Before(d.window.Add(limits.Window))
}
