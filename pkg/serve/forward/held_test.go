package forward

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

// breakOff answers with a header, and half of a body of the given length, which
// it announces or does not.
func breakOff(length int, announced bool) http.Handler {
	return handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if announced {
			w.Header().Set("Content-Length", strconv.Itoa(length))
		}
		_, _ = io.WriteString(w, strings.Repeat("x", length/2))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
}

// An answer to a GET that is lost while it is held back is no answer.
func TestLostAnswerThatIsHeldBack(t *testing.T) {
	tests := []struct {
		name, method, path string
		length             int
		announced          bool
		again              bool
	}{
		{"small", "GET", things, 100, true, true},
		{"the longest", "GET", things, maxHeld, true, true},
		{"longer", "GET", things, maxHeld + 2, true, false},
		{"not safe", "POST", things, 100, true, false},
		{"log", "GET", things + "/a/log", 100, true, false},
		{"proxy", "GET", things + "/a/proxy", 100, true, false},
		{"small, of unknown length", "GET", things, 100, false, true},
		{"the longest, of unknown length", "GET", things, 2*maxHeld - 2, false, true},
		{"longer, of unknown length", "GET", things, 2*maxHeld + 2, false, false},
		{"log, of unknown length", "GET", things + "/a/log", 100, false, false},
		{"proxy, of unknown length", "GET", things + "/a/proxy", 100, false, false},
	}
	for _, test := range tests {
		for _, http1 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http1=%t", test.name, http1), func(t *testing.T) {
				b, c := &peertest.Peer{ID: "b", HTTP1: http1, Handler: breakOff(test.length, test.announced)}, &peertest.Peer{ID: "c"}
				w := newWorld(t, b, c)
				w.candidates[1].State = snapshot.StateUnreachable
				got := w.do(w.request(test.method, test.path, "body"))
				if again := got.body == "c" && got.err == nil; again != test.again {
					t.Errorf("got %d, %d bytes, %v", got.code, len(got.body), got.err)
				}
				if !test.again && (got.err == nil || len(c.Requests()) != 0) {
					t.Errorf("ended with %v, sent on %d times", got.err, len(c.Requests()))
				}
				wantNothingHeld(t, w)
			})
		}
	}
}

// wantNothingHeld fails the test unless all room is given back soon.
func wantNothingHeld(t *testing.T, w *world) {
	t.Helper()
	peertest.Eventually(t, "nothing is held", func() bool { return w.forwarder.held.Load() == 0 })
}

// When all answers together are too long, more of them stream.
func TestAnswersHeldBackTogetherAreBounded(t *testing.T) {
	b := &peertest.Peer{ID: "b", Handler: breakOff(100, false)}
	w := newWorld(t, b, &peertest.Peer{ID: "c"})
	w.candidates[1].State = snapshot.StateUnreachable
	w.forwarder.held.Store(maxHeldInAll - bufferSize + 1)
	if got := w.do(w.request("GET", things, "")); got.err == nil || got.body == "c" {
		t.Errorf("held back: got %d %q", got.code, got.body)
	}
	w.forwarder.held.Store(maxHeldInAll - bufferSize)
	if got := w.do(w.request("GET", things, "")); got.body != "c" {
		t.Errorf("not held back: got %d %q %v", got.code, got.body, got.err)
	}
}

func TestLostAnswerOfTheLast(t *testing.T) {
	w := newWorld(t, &peertest.Peer{ID: "b", Handler: breakOff(100, true)})
	counted := countErrors(t)
	if got := w.do(w.request("GET", things, "")); got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
		t.Errorf("got %d %s", got.code, got.body)
	}
	wantCounted(t, counted(), "connection_lost")
}

// One that arrives is the peer's in all: header, length, status, trailer.
func TestAnswerThatIsHeldBackPasses(t *testing.T) {
	for _, length := range []int{1, bufferSize, bufferSize + 1, maxHeld, maxHeld + 1} {
		body := strings.Repeat("0123456789abcdef", length/16+1)[:length]
		for _, announced := range []string{strconv.Itoa(length), ""} {
			for _, code := range []int{200, 500} {
				if code != 200 && length > bufferSize {
					continue
				}
				header := http.Header{"X-Custom": {"1"}, "Trailer": {"X-End"}}
				if announced != "" {
					header["Content-Length"] = []string{announced}
				}
				b := &peertest.Peer{ID: "b", Handler: handler(func(rw http.ResponseWriter, r *http.Request) {
					readThenAnswer(code, header, body).ServeHTTP(rw, r)
					rw.Header().Set("X-End", "1")
				})}
				w := newWorld(t, b)
				got := w.do(w.request("GET", things, ""))
				if got.code != code || got.body != body || got.header.Get("X-Custom") != "1" || got.trailer.Get("X-End") != "1" {
					t.Errorf("got %d %v, %d bytes, trailer %v", got.code, got.header, len(got.body), got.trailer)
				}
				if announced != "" && got.header.Get("Content-Length") != announced {
					t.Errorf("announced %q", got.header.Get("Content-Length"))
				}
				if got := w.do(w.request("HEAD", things, "")); got.code != code || announced != "" && got.header.Get("Content-Length") != announced {
					t.Errorf("HEAD: got %d %v", got.code, got.header)
				}
				wantNothingHeld(t, w)
			}
		}
	}
}

// Nothing is left of an answer whose client does not wait for it.
func TestHeldAnswerIsGivenBackWhenTheClientGoes(t *testing.T) {
	reached := make(chan struct{})
	b := &peertest.Peer{ID: "b", Handler: handler(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "half")
		_ = http.NewResponseController(rw).Flush()
		close(reached)
		<-r.Context().Done()
	})}
	w := newWorld(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	if res, err := w.front.Client().Do(w.request("GET", things, "").WithContext(ctx)); err == nil {
		t.Errorf("got %s", res.Status)
	}
	wantNothingHeld(t, w)
}
