package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

func TestRedialTakesAnyAnswer(t *testing.T) {
	for _, code := range []int{200, 401, 403, 429, 500} {
		for _, http1 := range []bool{false, true} {
			pki := peertest.NewPKI(t)
			peer := &peertest.Peer{HTTP1: http1, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })}
			peer.Start(t, pki)
			tr := running(t, configFor(t, pki))
			for range 3 {
				if err := tr.Redial(t.Context(), peer.Address()); err != nil {
					t.Errorf("%d, http1=%t: %v", code, http1, err)
				}
			}
			asked := peer.Requests()[0]
			if asked.URI != "/livez" || asked.Header.Get("X-Remote-User") != "system:apiserver" {
				t.Errorf("asked for %s as %q", asked.URI, asked.Header.Get("X-Remote-User"))
			}
			if n := peer.Connections(); n != 1 {
				t.Errorf("%d connections, http1=%t: those that were opened are not kept", n, http1)
			}
		}
	}
}

func TestRedialFailsWhereNoOneListens(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{}).Start(t, pki)
	peer.Stop()
	if err := running(t, configFor(t, pki)).Redial(t.Context(), peer.Address()); err == nil {
		t.Error("answered")
	}
}

// A stopped process, with and without a connection from before, until it goes on.
func TestRedialOfAFrozenPeer(t *testing.T) {
	for _, connected := range []bool{false, true} {
		pki := peertest.NewPKI(t)
		config := configFor(t, pki)
		peer := (&peertest.Peer{}).Start(t, pki)
		peer.Stop()
		synctest.Test(t, func(t *testing.T) {
			l := newPipeListener()
			defer l.Close()
			peer.ServeAlso(l)
			defer peer.Stop()
			config.Dial = l.dial
			tr := running(t, config)
			if connected {
				get(t, tr, "peer:6443")
			}
			l.freeze()
			start := time.Now()
			if err := tr.Redial(t.Context(), "peer:6443"); err == nil {
				t.Errorf("connected=%t: answered", connected)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("connected=%t: took %v", connected, took)
			}
			l.thaw()
			if err := tr.Redial(t.Context(), "peer:6443"); err != nil {
				t.Errorf("connected=%t: %v", connected, err)
			}
		})
	}
}

func TestRedialEndsWithItsContext(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{OnConn: peertest.Hang}).Start(t, pki)
	tr := running(t, configFor(t, pki))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := tr.Redial(ctx, peer.Address()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestConnectionFailed(t *testing.T) {
	abort := func(*peertest.Peer, http.ResponseWriter) { panic(http.ErrAbortHandler) }
	cut := func(p *peertest.Peer, _ http.ResponseWriter) { p.CloseConnections() }
	inTheMiddle := func(end func(*peertest.Peer, http.ResponseWriter)) func(*peertest.Peer, http.ResponseWriter) {
		return func(p *peertest.Peer, w http.ResponseWriter) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			end(p, w)
		}
	}
	tests := []struct {
		name   string
		http1  bool
		answer func(*peertest.Peer, http.ResponseWriter)
		want   bool
	}{
		{"stream reset", false, abort, false},
		{"stream reset during the answer", false, inTheMiddle(abort), false},
		{"closed", false, cut, true},
		{"closed during the answer", false, inTheMiddle(cut), true},
		{"closed, HTTP/1.1", true, cut, true},
		{"closed during the answer, HTTP/1.1", true, inTheMiddle(cut), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pki := peertest.NewPKI(t)
			peer := &peertest.Peer{HTTP1: test.http1}
			peer.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { test.answer(peer, w) })
			peer.Start(t, pki)
			res, err := running(t, configFor(t, pki)).RoundTrip(newRequest(t, "POST", peer.Address(), "body"))
			if err == nil {
				_, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
			}
			if err == nil || transport.ConnectionFailed(err) != test.want {
				t.Errorf("%v: %t", err, transport.ConnectionFailed(err))
			}
		})
	}
}

func TestConnectionFailedByTheKindOfError(t *testing.T) {
	tests := map[error]bool{
		nil: false,
		&transport.ConnectError{Reason: transport.ReasonDial, Err: errors.New("refused")}:       true,
		&transport.ConnectError{Reason: transport.ReasonTimeout, Err: context.DeadlineExceeded}: true,
		&transport.RefusedError{Err: errors.New("stream error")}:                                false,
		&transport.UnsendableError{Err: errors.New("invalid header")}:                           false,
		context.Canceled:         false,
		context.DeadlineExceeded: false,
		io.ErrUnexpectedEOF:      true,
	}
	for err, want := range tests {
		if got := transport.ConnectionFailed(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
