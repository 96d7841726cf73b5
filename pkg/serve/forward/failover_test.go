package forward

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

// Case 8.
func TestDeadPeerFailsNoRequest(t *testing.T) {
	b, c := &peertest.Peer{ID: "b"}, &peertest.Peer{ID: "c"}
	w := newWorld(t, b, c)
	c.Stop()
	var group sync.WaitGroup
	limit := make(chan struct{}, 8)
	for i := range 200 {
		method, body := "GET", ""
		if i%2 == 1 {
			method, body = "POST", fmt.Sprintf("body %d", i)
		}
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			if got := w.do(w.request(method, things, body)); got.code != http.StatusOK || got.body != "b" {
				t.Errorf("%s: %d %s", method, got.code, got.body)
			}
		})
	}
	group.Wait()
	executed := map[string]int{}
	for _, r := range b.Requests() {
		if r.Method == "POST" {
			executed[string(r.Body)]++
		}
	}
	if len(executed) != 100 {
		t.Errorf("%d of 100 POSTs were executed", len(executed))
	}
	for body, n := range executed {
		if n != 1 {
			t.Errorf("POST %q was executed %d times", body, n)
		}
	}
	if !slices.Contains(w.dialled(), c.Address()) {
		t.Error("the dead peer was never tried")
	}
	if n := w.forwarder.inFlight.get("c"); n != 0 {
		t.Errorf("%d requests seem to be in flight at the dead peer", n)
	}
}

// What may have been executed goes to another candidate only if its method is
// safe.
func TestLostConnection(t *testing.T) {
	tests := []struct {
		method     string
		code       int
		reached    int // of two candidates
		retryAfter string
	}{
		{"GET", http.StatusServiceUnavailable, 2, "1"},
		{"HEAD", http.StatusServiceUnavailable, 2, "1"},
		{"OPTIONS", http.StatusServiceUnavailable, 2, "1"},
		{"POST", http.StatusGatewayTimeout, 1, ""},
		{"PUT", http.StatusGatewayTimeout, 1, ""},
		{"PATCH", http.StatusGatewayTimeout, 1, ""},
		{"DELETE", http.StatusGatewayTimeout, 1, ""},
	}
	for _, test := range tests {
		for _, http1 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http1=%t", test.method, http1), func(t *testing.T) {
				b, c := &peertest.Peer{ID: "b", HTTP1: http1, Handler: lose}, &peertest.Peer{ID: "c", HTTP1: http1, Handler: lose}
				w := newWorld(t, b, c)
				req := w.request(test.method, things, "")
				// The client's word makes nothing repeatable.
				req.Header.Set("Idempotency-Key", "k")
				got := w.do(req)
				if got.code != test.code || got.header.Get("Retry-After") != test.retryAfter {
					t.Errorf("got %d, Retry-After %q", got.code, got.header.Get("Retry-After"))
				}
				if n := len(b.Requests()) + len(c.Requests()); n != test.reached {
					t.Errorf("executed %d times, want %d", n, test.reached)
				}
			})
		}
	}
}

// The same where net/http would send again by itself: on a connection that was
// used before.
func TestLostReusedConnectionExecutesOnce(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		for _, body := range []string{"", "body"} {
			t.Run(fmt.Sprintf("http1=%t/body=%q", http1, body), func(t *testing.T) {
				b := &peertest.Peer{ID: "b", HTTP1: http1}
				b.Handler = handler(func(rw http.ResponseWriter, r *http.Request) {
					if r.Method == "POST" {
						b.CloseConnections()
					}
				})
				w := newWorld(t, b)
				w.do(w.request("GET", things, ""))
				req := w.request("POST", things, body)
				req.Header.Set("Idempotency-Key", "k")
				req.Header.Set("X-Idempotency-Key", "k")
				if got := w.do(req); got.code != http.StatusGatewayTimeout {
					t.Errorf("got %d", got.code)
				}
				requests := b.Requests()
				if len(requests) != 2 {
					t.Fatalf("executed %d times", len(requests)-1)
				}
				if got := requests[1].Header.Get("Idempotency-Key") + requests[1].Header.Get("X-Idempotency-Key"); got != "kk" {
					t.Errorf("the header arrived as %q", got)
				}
			})
		}
	}
}

// Answers that mean that nothing was executed send any method on, and never
// reach the client.
func TestAnswersThatAreNone(t *testing.T) {
	marked := http.Header{NotServedHeader: {"true"}}
	text := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	json := http.Header{"Content-Type": {"application/json"}}
	const named = `{"kind":"Status","apiVersion":"v1","details":{"name":"a","group":"g.example.com","kind":"things"},"code":404}`
	const unnamed = `{"kind":"Status","apiVersion":"v1","message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}`
	const denied = `{"kind":"Status","apiVersion":"v1","message":"admission webhook \"w\" denied the request: no such team","reason":"NotFound","code":404}`
	tests := []struct {
		name    string
		path    string
		state   snapshot.State
		unready bool
		handler http.Handler
		passes  bool
	}{
		{name: "marked 404", handler: readThenAnswer(404, marked, "x")},
		{name: "marked 405", handler: readThenAnswer(405, marked, "x")},
		{name: "marked 503", handler: readThenAnswer(503, marked, "x")},
		// The custom resource was created a moment ago.
		{name: "marked 201", handler: readThenAnswer(201, marked, "x"), passes: true},
		{name: "marked 403", handler: readThenAnswer(403, marked, "x"), passes: true},
		{name: "marked 500", handler: readThenAnswer(500, marked, "x"), passes: true},
		{name: "401", handler: readThenAnswer(401, nil, "x")},
		{name: "unmarked page", handler: readThenAnswer(404, text, "404 page not found\n")},
		{name: "unnamed Status", handler: readThenAnswer(405, json, unnamed)},
		{name: "named Status", handler: readThenAnswer(404, json, named), passes: true},
		{name: "denied by a webhook", handler: readThenAnswer(404, json, denied), passes: true},
		{name: "403", handler: readThenAnswer(403, json, "{}"), passes: true},
		{name: "503", handler: readThenAnswer(503, json, "{}"), passes: true},
		{name: "429", handler: readThenAnswer(429, nil, ""), passes: true},
		{name: "500", handler: readThenAnswer(500, nil, ""), passes: true},
		{name: "starting 401", state: snapshot.StateStarting, unready: true, handler: readThenAnswer(401, nil, "")},
		{name: "starting 403", state: snapshot.StateStarting, unready: true, handler: readThenAnswer(403, json, "{}")},
		{name: "starting 404", state: snapshot.StateStarting, unready: true, handler: readThenAnswer(404, json, named)},
		{name: "starting 405", state: snapshot.StateStarting, unready: true, handler: readThenAnswer(405, json, named)},
		{name: "starting 503", state: snapshot.StateStarting, unready: true, handler: readThenAnswer(503, json, "{}")},
		{name: "starting 409", state: snapshot.StateStarting, unready: true, handler: readThenAnswer(409, json, "{}"), passes: true},
		{name: "403 out of reach, started again", state: snapshot.StateUnreachable, unready: true, handler: readThenAnswer(403, json, "{}")},
		{name: "404 out of reach, started again", state: snapshot.StateUnreachable, unready: true, handler: readThenAnswer(404, json, named)},
		{name: "404 out of reach", state: snapshot.StateUnreachable, handler: readThenAnswer(404, json, named), passes: true},
		{name: "marked proxy", path: things + "/a/proxy", handler: readThenAnswer(404, marked, "x"), passes: true},
		// A pod may answer what it likes.
		{name: "page of a pod", path: things + "/a/proxy", handler: readThenAnswer(404, text, "404 page not found\n"), passes: true},
		{name: "401 of a pod", path: things + "/a/proxy", handler: readThenAnswer(401, nil, "x"), passes: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			first, second := &peertest.Peer{ID: "first", Handler: test.handler}, &peertest.Peer{ID: "second"}
			w := newWorld(t, first, second)
			w.candidates[0].State, w.candidates[0].Unready = cmp.Or(test.state, snapshot.StateServing), test.unready
			w.candidates[1].State = snapshot.StateDeparted
			w.forwarder.Random = func(int) int { return 0 }
			if test.path == "" {
				test.path = things
			}
			for _, method := range []string{"GET", "POST"} {
				got := w.do(w.request(method, test.path, "body"))
				if passed := got.body != "second"; passed != test.passes {
					t.Errorf("%s: got %d %q", method, got.code, got.body)
				}
				if got.header.Get(NotServedHeader) != "" {
					t.Errorf("%s: the marker reached the client", method)
				}
			}
			if test.passes {
				if n := len(first.Requests()) + len(second.Requests()); n != 2 {
					t.Errorf("2 requests were executed %d times", n)
				}
				return
			}
			for _, r := range second.Requests() {
				if string(r.Body) != "body" {
					t.Errorf("the second candidate got body %q", r.Body)
				}
			}
			w.candidates = w.candidates[:1]
			got := w.do(w.request("POST", test.path, "body"))
			if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
				t.Errorf("alone: got %d, Retry-After %q", got.code, got.header.Get("Retry-After"))
			}
			if got.header.Get(NotServedHeader) != "" {
				t.Error("the marker reached the client")
			}
		})
	}
}

func TestAtMostThreeAttempts(t *testing.T) {
	var peers []*peertest.Peer
	for i := range 5 {
		peers = append(peers, &peertest.Peer{ID: fmt.Sprint(i)})
	}
	w := newWorld(t, peers...)
	for _, peer := range peers {
		peer.Stop()
	}
	if got := w.do(w.request("POST", things, "body")); got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
		t.Errorf("got %d", got.code)
	}
	if n := len(w.dialled()); n != 3 {
		t.Errorf("%d attempts", n)
	}
}

func TestNoCandidate(t *testing.T) {
	w := newWorld(t)
	if got := w.do(w.request("GET", things, "")); got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
		t.Errorf("got %d", got.code)
	}
}

// Case 20: with C, or B alone, once it is back.
func TestGoAwayLosesNoRequest(t *testing.T) {
	for _, alone := range []bool{true, false} {
		t.Run(fmt.Sprintf("alone=%t", alone), func(t *testing.T) {
			created := readThenAnswer(http.StatusCreated, nil, "")
			b := &peertest.Peer{ID: "b", OnConn: peertest.First(1, peertest.GoAway), Handler: created}
			peers := []*peertest.Peer{b}
			if !alone {
				peers = append(peers, &peertest.Peer{ID: "c", Handler: created})
			}
			w := newWorld(t, peers...)
			w.forwarder.Random = func(int) int { return 0 }
			body := strings.Repeat("x", 1<<10)
			if got := w.do(w.request("POST", things, body)); got.code != http.StatusCreated {
				t.Errorf("got %d: %s", got.code, got.body)
			}
			n := 0
			for _, peer := range peers {
				for _, r := range peer.Requests() {
					if n++; string(r.Body) != body {
						t.Errorf("executed with body %q", r.Body)
					}
				}
			}
			if n != 1 {
				t.Errorf("executed %d times", n)
			}
		})
	}
}

func TestRefusedStreamGoesToTheNext(t *testing.T) {
	for _, body := range []string{"", "body"} {
		b, c := &peertest.Peer{ID: "b", OnConn: peertest.RefuseStreams}, &peertest.Peer{ID: "c"}
		w := newWorld(t, b, c)
		w.candidates[1].State = snapshot.StateStarting
		if got := w.do(w.request("POST", things, body)); got.body != "c" {
			t.Errorf("body %q: got %d %s", body, got.code, got.body)
		}
	}
}
