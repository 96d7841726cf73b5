package sim

import (
	"slices"
	"time"
)

// What a server must know of another by now, and what it may still believe: the
// two ends of what a correct answer can be, from the history alone.

const (
	// learning is how long a server may take to read another's document after
	// trouble: a poll that failed is repeated after 11 s at most, and takes 5 s; a
	// broken connection is noticed within 5 s.
	learning = 25 * time.Second
	// learningAtOnce is the same where there was no trouble for a minute: a new
	// incarnation is asked as soon as its lease tells of it, or when an attempt to
	// connect to the one before is given up.
	learningAtOnce = 6 * time.Second
	longAgo        = time.Minute
	// recordTTL is how long a dead server's record lives.
	recordTTL = 15 * time.Second
	// doubtLimit bounds how long a missing document keeps requests from a 404,
	// within doubtWindow.
	doubtLimit  = 30 * time.Second
	doubtWindow = 10 * time.Minute
	// noticing is how long news from etcd takes to be acted on.
	noticing = 500 * time.Millisecond
)

// at is the incarnation of a server that lives at a time, or nil. It needs mu.
func (h *history) at(id string, t time.Time) *span {
	for _, s := range h.lives[id] {
		if s.holds(t) {
			return s
		}
	}
	return nil
}

// others are the incarnations of other servers that had begun by a time, oldest
// first for each. It needs mu.
func (h *history) others(a *span, t time.Time) map[string][]*span {
	others := map[string][]*span{}
	for id, lives := range h.lives {
		if id == a.id {
			continue
		}
		for _, s := range lives {
			if !s.from.After(t) {
				others[id] = append(others[id], s)
			}
		}
	}
	return others
}

// learnt is by when server a must have known the document of incarnation b
// because it was ready, and false if it need not by a time. It needs mu.
func (h *history) learnt(a, b *span, t time.Time) (time.Time, bool) {
	return h.learntSince(a, b, b.ready, t)
}

// learntSince is the same since b showed.
func (h *history) learntSince(a, b *span, shown, t time.Time) (time.Time, bool) {
	if shown.IsZero() || shown.After(t) {
		return t, false
	}
	within := period{latest(a.from, shown), t}
	if !b.stopping.IsZero() && b.stopping.Before(t) {
		within.to = b.stopping
	}
	if !b.to.IsZero() && b.to.Before(within.to) {
		within.to = b.to
	}
	if !within.from.Before(within.to) {
		return t, false
	}
	need := learning
	if h.untroubled(a.id, b.id, within.from) {
		need = learningAtOnce
	}
	for i, p := range h.calm(a.id, b.id, within, true) {
		if i > 0 {
			need = learning
		}
		if p.from.After(within.from) {
			need = learning
		}
		if known := p.from.Add(need); !known.After(p.to) {
			return known, true
		}
	}
	return t, false
}

// untroubled reports whether nothing was wrong between two servers for a while
// before a time. It needs mu.
func (h *history) untroubled(a, b string, t time.Time) bool {
	since, calm := h.calmSince(a, b, t, true)
	return calm && (since.Equal(h.began) || t.Sub(since) >= longAgo)
}

// mustKnow reports whether server a must know at a time that some other member
// serves a resource. It needs mu.
func (h *history) mustKnow(a *span, r resource, verb string, t time.Time) bool {
	for _, lives := range h.others(a, t) {
		if h.mustKnowOf(a, lives, r, verb, t) {
			return true
		}
	}
	return false
}

// mustKnowOf is the same for one member, whose incarnations are given.
func (h *history) mustKnowOf(a *span, lives []*span, r resource, verb string, t time.Time) bool {
	for i, b := range slices.Backward(lives) {
		if !b.wasReady(t) && b.serves(r, verb) && h.mustKnowStarting(a, lives[:i+1], t) {
			return true
		}
		if !b.wasReady(t) && h.mustHaveForgotten(a, b, t) {
			continue // what an earlier one served is in force again
		}
		if !b.serves(r, verb) {
			return false // what was known of earlier ones may be replaced by now
		}
		if _, known := h.learnt(a, b, t); known {
			return !h.mayBeUnproven(lives[:i+1]) && !h.mayHaveDeparted(lives[i:], t)
		}
	}
	return false
}

// mustWaitFor reports whether server a, which has just started, must have waited
// for the document of a member that serves a resource. It needs mu.
func (h *history) mustWaitFor(a *span, r resource, verb string, t time.Time) bool {
	for id, lives := range h.others(a, t) {
		b := lives[len(lives)-1]
		if !b.serves(r, verb) || b.ready.IsZero() || b.ready.After(a.from.Add(-noticing)) || !b.stopping.IsZero() || !b.to.IsZero() {
			continue
		}
		if since, calm := h.calmSince(a.id, id, t, true); calm && (since.Equal(h.began) || a.from.Sub(since) >= longAgo) {
			return true
		}
	}
	return false
}

// mayHaveDeparted reports whether a member, whose incarnations since its document
// was known are given, may have been away for so long that this is dropped.
func (h *history) mayHaveDeparted(lives []*span, t time.Time) bool {
	for i, b := range lives {
		back := t
		if i+1 < len(lives) {
			back = lives[i+1].shows()
		}
		if !b.stopping.IsZero() && back.After(b.stopping.Add(h.grace-time.Second)) {
			return true
		}
		// One that runs without a record may never have one.
		if i > 0 && !b.wasReady(t) && t.After(b.shows().Add(h.beginning+h.grace-time.Second)) {
			return true
		}
	}
	return false
}

// mayBelieve reports whether server a may believe at a time that one of a
// member's incarnations serves a resource. It needs mu.
func (h *history) mayBelieve(a *span, lives []*span, r resource, verb string, t time.Time) bool {
	last := lives[len(lives)-1]
	if gone := last.stopping; !gone.IsZero() {
		if since, _ := h.calmSince(a.id, last.id, t, true); since.After(gone) {
			gone = since // the news of it was held up
		}
		if t.After(gone.Add(h.grace + recordTTL + learning)) {
			return false
		}
	}
	if h.mustCountAsGone(a, last, t) {
		return false
	}
	for i, b := range slices.Backward(lives) {
		if !b.wasReady(t) && h.mustHaveForgotten(a, b, t) {
			continue
		}
		if b.serves(r, verb) && (b.to.IsZero() || b.to.Add(recordTTL).After(a.from) || h.heldUp(b)) {
			return true
		}
		if _, known := h.learnt(a, b, t); known && !h.mayBeUnproven(lives[:i+1]) {
			return false
		}
	}
	return false
}

// mustCountAsGone reports whether a server that runs without a record has done so
// for so long that nothing that was known of earlier ones is kept.
func (h *history) mustCountAsGone(a, b *span, t time.Time) bool {
	if b.brand != bare || b.claimed.IsZero() || !b.ended().IsZero() {
		return false
	}
	since, calm := h.calmEtcdSince(a.id, b.id, t)
	return calm && t.After(latest(since, a.from, b.claimed, b.from.Add(recordTTL)).Add(h.beginning+h.grace+learning))
}

// heldUp reports whether a record may have outlived its server for longer than
// its time: etcd was away. It needs mu.
func (h *history) heldUp(b *span) bool {
	return slices.ContainsFunc(h.troubles, func(t *trouble) bool {
		return t.etcd && t.a == "" && (t.to.IsZero() || t.to.After(b.to)) && t.from.Before(b.to.Add(recordTTL))
	})
}

// listed is by when server a has read who is a member: as soon as it reaches
// etcd for the first time. It needs mu.
func (h *history) listed(a *span) time.Time {
	listed := a.from
	for _, t := range h.troubles { // by when they began
		if !t.etcd || t.a != "" && t.a != a.id || !t.holds(listed) {
			continue
		}
		if t.to.IsZero() {
			return a.from.Add(time.Hour)
		}
		listed = t.to
	}
	return listed
}

// mayDoubt reports whether server a may not know at a time what some member
// serves. It needs mu.
func (h *history) mayDoubt(a *span, t time.Time) bool {
	if t.Before(h.listed(a).Add(noticing)) {
		return true
	}
	for id, lives := range h.others(a, t) {
		last := lives[len(lives)-1]
		begin := latest(h.listed(a), last.from, last.claimed, last.ready)
		// News that were held up, or a record that came back, begin a doubt too.
		for _, trouble := range h.troubles {
			if trouble.etcd && trouble.touches(a.id, id) && !trouble.from.After(t) {
				begin = latest(begin, trouble.to)
				if trouble.to.IsZero() {
					begin = latest(begin, trouble.from.Add(recordTTL))
				}
			}
		}
		if t.Before(begin.Add(doubtLimit + noticing)) {
			return true
		}
	}
	return false
}

// mustDoubt reports whether server a must know, from one time to another, that
// there is a member whose document it does not know, and which serves a
// resource. It needs mu.
func (h *history) mustDoubt(a *span, r resource, verb string, from, to time.Time) bool {
	if !builtIn(r.group) {
		return false
	}
	if from.Before(h.listed(a)) {
		return true
	}
	for id, lives := range h.others(a, to) {
		b := lives[len(lives)-1]
		if !b.serves(r, verb) || !b.stopping.IsZero() || !b.to.IsZero() || b.claimed.IsZero() || !b.wasReady(from) && (b.brand != "" || !h.mayStart(lives, to)) {
			continue
		}
		since, calm := h.calmEtcdSince(a.id, id, to)
		begin := latest(a.from, b.from)
		seen := latest(a.from, b.claimed).Add(noticing)
		if calm && !since.After(begin) && !from.Before(seen) && to.Before(begin.Add(doubtLimit-time.Second-h.spent(a, lives[:len(lives)-1], to))) {
			return true
		}
	}
	return false
}

// calmEtcdSince is since when nothing was wrong between either server and etcd.
func (h *history) calmEtcdSince(a, b string, t time.Time) (since time.Time, calm bool) {
	since = h.began
	for _, trouble := range h.troubles {
		if !trouble.etcd || !trouble.touches(a, b) || trouble.from.After(t) {
			continue
		}
		if trouble.holds(t) {
			return t, false
		}
		since = latest(since, trouble.to)
	}
	return since, true
}

// spent is how long server a may have doubted earlier incarnations. It needs mu.
func (h *history) spent(a *span, lives []*span, t time.Time) (total time.Duration) {
	for _, b := range lives {
		begin := latest(a.from, b.from)
		end := b.to.Add(doubtLimit)
		if known, ok := h.learnt(a, b, t); ok {
			end = known
		}
		if end.After(begin) && t.Sub(end) < doubtWindow {
			total += min(end.Sub(begin), doubtLimit)
		}
	}
	return total
}

func latest(t time.Time, others ...time.Time) time.Time {
	for _, o := range others {
		if o.After(t) {
			t = o
		}
	}
	return t
}
