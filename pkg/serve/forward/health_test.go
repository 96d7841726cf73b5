package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"peerproxy.internal/pkg/serve/health"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// suspects returns the IDs of the candidates that are suspects.
func (w *world) suspects() string {
	ids := ""
	for _, candidate := range w.candidates {
		if w.forwarder.suspect(candidate) {
			ids += candidate.ServerID
		}
	}
	return ids
}

func (w *world) dialledAt(address string) int {
	n := 0
	for _, dialled := range w.dialled() {
		if dialled == address {
			n++
		}
	}
	return n
}

// Half of the requests would be sent there.
func TestDeadPeerIsTriedOnce(t *testing.T) {
	b, c := &peertest.Peer{ID: "b"}, &peertest.Peer{ID: "c"}
	w := newWorld(t, b, c)
	c.Stop()
	for range 100 {
		if got := w.do(w.request("POST", things, "body")); got.body != "b" {
			t.Errorf("got %d %s", got.code, got.body)
		}
	}
	if n := w.dialledAt(c.Address()); n != 1 || w.suspects() != "c" {
		t.Errorf("dialled %d times; suspects: %q", n, w.suspects())
	}
}

// When a connection breaks, what was on it moves on, nothing new goes there, and
// once a dial in the background was answered it is used again.
func TestSuspectIsAvoidedUntilItAnswersADial(t *testing.T) {
	const many = 20
	var reached sync.WaitGroup
	reached.Add(many)
	var holding atomic.Bool
	holding.Store(true)
	b, c := &peertest.Peer{ID: "b"}, &peertest.Peer{ID: "c"}
	b.Handler = handler(func(rw http.ResponseWriter, r *http.Request) {
		if holding.Load() {
			reached.Done()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(rw, "b")
	})
	w := newWorld(t, b, c)
	answers := make(chan struct{})
	w.redial = func(ctx context.Context, address string) error {
		select {
		case <-answers:
		case <-ctx.Done():
			return ctx.Err()
		}
		if address != b.Address() {
			return errors.New("still lost")
		}
		return w.forwarder.Transport.Redial(ctx, address)
	}
	w.health.Failed(healthOf(w.candidates[1])) // all go to b
	var inFlight sync.WaitGroup
	for range many {
		inFlight.Go(func() {
			if got := w.do(w.request("GET", things, "")); got.body != "c" {
				t.Errorf("in flight: got %d %s", got.code, got.body)
			}
		})
	}
	reached.Wait()
	w.health.Answered(healthOf(w.candidates[1]))
	b.CloseConnections()
	inFlight.Wait()
	holding.Store(false)
	for range many {
		if got := w.do(w.request("POST", things, "body")); got.body != "c" {
			t.Errorf("new: got %d %s", got.code, got.body)
		}
	}
	if w.suspects() != "b" {
		t.Errorf("suspects: %q", w.suspects())
	}
	close(answers)
	peertest.Eventually(t, "the suspect is well", func() bool { return w.suspects() == "" })
	w.health.Failed(healthOf(w.candidates[1]))
	if got := w.do(w.request("POST", things, "body")); got.body != "b" {
		t.Errorf("well again: got %d %s", got.code, got.body)
	}
}

func TestLastCandidateIsAskedThoughASuspect(t *testing.T) {
	b, c := &peertest.Peer{ID: "b"}, &peertest.Peer{ID: "c"}
	w := newWorld(t, b, c)
	c.Stop()
	for _, candidate := range w.candidates {
		w.health.Failed(healthOf(candidate))
	}
	for range 10 {
		if got := w.do(w.request("POST", things, "body")); got.body != "b" {
			t.Errorf("got %d %s", got.code, got.body)
		}
	}
	// The answer has made it well.
	if w.suspects() != "c" {
		t.Errorf("suspects: %q", w.suspects())
	}
}

// What happens to one request says nothing of the connection, and what happens
// to the connection does.
func TestWhatMakesASuspect(t *testing.T) {
	reset := handler(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	flush := func(rw http.ResponseWriter) {
		_, _ = io.WriteString(rw, "event 1\n")
		_ = http.NewResponseController(rw).Flush()
	}
	b := &peertest.Peer{ID: "b"}
	tests := []struct {
		name, path string
		handler    http.Handler
		want       bool
	}{
		{"an answer", things, nil, false},
		{"an error", things, readThenAnswer(500, nil, ""), false},
		{"a 401", things, readThenAnswer(401, nil, ""), false},
		{"a stream reset", things, reset, false},
		{"a watch reset", watch, handler(func(rw http.ResponseWriter, _ *http.Request) {
			flush(rw)
			panic(http.ErrAbortHandler)
		}), false},
		{"a connection lost", things, handler(func(http.ResponseWriter, *http.Request) { b.CloseConnections() }), true},
		{"a connection lost during a watch", watch, handler(func(rw http.ResponseWriter, r *http.Request) {
			flush(rw)
			b.CloseConnections()
			<-r.Context().Done()
		}), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b = &peertest.Peer{ID: "b", Handler: test.handler}
			w := newWorld(t, b)
			w.do(w.request("GET", test.path, ""))
			if got := w.suspects() == "b"; got != test.want {
				t.Errorf("a suspect: %t, want %t", got, test.want)
			}
		})
	}
}

func TestWhatIsHeldAgainstThePeer(t *testing.T) {
	lost, unreachable := io.ErrUnexpectedEOF, &transport.ConnectError{Reason: transport.ReasonDial, Err: errors.New("refused")}
	own := []reason{
		reasonClientGone, reasonClientBody, reasonDeadline, reasonShutdown, reasonBadRequest,
		reasonNotKept, reasonRefused, reasonNotServed, reasonUnauthorized, reasonUnready,
	}
	for _, reason := range own {
		for _, err := range []error{nil, lost, unreachable} {
			if (&failure{reason: reason, err: err}).ofConnection() {
				t.Errorf("%s: %v is held against the peer", reason, err)
			}
		}
	}
	for reason, err := range map[reason]error{reasonLost: lost, reasonCutOff: lost, reason(transport.ReasonDial): unreachable} {
		if !(&failure{reason: reason, err: err}).ofConnection() {
			t.Errorf("%s: %v is not held against the peer", reason, err)
		}
	}
}

// A connection that has carried requests breaks: the only candidate was started
// anew, or closes what is old.
func TestLostOnAReusedConnectionIsSentAgainOnAnother(t *testing.T) {
	breaks := map[string]func(*peertest.Peer, http.ResponseWriter){
		"before the answer": func(b *peertest.Peer, _ http.ResponseWriter) { b.CloseConnections() },
		"during a small answer": func(b *peertest.Peer, rw http.ResponseWriter) {
			rw.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(rw, "half")
			_ = http.NewResponseController(rw).Flush()
			b.CloseConnections()
		},
	}
	tests := []struct {
		method   string
		losses   int
		code     int
		executed int
	}{
		{"GET", 1, http.StatusOK, 2},
		{"GET", 2, http.StatusServiceUnavailable, 2},
		{"HEAD", 1, http.StatusOK, 2},
		{"OPTIONS", 1, http.StatusOK, 2},
	}
	for when, lose := range breaks {
		for _, test := range tests {
			if test.method != "GET" && when == "during a small answer" {
				continue // only an answer to GET is held back
			}
			t.Run(fmt.Sprintf("%s/%s/%d times", when, test.method, test.losses), func(t *testing.T) {
				b := &peertest.Peer{ID: "b"}
				left := test.losses
				var mu sync.Mutex
				b.Handler = handler(func(rw http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					if r.Header.Get("X-Lose") != "" && left > 0 {
						left--
						lose(b, rw)
					}
				})
				w := newWorld(t, b)
				w.do(w.request("GET", things, ""))
				req := w.request(test.method, things, "")
				req.Header.Set("X-Lose", "1")
				if got := w.do(req); got.code != test.code || got.err != nil {
					t.Errorf("got %d, %v", got.code, got.err)
				}
				if n := len(b.Requests()) - 1; n != test.executed {
					t.Errorf("executed %d times, want %d", n, test.executed)
				}
			})
		}
	}
}

// It is a suspect by then.
func TestSecondChanceComesAfterBetterCandidates(t *testing.T) {
	b, c := &peertest.Peer{ID: "b"}, &peertest.Peer{ID: "c"}
	b.Handler = handler(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Lose") != "" {
			b.CloseConnections()
		}
	})
	w := newWorld(t, b, c)
	w.candidates[1].State = snapshot.StateUnreachable
	w.do(w.request("GET", things, ""))
	for _, test := range []struct {
		state    snapshot.State
		executed int
	}{
		{snapshot.StateServing, 1},     // the other one answers
		{snapshot.StateUnreachable, 2}, // asked after it was lost a second time
	} {
		before := len(b.Requests())
		w.candidates[0].State, w.candidates[1].State = snapshot.StateServing, test.state
		w.forwarder.Random = func(int) int { return 0 }
		req := w.request("GET", things, "")
		req.Header.Set("X-Lose", "1")
		if got := w.do(req); got.body != "c" {
			t.Errorf("got %d %s", got.code, got.body)
		}
		if n := len(b.Requests()) - before; n != test.executed {
			t.Errorf("beside %v: executed %d times, want %d", test.state, n, test.executed)
		}
		// The connection for the next round.
		w.candidates = w.candidates[:1]
		w.do(w.request("GET", things, ""))
		w.candidates = w.candidates[:2]
	}
}

func TestWhoIsAskedAgain(t *testing.T) {
	closed, silent := io.ErrUnexpectedEOF, errors.New("http2: client connection lost")
	tests := []struct {
		name   string
		method string
		reason reason
		err    error
		reused bool
		want   bool
	}{
		{"closed", "GET", reasonLost, closed, true, true},
		{"not safe", "POST", reasonLost, closed, true, false},
		{"the connection was new", "GET", reasonLost, closed, false, false},
		{"silent", "GET", reasonLost, silent, true, false},
		{"not dialled", "GET", reason(transport.ReasonDial), &transport.ConnectError{}, true, false},
		{"not served", "GET", reasonNotServed, nil, true, false},
	}
	for _, test := range tests {
		x := &exchange{client: &http.Request{Method: test.method}}
		x.reused.Store(test.reused)
		if got := x.mayTryAgain(&failure{reason: test.reason, err: test.err}); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

// The peer of the request's snapshot, not of one to come.
func TestHealthIsThatOfOneIncarnation(t *testing.T) {
	p := &snapshot.Peer{ServerID: "b", Incarnation: "b_1", Address: "192.0.2.1:6443"}
	if got := healthOf(p); got != (health.Peer{ServerID: "b", Incarnation: "b_1", Address: "192.0.2.1:6443"}) {
		t.Errorf("got %v", got)
	}
}
