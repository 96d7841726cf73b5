package forward

import (
	"strings"
	"testing"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

func TestChoose(t *testing.T) {
	const (
		serving     = snapshot.StateServing
		starting    = snapshot.StateStarting
		unreachable = snapshot.StateUnreachable
		departed    = snapshot.StateDeparted
	)
	tests := []struct {
		name     string
		states   []snapshot.State
		suspects string
		inFlight []int
		random   []int
		want     int
	}{
		{"alone", []snapshot.State{starting}, "", []int{9}, nil, 0},
		{"best state alone", []snapshot.State{serving, starting, starting}, "", []int{9, 0, 0}, nil, 0},
		{"fewer in flight, first drawn", []snapshot.State{serving, serving, serving}, "", []int{0, 5, 9}, []int{0, 1}, 0},
		{"fewer in flight, second drawn", []snapshot.State{serving, serving, serving}, "", []int{0, 5, 9}, []int{2, 1}, 1},
		{"the emptiest is not drawn", []snapshot.State{serving, serving, serving}, "", []int{0, 5, 9}, []int{1, 1}, 1},
		{"draws two different ones", []snapshot.State{serving, serving}, "", []int{1, 0}, []int{0, 0}, 1},
		{"equal", []snapshot.State{serving, serving}, "", []int{3, 3}, []int{1, 0}, 1},
		{"departed beside unreachable", []snapshot.State{unreachable, departed}, "", []int{1, 0}, []int{0, 0}, 1},
		{"worse states are not drawn", []snapshot.State{serving, serving, unreachable}, "", []int{1, 1, 0}, []int{1, 0}, 1},
		{"a suspect is not drawn", []snapshot.State{serving, serving, serving}, "a", []int{0, 5, 5}, []int{1, 0}, 2},
		{"a suspect before one that starts", []snapshot.State{serving, starting}, "a", []int{9, 0}, nil, 0},
		{"suspects alone", []snapshot.State{serving, serving}, "ab", []int{1, 0}, []int{0, 0}, 1},
		{"the last is never ejected", []snapshot.State{serving}, "a", []int{9}, nil, 0},
		{"one that starts before a suspect that does", []snapshot.State{starting, starting}, "a", []int{0, 9}, nil, 1},
		{"a suspect that starts before the unreachable", []snapshot.State{unreachable, starting}, "b", []int{0, 9}, nil, 1},
		{"all unreachable are equal", []snapshot.State{unreachable, departed}, "a", []int{1, 1}, []int{0, 0}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var peers []*snapshot.Peer
			load := map[string]int{}
			for i, state := range test.states {
				id := string(rune('a' + i))
				peers = append(peers, &snapshot.Peer{ServerID: id, State: state})
				load[id] = test.inFlight[i]
			}
			drawn := 0
			random := func(n int) int {
				drawn++
				if v := test.random[drawn-1]; v < n {
					return v
				}
				t.Fatalf("drew from %d", n)
				return 0
			}
			suspect := func(p *snapshot.Peer) bool { return strings.Contains(test.suspects, p.ServerID) }
			if got := choose(peers, suspect, func(id string) int { return load[id] }, random); got != test.want {
				t.Errorf("chose %d, want %d", got, test.want)
			}
		})
	}
}

func TestInFlightIsCountedWhileARequestLasts(t *testing.T) {
	b := newWatching(false)
	w := newWorld(t, &b.Peer)
	events, cancel := w.stream(w.front.Client(), watch)
	wantLine(t, events, "event 1")
	if n := w.forwarder.inFlight.get("b"); n != 1 {
		t.Errorf("%d in flight", n)
	}
	cancel()
	<-b.ended

	peertest.Eventually(t, "nothing is in flight", func() bool {
		w.forwarder.inFlight.mu.Lock()
		defer w.forwarder.inFlight.mu.Unlock()
		return len(w.forwarder.inFlight.byServer) == 0
	})
}
