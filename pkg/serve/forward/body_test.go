package forward

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

func openBody(t *testing.T, b *replay) io.ReadCloser {
	t.Helper()
	r, err := b.open()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReplay(t *testing.T) {
	const text = "a body that is read more than once"
	var budget atomic.Int64
	b := newReplay(io.NopCloser(iotest.OneByteReader(strings.NewReader(text))), -1, &budget)
	for _, n := range []int{0, 1, 10, len(text), len(text)} {
		r := openBody(t, b)
		head := make([]byte, n)
		if _, err := io.ReadFull(r, head); err != nil || string(head) != text[:n] {
			t.Fatalf("read %q, %v", head, err)
		}
		_ = r.Close()
		if _, err := r.Read(head[:min(n, 1)]); n > 0 && err == nil {
			t.Error("read after Close")
		}
	}
	if all, err := io.ReadAll(openBody(t, b)); string(all) != text || err != nil {
		t.Errorf("read %q, %v", all, err)
	}
	b.close()
	if budget.Load() != 0 {
		t.Errorf("%d bytes are still kept", budget.Load())
	}
	if _, err := b.open(); !errors.Is(err, errNotKept) {
		t.Errorf("opened after close: %v", err)
	}
}

func TestReplayOfNoBody(t *testing.T) {
	for _, source := range []io.ReadCloser{nil, http.NoBody} {
		b := newReplay(source, 0, new(atomic.Int64))
		if r, err := b.open(); r != nil || err != nil {
			t.Errorf("got %v, %v", r, err)
		}
		if b.failed() {
			t.Error("failed")
		}
		b.close()
	}
}

func TestReplayLimits(t *testing.T) {
	tests := []struct {
		name      string
		announced int64
		size      int
		kept      int64 // by others
		again     bool
	}{
		{"fits", -1, maxKept, 0, true},
		{"fits, announced", maxKept, maxKept, 0, true},
		{"too long", -1, maxKept + 1, 0, false},
		{"too long, announced", maxKept + 1, 10, 0, false},
		{"others keep all", -1, 10, maxKeptInAll, false},
		{"others keep almost all", 10, 10, maxKeptInAll - 10, true},
		{"longer than announced", 10, 20, 0, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var budget atomic.Int64
			budget.Store(test.kept)
			b := newReplay(io.NopCloser(strings.NewReader(strings.Repeat("x", test.size))), test.announced, &budget)
			// What was not read can always be sent.
			_ = openBody(t, b).Close()
			if all, err := io.ReadAll(openBody(t, b)); len(all) != test.size || err != nil {
				t.Errorf("read %d bytes, %v", len(all), err)
			}
			r, err := b.open()
			if (err == nil) != test.again {
				t.Fatalf("a second time: %v", err)
			}
			if test.again {
				if all, err := io.ReadAll(r); len(all) != test.size || err != nil {
					t.Errorf("read %d bytes again, %v", len(all), err)
				}
			}
			b.close()
			if budget.Load() != test.kept {
				t.Errorf("%d bytes are still kept", budget.Load()-test.kept)
			}
		})
	}
}

// A length that is only announced takes no room.
func TestSlowBodiesLeaveRoomForOthers(t *testing.T) {
	var budget atomic.Int64
	for range 1000 {
		slow := newReplay(io.NopCloser(strings.NewReader("x")), maxKept, &budget)
		_, _ = openBody(t, slow).Read(make([]byte, 1))
	}
	big := newReplay(io.NopCloser(strings.NewReader(strings.Repeat("x", maxKept))), maxKept, &budget)
	_, _ = io.ReadAll(openBody(t, big))
	if _, err := big.open(); err != nil {
		t.Errorf("with %d KiB kept: %v", budget.Load()>>10, err)
	}
}

// An accepted answer frees what is kept, whether the body was read or not.
func TestSettledBodyIsFreed(t *testing.T) {
	const text = "a body that is read twice"
	for name, firstRead := range map[string]int{"unread": 0, "half read": 10, "read": len(text)} {
		t.Run(name, func(t *testing.T) {
			var budget atomic.Int64
			b := newReplay(io.NopCloser(strings.NewReader(text)), int64(len(text)), &budget)
			_, _ = io.ReadFull(openBody(t, b), make([]byte, firstRead))
			r := openBody(t, b)
			head := make([]byte, firstRead/2)
			_, _ = io.ReadFull(r, head)
			b.settle()
			if behind := len(head) < firstRead; behind != (budget.Load() > 0) {
				t.Errorf("%d bytes are kept for a reader that is behind: %t", budget.Load(), behind)
			}
			if _, err := b.open(); !errors.Is(err, errNotKept) {
				t.Errorf("opened again: %v", err)
			}
			behind := make([]byte, firstRead-len(head))
			_, _ = io.ReadFull(r, behind)
			if budget.Load() != 0 {
				t.Errorf("%d bytes are kept for a reader that is no longer behind", budget.Load())
			}
			rest, err := io.ReadAll(r)
			if string(head)+string(behind)+string(rest) != text || err != nil {
				t.Errorf("read %q, %q, %q, %v", head, behind, rest, err)
			}
		})
	}
}

func TestSettledBodyIsFreedWhenItsReaderGoes(t *testing.T) {
	var budget atomic.Int64
	b := newReplay(io.NopCloser(strings.NewReader("body")), 4, &budget)
	_, _ = io.ReadAll(openBody(t, b))
	r := openBody(t, b)
	b.settle()
	_ = r.Close()
	if budget.Load() != 0 {
		t.Errorf("%d bytes are still kept", budget.Load())
	}
}

// What the reader before still takes from the client is not lost to the one
// whose request was answered early; and where it can't be kept, no hole is sent.
func TestReplayHasNoHole(t *testing.T) {
	for name, test := range map[string]struct {
		kept    int64  // by others
		before  string // what both have read
		settled bool
		want    string
		err     error
	}{
		"kept":             {before: "zero ", want: "one two"},
		"kept, settled":    {before: "zero ", settled: true, want: "one two"},
		"no room":          {kept: maxKeptInAll, err: errBodyTaken},
		"no room, settled": {kept: maxKeptInAll, settled: true, err: errBodyTaken},
	} {
		t.Run(name, func(t *testing.T) {
			var budget atomic.Int64
			budget.Store(test.kept)
			client := newSlowClient()
			b := newReplay(client, -1, &budget)
			first := readInBackground(openBody(t, b))
			<-client.entered
			if test.before != "" {
				client.sends <- test.before
				<-client.entered
			}
			r := openBody(t, b)
			_, _ = io.ReadFull(r, make([]byte, len(test.before)))
			if test.settled {
				b.settle()
			}
			client.sends <- "one "
			<-first
			second := readInBackground(r)
			if test.err == nil {
				<-client.entered
				client.sends <- "two"
				<-client.entered
				client.sends <- ""
			}
			if got := <-second; got.body != test.want || !errors.Is(got.err, test.err) {
				t.Errorf("got %q, %v", got.body, got.err)
			}
			b.close()
			if budget.Load() != test.kept {
				t.Errorf("%d bytes are still kept", budget.Load()-test.kept)
			}
		})
	}
}

// An exchange holds the body no longer than until its answer.
func TestAnswerFreesTheBody(t *testing.T) {
	b := newWatching(false)
	sent := b.Handler
	b.Handler = handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sent.ServeHTTP(w, r)
	})
	w := newWorld(t, &b.Peer)
	res, err := w.front.Client().Do(w.request("POST", things, strings.Repeat("x", maxKept)))
	if err != nil {
		t.Fatal(err)
	}
	if kept := w.forwarder.kept.Load(); kept != 0 {
		t.Errorf("%d bytes are kept while the answer lasts", kept)
	}
	_ = res.Body.Close()
	<-b.ended
}

// slowClient is a body whose every read waits for the test.
type slowClient struct {
	entered chan struct{}
	sends   chan string
}

func newSlowClient() slowClient {
	return slowClient{entered: make(chan struct{}), sends: make(chan string)}
}

func (c slowClient) Read(p []byte) (int, error) {
	c.entered <- struct{}{}
	text := <-c.sends
	if text == "" {
		return 0, io.EOF
	}
	return copy(p, text), nil
}

func (c slowClient) Close() error { return nil }

// readInBackground reads to the end and sends what it got.
func readInBackground(r io.Reader) <-chan answer {
	done := make(chan answer)
	go func() {
		all, err := io.ReadAll(r)
		done <- answer{body: string(all), err: err}
	}()
	return done
}

// The transport of a failed attempt may sit in a read while the next attempt
// begins. What it reads is not lost.
func TestReplayIsTakenFromAReaderThatReads(t *testing.T) {
	// Often enough for the second reader to come in time to wait for the first.
	for range 200 {
		testReplayIsTaken(t)
	}
}

func testReplayIsTaken(t *testing.T) {
	t.Helper()
	client := newSlowClient()
	b := newReplay(client, -1, new(atomic.Int64))
	first := readInBackground(openBody(t, b))
	<-client.entered
	second := readInBackground(openBody(t, b))
	for range 100 {
		runtime.Gosched()
	}
	client.sends <- "one "
	if got := <-first; !errors.Is(got.err, errBodyTaken) || got.body != "" {
		t.Errorf("the first reader got %q, %v", got.body, got.err)
	}
	<-client.entered
	client.sends <- "two"
	<-client.entered
	client.sends <- ""
	if got := <-second; got.body != "one two" || got.err != nil {
		t.Errorf("the second reader got %q, %v", got.body, got.err)
	}
}

func TestCloseDoesNotWaitForAReader(t *testing.T) {
	client := newSlowClient()
	b := newReplay(client, -1, new(atomic.Int64))
	reader := readInBackground(openBody(t, b))
	<-client.entered
	b.close()
	client.sends <- "late"
	if got := <-reader; !errors.Is(got.err, errBodyTaken) {
		t.Errorf("got %q, %v", got.body, got.err)
	}
	if b.budget.Load() != 0 {
		t.Errorf("%d bytes are still kept", b.budget.Load())
	}
}

func TestReplayKnowsThatTheClientFailed(t *testing.T) {
	b := newReplay(io.NopCloser(iotest.ErrReader(errors.New("broken"))), -1, new(atomic.Int64))
	if b.failed() {
		t.Error("before it was read")
	}
	_, _ = io.ReadAll(openBody(t, b))
	if !b.failed() {
		t.Error("not noticed")
	}
}

// A body that was read and is too long to keep goes to no other candidate, a
// body that was not touched does.
func TestBodyThatIsTooLongToKeep(t *testing.T) {
	body := strings.Repeat("x", maxKept+1)
	marked := readThenAnswer(404, http.Header{NotServedHeader: {"true"}}, "")
	for name, test := range map[string]struct {
		first  *peertest.Peer
		code   int
		reason string
	}{
		"read":      {&peertest.Peer{ID: "b", Handler: marked}, http.StatusServiceUnavailable, "not_served"},
		"refused":   {&peertest.Peer{ID: "b", OnConn: peertest.RefuseStreams}, http.StatusServiceUnavailable, "refused"},
		"goaway":    {&peertest.Peer{ID: "b", OnConn: peertest.GoAway}, http.StatusServiceUnavailable, "refused"},
		"untouched": {&peertest.Peer{ID: "b"}, http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &peertest.Peer{ID: "c"}
			w := newWorld(t, test.first, c)
			w.candidates[1].State = snapshot.StateStarting
			if name == "untouched" {
				test.first.Stop()
			}
			counted := countErrors(t)
			got := w.do(w.request("POST", things, body))
			if got.code != test.code {
				t.Errorf("got %d %s", got.code, got.body)
			}
			if test.reason != "" {
				wantCounted(t, counted(), test.reason)
			}
			if test.code != http.StatusOK && (got.header.Get("Retry-After") != "1" || len(c.Requests()) != 0) {
				t.Errorf("Retry-After %q, sent on %d times", got.header.Get("Retry-After"), len(c.Requests()))
			}
			if test.code == http.StatusOK && len(c.Requests()[0].Body) != len(body) {
				t.Errorf("%d bytes arrived", len(c.Requests()[0].Body))
			}
		})
	}
}
