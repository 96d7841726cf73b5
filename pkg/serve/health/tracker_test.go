package health

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

var (
	b = Peer{ServerID: "b", Incarnation: "b_1", Address: "192.0.2.1:6443"}
	c = Peer{ServerID: "c", Incarnation: "c_1", Address: "192.0.2.2:6443"}
)

// network is what a tracker dials.
type network struct {
	start time.Time

	mu      sync.Mutex
	dials   map[string][]time.Duration // since the start, by address
	answers map[string]bool
	hangs   map[string]bool
	gone    map[Peer]bool
}

func (n *network) redial(ctx context.Context, address string) error {
	n.mu.Lock()
	n.dials[address] = append(n.dials[address], time.Since(n.start))
	answers, hangs := n.answers[address], n.hangs[address]
	n.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if answers {
		return nil
	}
	return errors.New("refused")
}

func (n *network) known(p Peer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.gone[p]
}

func (n *network) dialled(address string) []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dials[address])
}

func (n *network) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// inTime runs a test in virtual time, with a tracker that runs until it ends.
func inTime(t *testing.T, test func(t *testing.T, n *network, tracker *Tracker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{
			start: time.Now(), dials: map[string][]time.Duration{},
			answers: map[string]bool{}, hangs: map[string]bool{}, gone: map[Peer]bool{},
		}
		tracker := New(Config{Redial: n.redial, Known: n.known, Clock: clock.RealClock{}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); tracker.Run(ctx) }()
		test(t, n, tracker)
		cancel()
		<-done
	})
}

func wantDials(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("dialled after %v, want %v", got, want)
	}
}

func TestSuspectIsDialledUntilItAnswers(t *testing.T) {
	inTime(t, func(t *testing.T, n *network, tracker *Tracker) {
		if tracker.Suspect(b) {
			t.Error("a suspect from the start")
		}
		for range 100 {
			tracker.Failed(b)
		}
		if !tracker.Suspect(b) || tracker.Suspect(c) {
			t.Error("not the one that failed is a suspect")
		}
		time.Sleep(40 * time.Second)
		want := []time.Duration{
			500 * time.Millisecond, 1500 * time.Millisecond, 3500 * time.Millisecond,
			7500 * time.Millisecond, 15500 * time.Millisecond, 25500 * time.Millisecond, 35500 * time.Millisecond,
		}
		wantDials(t, n.dialled(b.Address), want...)
		if !tracker.Suspect(b) {
			t.Error("well before it has answered")
		}
		n.set(func() { n.answers[b.Address] = true })
		time.Sleep(time.Minute)
		wantDials(t, n.dialled(b.Address), append(want, 45500*time.Millisecond)...)
		if tracker.Suspect(b) {
			t.Error("still a suspect")
		}
		wantDials(t, n.dialled(c.Address))
	})
}

func TestAnswerToARequestEndsTheRedialling(t *testing.T) {
	inTime(t, func(t *testing.T, n *network, tracker *Tracker) {
		tracker.Failed(b)
		time.Sleep(time.Second)
		tracker.Answered(b)
		if tracker.Suspect(b) {
			t.Error("still a suspect")
		}
		time.Sleep(time.Minute)
		wantDials(t, n.dialled(b.Address), 500*time.Millisecond)
		// The next time it begins anew.
		tracker.Failed(b)
		time.Sleep(time.Second)
		wantDials(t, n.dialled(b.Address), 500*time.Millisecond, 61500*time.Millisecond)
	})
}

func TestAnswerDuringARedialEndsIt(t *testing.T) {
	inTime(t, func(t *testing.T, n *network, tracker *Tracker) {
		n.set(func() { n.hangs[b.Address] = true })
		tracker.Failed(b)
		time.Sleep(time.Second)
		tracker.Answered(b)
		synctest.Wait()
		if tracker.Suspect(b) {
			t.Error("the dial that was given up counts as one that failed")
		}
	})
}

func TestHangingSuspectHoldsUpNoOther(t *testing.T) {
	inTime(t, func(t *testing.T, n *network, tracker *Tracker) {
		n.set(func() { n.hangs[b.Address], n.answers[c.Address] = true, true })
		tracker.Failed(b)
		time.Sleep(time.Second)
		tracker.Failed(c)
		time.Sleep(time.Second)
		if !tracker.Suspect(b) || tracker.Suspect(c) {
			t.Errorf("b a suspect: %t, c a suspect: %t", tracker.Suspect(b), tracker.Suspect(c))
		}
	})
}

func TestMovedOrRestartedPeerStartsWell(t *testing.T) {
	inTime(t, func(t *testing.T, _ *network, tracker *Tracker) {
		tracker.Failed(b)
		moved, restarted := b, b
		moved.Address, restarted.Incarnation = c.Address, "b_2"
		if tracker.Suspect(moved) || tracker.Suspect(restarted) {
			t.Error("a suspect for what it was before")
		}
	})
}

func TestPeerThatLeftIsForgotten(t *testing.T) {
	inTime(t, func(t *testing.T, n *network, tracker *Tracker) {
		tracker.Failed(b)
		n.set(func() { n.gone[b] = true })
		time.Sleep(time.Minute)
		wantDials(t, n.dialled(b.Address))
		if tracker.Suspect(b) {
			t.Error("still a suspect")
		}
		tracker.Failed(b)
		if tracker.Suspect(b) {
			t.Error("a suspect though it has left")
		}
	})
}

func TestSuspectFoundBeforeRunIsDialled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := func(context.Context, string) error { return nil }
		tracker := New(Config{Redial: answers, Known: func(Peer) bool { return true }, Clock: clock.RealClock{}})
		tracker.Failed(b)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go tracker.Run(ctx)
		time.Sleep(time.Second)
		if tracker.Suspect(b) {
			t.Error("still a suspect")
		}
	})
}

// inTime fails, too, if Run leaves anything behind.
func TestRunEndsWithItsContext(t *testing.T) {
	inTime(t, func(_ *testing.T, n *network, tracker *Tracker) {
		n.set(func() { n.hangs[b.Address] = true })
		tracker.Failed(b)
		time.Sleep(time.Second)
		tracker.Failed(c)
	})
}
