package forward

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

// breakOff answers with a header, and half of a body of the given length.
func breakOff(length int) http.Handler {
	return handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", strconv.Itoa(length))
		_, _ = io.WriteString(w, strings.Repeat("x", length/2))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
}

// A small answer to a GET that is lost on its way is no answer.
func TestLostSmallAnswer(t *testing.T) {
	tests := []struct {
		name, method, path string
		length             int
		again              bool
	}{
		{"small", "GET", things, 100, true},
		{"the longest", "GET", things, maxSmall, true},
		{"longer", "GET", things, maxSmall + 2, false},
		{"not safe", "POST", things, 100, false},
		{"log", "GET", things + "/a/log", 100, false},
		{"proxy", "GET", things + "/a/proxy", 100, false},
	}
	for _, test := range tests {
		for _, http1 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http1=%t", test.name, http1), func(t *testing.T) {
				b, c := &peertest.Peer{ID: "b", HTTP1: http1, Handler: breakOff(test.length)}, &peertest.Peer{ID: "c"}
				w := newWorld(t, b, c)
				w.candidates[1].State = snapshot.StateUnreachable
				got := w.do(w.request(test.method, test.path, "body"))
				if again := got.body == "c" && got.err == nil; again != test.again {
					t.Errorf("got %d, %d bytes, %v", got.code, len(got.body), got.err)
				}
				if !test.again && (got.err == nil || len(c.Requests()) != 0) {
					t.Errorf("ended with %v, sent on %d times", got.err, len(c.Requests()))
				}
			})
		}
	}
}

func TestLostSmallAnswerOfTheLast(t *testing.T) {
	w := newWorld(t, &peertest.Peer{ID: "b", Handler: breakOff(100)})
	counted := countErrors(t)
	if got := w.do(w.request("GET", things, "")); got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
		t.Errorf("got %d %s", got.code, got.body)
	}
	wantCounted(t, counted(), "connection_lost")
}

// One that arrives is the peer's in all: header, length, status.
func TestSmallAnswerPasses(t *testing.T) {
	body := strings.Repeat("x", maxSmall)
	for _, code := range []int{200, 404, 500} {
		b := &peertest.Peer{ID: "b", Handler: readThenAnswer(code, http.Header{"X-Custom": {"1"}, "Content-Length": {strconv.Itoa(maxSmall)}}, body)}
		w := newWorld(t, b)
		got := w.do(w.request("GET", things, ""))
		if got.code != code || got.body != body || got.header.Get("X-Custom") != "1" || got.header.Get("Content-Length") != strconv.Itoa(maxSmall) {
			t.Errorf("got %d %v, %d bytes", got.code, got.header, len(got.body))
		}
		if got := w.do(w.request("HEAD", things, "")); got.code != code || got.header.Get("Content-Length") != strconv.Itoa(maxSmall) {
			t.Errorf("HEAD: got %d %v", got.code, got.header)
		}
	}
}
