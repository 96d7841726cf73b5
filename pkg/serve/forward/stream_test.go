package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

const watch = things + "?watch=true"

// watching is a peer whose watches send an event, and another each time that
// next is received from.
type watching struct {
	peertest.Peer
	next chan struct{}
	// ended gets what ended a watch.
	ended chan error
}

func newWatching(http1 bool) *watching {
	p := &watching{next: make(chan struct{}), ended: make(chan error, 10)}
	p.ID, p.HTTP1 = "b", http1
	p.Handler = handler(func(w http.ResponseWriter, r *http.Request) {
		for n := 1; ; n++ {
			_, _ = fmt.Fprintf(w, "event %d\n", n)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-p.next:
			case <-r.Context().Done():
				p.ended <- r.Context().Err()
				return
			}
		}
	})
	return p
}

// stream opens a stream at A.
func (w *world) stream(client *http.Client, path string) (*bufio.Reader, context.CancelFunc) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	res, err := client.Do(w.request("GET", path, "").WithContext(ctx))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	return bufio.NewReader(res.Body), cancel
}

func wantLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if got, err := r.ReadString('\n'); got != want+"\n" {
		t.Fatalf("got %q %v, want %q", got, err, want)
	}
}

func TestEventsAreFlushedAtOnce(t *testing.T) {
	b := newWatching(false)
	w := newWorld(t, &b.Peer)
	for _, client := range []*http.Client{w.front.Client(), w.h1()} {
		events, cancel := w.stream(client, watch)
		wantLine(t, events, "event 1")
		b.next <- struct{}{}
		wantLine(t, events, "event 2")
		cancel()
		<-b.ended
	}
}

// Not only what has no length: what is too long to be read as a whole, or may be
// a stream.
func TestPartOfAnAnswerOfKnownLengthIsFlushed(t *testing.T) {
	tests := []struct {
		path   string
		length int
	}{
		{things, maxHeld + 1},
		{watch, 100},
		{things + "/a/log", 100},
		{things + "/a/proxy", 100},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(test.length))
				_, _ = io.WriteString(w, "line\n")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})}
			w := newWorld(t, b)
			lines, _ := w.stream(w.front.Client(), test.path)
			wantLine(t, lines, "line")
		})
	}
}

// An answer that is none is not left open for as long as the next one lasts.
func TestRejectedAnswerIsClosed(t *testing.T) {
	closed := make(chan struct{})
	b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(closed)
	})}
	c := newWatching(false)
	w := newWorld(t, b, &c.Peer)
	w.candidates[1].State = snapshot.StateStarting
	events, cancel := w.stream(w.front.Client(), watch)
	wantLine(t, events, "event 1")
	<-closed
	cancel()
	<-c.ended
}

// A watch without events has to give its header, or the client waits for it.
func TestHeaderOfAQuietWatchIsFlushed(t *testing.T) {
	b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}
	w := newWorld(t, b)
	w.stream(w.h1(), watch)
	w.stream(w.front.Client(), watch)
}

// The end of case 14.
func TestClientGoneEndsThePeersWatchWithoutAnError(t *testing.T) {
	b := newWatching(false)
	w := newWorld(t, &b.Peer)
	counted := countErrors(t)
	panics := make(chan any, 1)
	w.front = peertest.Front(t, peertest.Chain(t, alice, handler(func(rw http.ResponseWriter, r *http.Request) {
		defer func() { panics <- recover() }()
		w.forwarder.Forward(rw, r, w.candidates)
	})))
	for name, client := range map[string]*http.Client{"h2": w.front.Client(), "h1": w.h1()} {
		for _, path := range []string{watch, things + "/a/log?follow=true"} {
			events, cancel := w.stream(client, path)
			wantLine(t, events, "event 1")
			cancel()
			if err := <-b.ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%s %s: the peer's ended with %v", name, path, err)
			}
			if v := <-panics; v != nil {
				t.Errorf("%s %s: panicked with %v", name, path, v)
			}
		}
	}
	if len(counted()) != 0 || w.log.String() != "" {
		t.Errorf("counted %v, logged %s", counted(), w.log.String())
	}
}

// The client goes while the peer is still thinking.
func TestClientGoneBeforeTheAnswerIsNotHeldAgainstThePeer(t *testing.T) {
	reached, ended := make(chan struct{}), make(chan struct{})
	b := &peertest.Peer{ID: "b", Handler: handler(func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
		close(ended)
	})}
	c := &peertest.Peer{ID: "c"}
	w := newWorld(t, b, c)
	w.forwarder.Random = func(int) int { return 0 }
	done := make(chan struct{})
	w.front = peertest.Front(t, peertest.Chain(t, alice, handler(func(rw http.ResponseWriter, r *http.Request) {
		defer close(done)
		w.forwarder.Forward(rw, r, w.candidates)
	})))
	counted := countErrors(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	if res, err := w.front.Client().Do(w.request("GET", things, "").WithContext(ctx)); err == nil {
		t.Errorf("got %s", res.Status)
	}
	<-ended
	<-done
	if len(counted()) != 0 || w.log.String() != "" || len(c.Requests()) != 0 {
		t.Errorf("counted %v, logged %q, tried the next: %d", counted(), w.log.String(), len(c.Requests()))
	}
}

// After the header a watch ends cleanly, and all else is cut off. Of what is not
// a stream the client sees nothing for long.
func TestConnectionLostDuringTheAnswer(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		for path, clean := range map[string]bool{watch: true, things + "/a/proxy": false, things + "/a/log?follow=true": false} {
			t.Run(fmt.Sprintf("%s/http1=%t", path, http1), func(t *testing.T) {
				b := newWatching(http1)
				w := newWorld(t, &b.Peer)
				counted := countErrors(t)
				for name, client := range map[string]*http.Client{"h2": w.front.Client(), "h1": w.h1()} {
					events, _ := w.stream(client, path)
					wantLine(t, events, "event 1")
					b.CloseConnections()
					if _, err := io.ReadAll(events); (err == nil) != clean {
						t.Errorf("%s: ended with %v", name, err)
					}
				}
				if n := counted()["answer_cut_off"]; n != 2 {
					t.Errorf("counted %v", counted())
				}
			})
		}
	}
}

// shutdown is the signal that the chain gives to watches.
type shutdown chan struct{}

func (s shutdown) ShuttingDown() <-chan struct{} { return s }

func TestShutdownEndsWatchesAlone(t *testing.T) {
	b := newWatching(false)
	w := newWorld(t, &b.Peer)
	signal := make(shutdown)
	w.inContext = func(ctx context.Context) context.Context {
		return apirequest.WithServerShutdownSignal(ctx, signal)
	}
	watchEvents, _ := w.stream(w.front.Client(), watch)
	wantLine(t, watchEvents, "event 1")
	logLines, _ := w.stream(w.front.Client(), things+"/a/log?follow=true")
	wantLine(t, logLines, "event 1")
	close(signal)
	if rest, err := io.ReadAll(watchEvents); err != nil || len(rest) != 0 {
		t.Errorf("the watch ended with %q, %v", rest, err)
	}
	<-b.ended
	b.next <- struct{}{}
	wantLine(t, logLines, "event 2")
}

// Without a signal in the context.
func TestStopEndsWatches(t *testing.T) {
	b := newWatching(false)
	w := newWorld(t, &b.Peer)
	stopping := make(chan struct{})
	w.forwarder.Stopping = stopping
	for _, client := range []*http.Client{w.front.Client(), w.h1()} {
		events, _ := w.stream(client, watch)
		wantLine(t, events, "event 1")
		defer func() {
			if rest, err := io.ReadAll(events); err != nil || len(rest) != 0 {
				t.Errorf("the watch ended with %q, %v", rest, err)
			}
			<-b.ended
		}()
	}
	close(stopping)
}

func TestShutdownBeforeTheAnswerIs503(t *testing.T) {
	reached := make(chan struct{})
	b := &peertest.Peer{ID: "b", Handler: handler(func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
	})}
	w := newWorld(t, b)
	signal := make(shutdown)
	w.inContext = func(ctx context.Context) context.Context {
		return apirequest.WithServerShutdownSignal(ctx, signal)
	}
	go func() { <-reached; close(signal) }()
	if got := w.do(w.request("GET", watch, "")); got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
		t.Errorf("got %d %s", got.code, got.body)
	}
}

func TestForwardedRequestHoldsNoSeat(t *testing.T) {
	b := newWatching(false)
	w := newWorld(t, &b.Peer)
	seat := utilflowcontrol.NewInitializationSignal()
	w.inContext = func(ctx context.Context) context.Context {
		return utilflowcontrol.WithInitializationSignal(ctx, seat)
	}
	events, cancel := w.stream(w.front.Client(), watch)
	wantLine(t, events, "event 1")
	seat.Wait()
	cancel()
	<-b.ended
}

// A long request body goes to the peer while the client still sends it.
func TestRequestBodyStreams(t *testing.T) {
	got := make(chan string, 10)
	b := &peertest.Peer{ID: "b", Handler: handler(func(_ http.ResponseWriter, r *http.Request) {
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			got <- lines.Text()
		}
	})}
	w := newWorld(t, b)
	ours, theirs := io.Pipe()
	req := w.request("POST", things, "")
	req.Body = ours
	done := make(chan answer)
	go func() { done <- w.do(req) }()
	for i := range 3 {
		line := fmt.Sprintf("line %d", i)
		_, _ = io.WriteString(theirs, line+"\n")
		select {
		case arrived := <-got:
			if arrived != line {
				t.Errorf("got %q", arrived)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("held back")
		}
	}
	_ = theirs.Close()
	if a := <-done; a.code != http.StatusOK {
		t.Errorf("got %d", a.code)
	}
}

func TestBigBodiesPassBothWays(t *testing.T) {
	b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})}
	w := newWorld(t, b)
	for _, size := range []int{maxKept, maxKept + 1, 4 * maxKept} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		for name, client := range map[string]*http.Client{"h2": w.front.Client(), "h1": w.h1()} {
			if got := w.doWith(client, w.request("PUT", things, body)); got.body != body {
				t.Errorf("%s: %d bytes came back as %d", name, size, len(got.body))
			}
		}
	}
	if kept := w.forwarder.kept.Load(); kept != 0 {
		t.Errorf("%d bytes are still kept", kept)
	}
}
