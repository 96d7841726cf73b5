package sim

import (
	"fmt"
	"time"
)

// What must or may be known of a server that is not ready: it takes part from
// the moment that it can be asked, and leaves nothing behind.

// String describes how a server begins.
func (y youth) String() string {
	if y.never {
		return fmt.Sprintf("never to be ready, its lease after %v", y.hooks)
	}
	return fmt.Sprintf("ready after %v, its lease after %v", y.unready, y.hooks)
}

// wasReady reports whether an incarnation was ready before a time.
func (s *span) wasReady(t time.Time) bool { return !s.ready.IsZero() && !s.ready.After(t) }

// shows is when an incarnation can be known of.
func (s *span) shows() time.Time { return latest(s.from, s.claimed) }

// ended is when an incarnation began to end, zero if it did not.
func (s *span) ended() time.Time {
	if s.stopping.IsZero() {
		return s.to
	}
	return s.stopping
}

// mustKnowStarting reports whether server a must know the document of the last
// of a member's incarnations although it is not ready. It needs mu.
func (h *history) mustKnowStarting(a *span, lives []*span, t time.Time) bool {
	b := lives[len(lives)-1]
	if b.brand != "" || !b.ended().IsZero() || !h.mayStart(lives, t) {
		return false
	}
	if since, calm := h.calmEtcdSince(a.id, b.id, t); !calm || since.After(b.from) {
		return false // the record may have ended, and with it all
	}
	_, known := h.learntSince(a, b, b.claimed, t)
	return known
}

// mayStart reports whether the last of a member's incarnations has certainly not
// used up the time for which it may take part before it is ready.
func (h *history) mayStart(lives []*span, t time.Time) bool {
	var used time.Duration
	for _, b := range lives {
		end := t
		if ended := b.ended(); !ended.IsZero() {
			end = ended.Add(recordTTL)
		}
		if b.wasReady(end) {
			end = b.ready
		}
		used += end.Sub(b.from)
	}
	return used < h.beginning-noticing
}

// forgettingStarting is how long what a server had that was not ready may stay
// once its record is gone.
const forgettingStarting = time.Second

// mustHaveForgotten reports whether what an incarnation had that was never ready
// must be gone from server a. It needs mu.
func (h *history) mustHaveForgotten(a, b *span, t time.Time) bool {
	if since, calm := h.calmEtcdSince(a.id, b.id, t); !calm || since.After(b.from.Add(-recordTTL)) && !since.Equal(h.began) {
		return false // it may have looked ready
	}
	if ended := b.ended(); !ended.IsZero() && t.After(ended.Add(recordTTL+forgettingStarting)) {
		return true
	}
	return t.After(latest(a.from, b.from).Add(h.beginning + learning))
}

// mayBeUnproven reports whether what a stock server has, the last of the
// incarnations given, may not be kept: the record of the one before may have been
// there, and it did not write its own for long enough to tell them apart.
func (h *history) mayBeUnproven(lives []*span) bool {
	b := lives[len(lives)-1]
	if b.brand != stock || len(lives) == 1 || b.ended().IsZero() {
		return false
	}
	before := lives[len(lives)-2]
	leftOver := b.ready.Before(before.ended().Add(recordTTL)) || h.heldUp(before)
	return leftOver && b.ended().Before(b.ready.Add(proving))
}

// proving is how long a stock server has to be ready to be told from the one
// whose record it found: it writes its own twice, and one more poll.
const proving = 45 * time.Second

// judgeRefusal judges an answer that is what a server said which was not ready.
// No client may see it, unless nothing could tell yet that it is not ready. It
// needs mu.
func (h *history) judgeRefusal(a *span, by string, o *outcome) error {
	b := h.at(by, o.to)
	if b == nil || b.claimed.IsZero() || o.from.Before(b.claimed.Add(noticing)) {
		return nil
	}
	if b.brand != "" && o.from.Before(b.from.Add(recordTTL+noticing)) {
		return nil // the record of the one before may be there
	}
	if since, calm := h.calmEtcdSince(a.id, by, o.to); !calm || since.After(b.from) {
		return nil
	}
	return fmt.Errorf("%d of %s, which is not ready", o.code, by)
}
