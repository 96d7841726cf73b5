package observe

import (
	"slices"
	"time"
)

// Allowance bounds what one server may cost the others: at most Longest in all
// within any Window.
type Allowance struct {
	Longest, Window time.Duration
}

// Account is how much of an allowance one server has used up: the time for
// which its document was missing, or for which it was not ready yet. A server
// that stays broken, or starts again and again, must not keep that up.
type Account struct {
	// incarnation is the one that uses it now, zero without one; from and until
	// are when that began and when it ends if nothing ends it before.
	incarnation string
	from, until time.Time
	// spent are the earlier uses.
	spent []span
}

type span struct{ from, until time.Time }

// use takes in whether the server's incarnation needs the allowance, and
// reports whether it has some. until is when that ends by itself.
//
// An incarnation that used it up gets no more: a server that can't be asked for
// an hour is doubted once.
func (a *Account) use(needed bool, incarnation string, now time.Time, limits Allowance) (granted bool, until time.Time) {
	if !needed {
		a.end(now)
		return false, time.Time{}
	}
	if a.from.IsZero() || a.incarnation != incarnation {
		a.end(now)
		a.forget(now, limits)
		a.incarnation, a.from, a.until = incarnation, now, now.Add(limits.Longest-a.total())
	}
	return now.Before(a.until), a.until
}

// end puts the use that lasts among those that were.
func (a *Account) end(now time.Time) {
	if a.from.IsZero() {
		return
	}
	if now.After(a.until) {
		now = a.until
	}
	// A clone: the account is remembered in more than one state. Uses that follow
	// one another are one: an incarnation may change all the time.
	last := len(a.spent) - 1
	switch a.spent = slices.Clone(a.spent); {
	case last >= 0 && a.spent[last].until.Equal(a.from):
		a.spent[last].until = now
	case now.After(a.from):
		a.spent = append(a.spent, span{a.from, now})
	}
	a.incarnation, a.from, a.until = "", time.Time{}, time.Time{}
}

// forget drops the uses that ended a window ago.
func (a *Account) forget(now time.Time, limits Allowance) {
	limit := now.Add(-limits.Window)
	a.spent = slices.DeleteFunc(slices.Clone(a.spent), func(s span) bool { return s.until.Before(limit) })
}

func (a *Account) total() (total time.Duration) {
	for _, s := range a.spent {
		total += s.until.Sub(s.from)
	}
	return total
}

// open reports whether there is a use that still counts: until then the account
// must be kept.
func (a *Account) open(now time.Time, limits Allowance) bool {
	a.forget(now, limits)
	return !a.from.IsZero() || len(a.spent) > 0
}
