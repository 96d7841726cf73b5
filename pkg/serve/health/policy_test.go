package health

import (
	"testing"
	"time"
)

func TestStateAfterOutcome(t *testing.T) {
	now := time.Unix(1000, 0)
	in := func(wait time.Duration) state { return state{wait: wait, next: now.Add(wait)} }
	before := func(wait time.Duration) state { return state{wait: wait, next: now.Add(-time.Minute)} }
	tests := []struct {
		name    string
		state   state
		outcome outcome
		want    state
	}{
		{"well, answers", state{}, answered, state{}},
		{"well, a request fails", state{}, requestFailed, in(500 * time.Millisecond)},
		{"well since, a late dial fails", state{}, redialFailed, state{}},
		{"suspect, answers", before(8 * time.Second), answered, state{}},
		{"suspect, is no peer any more", before(8 * time.Second), gone, state{}},
		{"suspect, more requests fail", before(time.Second), requestFailed, before(time.Second)},
		{"suspect, the first dial fails", before(500 * time.Millisecond), redialFailed, in(time.Second)},
		{"suspect, the fifth dial fails", before(8 * time.Second), redialFailed, in(10 * time.Second)},
		{"suspect, a later dial fails", before(10 * time.Second), redialFailed, in(10 * time.Second)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := test.state.after(test.outcome, now)
			if got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if got.suspect() != (test.want != state{}) {
				t.Errorf("suspect: %t", got.suspect())
			}
		})
	}
}
