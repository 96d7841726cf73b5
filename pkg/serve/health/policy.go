package health

import "time"

// A suspect is dialled again after firstWait; the wait doubles with each dial
// that fails, up to longestWait.
const (
	firstWait   = 500 * time.Millisecond
	longestWait = 10 * time.Second
)

// outcome is what came of a request to a peer, or of dialling it again, as far
// as the connection is concerned.
type outcome int

const (
	// answered: the peer has said something, whatever it was.
	answered outcome = iota
	// requestFailed: a request's connection could not be made, or broke.
	requestFailed
	// redialFailed: dialling the suspect again has failed.
	redialFailed
	// gone: nothing is expected of the peer any more.
	gone
)

// state is what is known of a peer's connections. The zero state is well.
type state struct {
	// wait is what lies between the last dial and the next, zero for a peer that
	// is well.
	wait time.Duration
	// next is when a suspect is dialled again.
	next time.Time
}

func (s state) suspect() bool { return s.wait > 0 }

// after returns the state after an outcome. Requests that fail at a suspect
// change nothing: when a connection breaks, all that were on it fail at once,
// and say no more than the first.
func (s state) after(o outcome, now time.Time) state {
	var wait time.Duration
	switch {
	case o == answered, o == gone:
		return state{}
	case o == requestFailed && !s.suspect():
		wait = firstWait
	case o == redialFailed && s.suspect():
		wait = min(2*s.wait, longestWait)
	default:
		return s
	}
	return state{wait: wait, next: now.Add(wait)}
}
