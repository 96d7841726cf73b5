package peerproxy

import (
	"testing"
	"time"

	"peerproxy.internal/pkg/observe"
)

func TestPeriodsAreTheObserversLimits(t *testing.T) {
	limits := func(starting, unknown, departed time.Duration) observe.Limits {
		return observe.Limits{
			DepartureGrace: departed,
			Doubt:          observe.Allowance{Longest: unknown, Window: 10 * time.Minute},
			Starting:       observe.Allowance{Longest: starting, Window: 10 * time.Minute},
		}
	}
	for periods, want := range map[Periods]observe.Limits{
		{}: limits(5*time.Minute, 30*time.Second, 10*time.Minute),
		{Starting: time.Minute, Unknown: time.Second, Departed: time.Hour}: limits(time.Minute, time.Second, time.Hour),
		{Unknown: time.Second}: limits(5*time.Minute, time.Second, 10*time.Minute),
	} {
		if got := periods.limits(); got != want {
			t.Errorf("%+v: got %+v, want %+v", periods, got, want)
		}
	}
}
