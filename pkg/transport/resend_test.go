package transport_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// http.NewRequest gives a request of a strings.Reader its GetBody.

func TestGoAwayBeforeProcessingIsSentAgain(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{OnConn: peertest.First(1, peertest.GoAway)}).Start(t, pki)
	tr := running(t, configFor(t, pki))
	res, err := tr.RoundTrip(newRequest(t, "POST", peer.Address(), "body"))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, res)
	got := peer.Requests()
	if len(got) != 1 || !bytes.Equal(got[0].Body, []byte("body")) {
		t.Errorf("executed %d times: %q", len(got), got)
	}
}

func TestRefusedStreamsAreGivenUpSoon(t *testing.T) {
	pki := peertest.NewPKI(t)
	for _, body := range []string{"", "body"} {
		t.Run("body "+body, func(t *testing.T) {
			peer := (&peertest.Peer{OnConn: peertest.RefuseStreams}).Start(t, pki)
			tr := running(t, configFor(t, pki))
			start := time.Now()
			_, err := tr.RoundTrip(newRequest(t, "POST", peer.Address(), body))
			if _, ok := errors.AsType[*transport.RefusedError](err); !ok {
				t.Fatalf("got %v, want a RefusedError", err)
			}
			if took := time.Since(start); took > 2500*time.Millisecond {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A body that can't be sent again says so by GetBody's error, and it is that
// error which comes back.
func TestGivenBackRequestAsksForItsBody(t *testing.T) {
	pki := peertest.NewPKI(t)
	for name, hook := range map[string]func(int, *tls.Conn) bool{"goaway": peertest.GoAway, "refused": peertest.RefuseStreams} {
		t.Run(name, func(t *testing.T) {
			peer := (&peertest.Peer{OnConn: hook}).Start(t, pki)
			tr := running(t, configFor(t, pki))
			req := newRequest(t, "POST", peer.Address(), "body")
			gone := errors.New("not kept")
			req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
			if _, err := tr.RoundTrip(req); !errors.Is(err, gone) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// On a connection that was used before, net/http takes a client's word that a
// POST is repeatable, and any request may be lost. An upgrade gets a new one.
func TestUpgradeHasAConnectionOfItsOwn(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := &peertest.Peer{}
	peer.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Idempotency-Key") != "" {
			peer.CloseConnections()
		}
	})
	peer.Start(t, pki)
	tr := running(t, configFor(t, pki))
	upgrade := func() *http.Request {
		req := newRequest(t, "POST", peer.Address(), "body")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "SPDY/3.1")
		return req
	}
	res, err := tr.RoundTrip(upgrade())
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, res) // declined

	req := upgrade()
	req.Header.Set("Idempotency-Key", "k")
	if _, err := tr.RoundTrip(req); err == nil {
		t.Error("answered")
	}
	// The connection goes before the handler that closed it has returned.
	peertest.Eventually(t, "both requests were executed", func() bool { return len(peer.Requests()) >= 2 })
	got := peer.Requests()
	if len(got) != 2 || peer.Connections() != 2 {
		t.Errorf("executed %d times over %d connections", len(got)-1, peer.Connections())
	}
	for _, r := range got {
		if c := r.Header.Get("Connection"); c != "Upgrade" {
			t.Errorf("Connection: %s", c)
		}
	}
}
