package sim

import (
	"slices"
	"sync"
	"time"
)

// history is what truly happened. Its methods may be called by any goroutine.
type history struct {
	mu    sync.Mutex
	began time.Time
	// lives are the incarnations of each server, in order.
	lives map[string][]*span
	// troubles are the times in which something was wrong.
	troubles []*trouble
	// defined are the times in which a custom resource definition existed.
	defined map[string][]*period
	// grace is how long the documents of one that left are kept, beginning how long
	// a server takes part in all that is not ready.
	grace, beginning time.Duration
}

// period is a time; to is zero while it lasts.
type period struct{ from, to time.Time }

// span is an incarnation of a server.
type span struct {
	period
	id      string
	version int
	brand   brand
	// claimed is when its identity lease began to bear its name, ready when it
	// published its record, stopping when it began to stop in good order; zero if
	// it did not.
	claimed, ready, stopping time.Time
}

func (s *span) serves(r resource, verb string) bool { return versions[s.version].has(r, verb) }

// alive reports whether the span holds at a time.
func (p period) holds(t time.Time) bool { return !p.from.After(t) && (p.to.IsZero() || p.to.After(t)) }

// trouble is something that is wrong with a server, or between two.
type trouble struct {
	period
	// what names it, so that it can be ended.
	what string
	// a and b are the servers; an empty name stands for any.
	a, b string
	// etcd is true if only the way to etcd is concerned.
	etcd bool
}

// touches reports whether a trouble is one of, or between, two servers.
func (t *trouble) touches(a, b string) bool {
	if t.b == "" {
		return t.a == "" || t.a == a || t.a == b
	}
	return t.a == a && t.b == b || t.a == b && t.b == a
}

func newHistory(grace, beginning time.Duration) *history {
	return &history{
		began: time.Now(), lives: map[string][]*span{}, defined: map[string][]*period{},
		grace: grace, beginning: beginning,
	}
}

func (h *history) started(l *life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives[l.id] = append(h.lives[l.id], &span{period: period{from: time.Now()}, id: l.id, version: l.version, brand: l.brand})
}

// last is the newest incarnation of a server. It needs mu.
func (h *history) last(id string) *span {
	if all := h.lives[id]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

func (h *history) claimed(l *life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last(l.id).claimed = time.Now()
}

func (h *history) ready(l *life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last(l.id).ready = time.Now()
}

func (h *history) stopping(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last(id).stopping = time.Now()
}

func (h *history) ended(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last(id).to = time.Now()
}

// begin notes that a trouble begins.
func (h *history) begin(what, a, b string, etcd bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.troubles = append(h.troubles, &trouble{period: period{from: time.Now()}, what: what, a: a, b: b, etcd: etcd})
}

// end notes that all troubles of that name, between these two, are over.
func (h *history) end(what, a, b string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.troubles {
		if t.what == what && t.a == a && t.b == b && t.to.IsZero() {
			t.to = time.Now()
		}
	}
}

func (h *history) define(name string, exists bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.defined[name]
	if exists {
		h.defined[name] = append(all, &period{from: time.Now()})
		return
	}
	all[len(all)-1].to = time.Now()
}

// calm returns the times within a period in which nothing was wrong with or
// between two servers, trouble with etcd included if etcd is true. It needs mu.
func (h *history) calm(a, b string, within period, etcd bool) []period {
	times := []period{within}
	for _, t := range h.troubles {
		if t.etcd && !etcd || !t.touches(a, b) {
			continue
		}
		var rest []period
		for _, p := range times {
			rest = append(rest, p.without(t.period)...)
		}
		times = rest
	}
	slices.SortFunc(times, func(a, b period) int { return a.from.Compare(b.from) })
	return times
}

// without returns what is left of a period that has an end.
func (p period) without(o period) []period {
	if !o.from.Before(p.to) || !o.to.IsZero() && !o.to.After(p.from) {
		return []period{p}
	}
	var rest []period
	if o.from.After(p.from) {
		rest = append(rest, period{p.from, o.from})
	}
	if !o.to.IsZero() && o.to.Before(p.to) {
		rest = append(rest, period{o.to, p.to})
	}
	return rest
}

// calmSince is since when nothing was wrong between two servers at a time, and
// false if something was.
func (h *history) calmSince(a, b string, t time.Time, etcd bool) (since time.Time, calm bool) {
	times := h.calm(a, b, period{h.began, t}, etcd)
	if len(times) == 0 {
		return t, t.Equal(h.began)
	}
	last := times[len(times)-1]
	return last.from, last.to.Equal(t)
}
