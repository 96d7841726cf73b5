package health

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
)

// Peer names a peer as it was reached. One that has moved or was started anew is
// another, and starts well.
type Peer struct {
	// ServerID is the name of its identity lease, Incarnation the holder of that.
	ServerID, Incarnation string
	// Address is the host:port of its endpoint record.
	Address string
}

// Config is what a [Tracker] needs. All fields are required.
type Config struct {
	// Redial connects to the address and returns nil if the peer there answers,
	// whatever it says. It has to return soon after its context has ended, and to
	// bound by itself how long it tries.
	Redial func(ctx context.Context, address string) error
	// Known reports whether there is still such a peer that is said to be
	// reachable. One that is not known is no suspect: nothing is expected of it.
	Known func(Peer) bool
	// Clock is the source of time.
	Clock clock.Clock
}

// Tracker knows the suspects among the peers. It is safe for concurrent use.
type Tracker struct {
	config Config
	// count is how many suspects there are, for those who ask while there is none.
	count atomic.Int32
	// appeared holds a token while there may be a suspect that Run has not seen.
	appeared chan struct{}

	mu       sync.Mutex
	suspects map[Peer]*suspect
}

// suspect is a peer that is not well.
type suspect struct {
	state
	// attended is whether Run has seen it, stop what ends its re-dialling once
	// that has begun.
	attended bool
	stop     context.CancelFunc
}

// New returns a tracker to which every peer is well. Call Run for suspects to be
// dialled again.
func New(c Config) *Tracker {
	return &Tracker{config: c, appeared: make(chan struct{}, 1), suspects: map[Peer]*suspect{}}
}

// Suspect reports whether the peer is a suspect.
func (t *Tracker) Suspect(peer Peer) bool {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.suspects[peer] != nil
}

// Failed says that a request's connection to the peer could not be made, or
// broke.
func (t *Tracker) Failed(peer Peer) {
	if t.config.Known(peer) {
		t.note(peer, requestFailed)
	}
}

// Answered says that the peer has answered something.
func (t *Tracker) Answered(peer Peer) {
	if t.count.Load() > 0 {
		t.note(peer, answered)
	}
}

func (t *Tracker) note(peer Peer, o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var before state
	known := t.suspects[peer]
	if known != nil {
		before = known.state
	}
	after := before.after(o, t.config.Clock.Now())
	switch {
	case !after.suspect():
		t.forget(peer)
	case known != nil:
		known.state = after
	default:
		t.suspects[peer] = &suspect{state: after}
		t.counted()
		select {
		case t.appeared <- struct{}{}:
		default:
		}
	}
}

// forget makes a peer well, and ends its re-dialling. It needs mu.
func (t *Tracker) forget(peer Peer) {
	known := t.suspects[peer]
	if known == nil {
		return
	}
	if known.stop != nil {
		known.stop()
	}
	delete(t.suspects, peer)
	t.counted()
}

func (t *Tracker) counted() {
	t.count.Store(int32(len(t.suspects)))
	metrics.SetSuspectPeers(len(t.suspects))
}

// Run dials suspects again, one goroutine for each, until ctx ends, and returns
// when all of them are gone. Call it once.
func (t *Tracker) Run(ctx context.Context) {
	var redialling sync.WaitGroup
	defer redialling.Wait()
	for {
		for peer, known := range t.unattended() {
			redialling.Go(func() { t.redial(ctx, peer, known) })
		}
		select {
		case <-ctx.Done():
			return
		case <-t.appeared:
		}
	}
}

// unattended returns the suspects that no one dials yet. The caller has to.
func (t *Tracker) unattended() map[Peer]*suspect {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := map[Peer]*suspect{}
	for peer, known := range t.suspects {
		if !known.attended {
			known.attended = true
			found[peer] = known
		}
	}
	return found
}

// redial dials the suspect until it is well or ctx ends.
func (t *Tracker) redial(ctx context.Context, peer Peer, known *suspect) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	logger := klog.FromContext(ctx).WithValues("peer", peer.ServerID, "address", peer.Address)
	logger.V(2).Info("A connection to a peer has failed; it is dialled in the background until it answers")
	for t.await(ctx, peer, known, stop) {
		if !t.config.Known(peer) {
			t.note(peer, gone)
			return
		}
		err := t.config.Redial(ctx, peer.Address)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			logger.V(2).Info("The peer answers again")
			t.note(peer, answered)
			return
		}
		logger.V(4).Info("The peer does not answer yet", "err", err)
		t.note(peer, redialFailed)
	}
}

// await returns true when it is time to dial the suspect, false if it is none
// any more or ctx has ended before.
func (t *Tracker) await(ctx context.Context, peer Peer, known *suspect, stop context.CancelFunc) bool {
	t.mu.Lock()
	known.stop = stop
	current, next := t.suspects[peer], known.next
	t.mu.Unlock()
	if current != known {
		return false
	}
	timer := t.config.Clock.NewTimer(next.Sub(t.config.Clock.Now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
