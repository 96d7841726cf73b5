package transport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

func TestFailureToConnectHasAReason(t *testing.T) {
	pki := peertest.NewPKI(t)
	named := []string{peertest.ServerName}
	tests := []struct {
		name string
		peer *peertest.Peer
		stop bool
		want transport.Reason
	}{
		{name: "nobody listens", peer: &peertest.Peer{}, stop: true, want: transport.ReasonDial},
		{
			name: "certificate of another CA",
			peer: &peertest.Peer{Certificate: peertest.NewCA(t, "other").Issue(t, peertest.Cert{DNSNames: named})},
			want: transport.ReasonUnknownAuthority,
		},
		{
			name: "certificate of another name",
			peer: &peertest.Peer{Certificate: pki.Cluster.Issue(t, peertest.Cert{DNSNames: []string{"b.example.com"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})},
			want: transport.ReasonNameMismatch,
		},
		{
			name: "certificate expired",
			peer: &peertest.Peer{Certificate: pki.Cluster.Issue(t, peertest.Cert{DNSNames: named, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})},
			want: transport.ReasonExpired,
		},
		{
			name: "certificate not valid yet",
			peer: &peertest.Peer{Certificate: pki.Cluster.Issue(t, peertest.Cert{DNSNames: named, NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)})},
			want: transport.ReasonNotYetValid,
		},
		{name: "TLS 1.1", peer: &peertest.Peer{MaxTLSVersion: tls.VersionTLS11}, want: transport.ReasonTLS},
		{
			name: "not TLS",
			peer: &peertest.Peer{OnConn: func(_ int, conn *tls.Conn) bool {
				_, _ = conn.NetConn().Write([]byte("220 mail.example.com ESMTP\r\n"))
				return true
			}},
			want: transport.ReasonTLS,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tr := running(t, configFor(t, pki))
			peer := test.peer.Start(t, pki)
			if test.stop {
				peer.Stop()
			}
			for _, upgrade := range []bool{false, true} {
				req := newRequest(t, "POST", peer.Address(), "body")
				if upgrade {
					req.Header.Set("Connection", "Upgrade")
					req.Header.Set("Upgrade", "SPDY/3.1")
				}
				_, err := tr.RoundTrip(req)
				wantReason(t, err, test.want)
			}
		})
	}
}

func wantReason(t *testing.T, err error, want transport.Reason) {
	t.Helper()
	var connect *transport.ConnectError
	if !errors.As(err, &connect) {
		t.Fatalf("got %v, want a ConnectError", err)
	}
	if connect.Reason != want {
		t.Errorf("got reason %q (%v), want %q", connect.Reason, connect.Err, want)
	}
}

func TestRequestThatCannotBeWritten(t *testing.T) {
	pki := peertest.NewPKI(t)
	tests := map[string]func(*http.Request){
		"header":           func(r *http.Request) { r.Header["X-Odd"] = []string{"a\nb"} },
		"header's name":    func(r *http.Request) { r.Header["X Odd"] = []string{"a"} },
		"trailer":          func(r *http.Request) { r.Trailer = http.Header{"X Odd": nil} },
		"reserved trailer": func(r *http.Request) { r.Trailer = http.Header{"Content-Length": nil} },
		"host":             func(r *http.Request) { r.Host = "a b" },
		"name of the host": func(r *http.Request) { r.Host = "xn--\u00e9.example" },
		"path":             func(r *http.Request) { r.URL.Opaque = "a" },
		"header list":      func(r *http.Request) { r.Header.Set("X-Long", strings.Repeat("x", 8<<10)) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			peer := (&peertest.Peer{MaxHeaderBytes: 4 << 10}).Start(t, pki)
			tr := running(t, configFor(t, pki))
			// After it the peer's settings are known.
			get(t, tr, peer.Address())
			req := newRequest(t, "POST", peer.Address(), "body")
			spoil(req)
			_, err := tr.RoundTrip(req)
			if _, ok := errors.AsType[*transport.UnsendableError](err); !ok {
				t.Errorf("got %v, want an UnsendableError", err)
			}
			if n := len(peer.Requests()); n != 1 {
				t.Errorf("executed %d times", n-1)
			}
			get(t, tr, peer.Address())
			if n := peer.Connections(); n != 1 {
				t.Errorf("the request has cost a connection: %d", n)
			}
		})
	}
}

// In TLS 1.3 the refusal arrives after the client's handshake. It is waited for,
// so that nothing of a request is on the way by then.
func TestRefusedClientCertificateIsAFailureToConnect(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, http1 := range []bool{true, false} {
			t.Run(tls.VersionName(version)+protocolName(http1), func(t *testing.T) {
				peer := (&peertest.Peer{VerifyClient: peertest.RefuseClient, MaxTLSVersion: version, HTTP1: http1}).Start(t, pki)
				tr := running(t, config)
				for _, upgrade := range []bool{false, true} {
					for range 20 {
						req := newRequest(t, "POST", peer.Address(), "body")
						if upgrade {
							req.Header.Set("Connection", "Upgrade")
							req.Header.Set("Upgrade", "SPDY/3.1")
						}
						req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
							WroteHeaders: func() { t.Error("the request was written") },
						}))
						_, err := tr.RoundTrip(req)
						wantReason(t, err, transport.ReasonClientCertificate)
					}
				}
			})
		}
	}
}

// A peer that takes longer than it is waited for, or that has nothing to say, is
// sent the request: its refusal comes with the first read.
func TestRefusalThatComesLate(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	for _, http1 := range []bool{true, false} {
		t.Run(protocolName(http1), func(t *testing.T) {
			written := make(chan struct{})
			peer := (&peertest.Peer{
				VerifyClient: func([][]byte, [][]*x509.Certificate) error {
					<-written
					return errors.New("refused")
				},
				HTTP1: http1, OnConn: shakeHandsAndWait,
			}).Start(t, pki)
			req := newRequest(t, "POST", peer.Address(), "body")
			req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
				WroteRequest: func(httptrace.WroteRequestInfo) { close(written) },
			}))
			_, err := running(t, config).RoundTrip(req)
			wantReason(t, err, transport.ReasonClientCertificate)
		})
	}
}

// shakeHandsAndWait keeps a connection whose handshake failed open until the
// client has closed it: closed at once, it could be reset before the client has
// read the alert.
func shakeHandsAndWait(_ int, conn *tls.Conn) bool {
	go func() {
		_ = conn.HandshakeContext(context.Background())
		_, _ = io.Copy(io.Discard, conn.NetConn())
		_ = conn.NetConn().Close()
	}()
	return true
}

func protocolName(http1 bool) string {
	if http1 {
		return "/http1"
	}
	return "/h2"
}

func TestSlowConnectTimesOut(t *testing.T) {
	pki := peertest.NewPKI(t)
	tests := []struct {
		name string
		dial transport.DialFunc
		want time.Duration
	}{
		{"dial", func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
		}, 2 * time.Second},
		{"handshake", func(context.Context, string, string) (net.Conn, error) {
			ours, _ := net.Pipe()
			return ours, nil
		}, 3 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := configFor(t, pki)
			config.Dial = test.dial
			synctest.Test(t, func(t *testing.T) {
				tr := running(t, config)
				start := time.Now()
				_, err := tr.RoundTrip(newRequest(t, "GET", "peer:6443", ""))
				wantReason(t, err, transport.ReasonTimeout)
				if took := time.Since(start); took != test.want {
					t.Errorf("took %v, want %v", took, test.want)
				}
			})
		})
	}
}

// An egress proxy that does not answer holds up no request beyond the time of a
// dial; what comes of the dial after all is closed.
func TestDialIsBoundedWhateverTheDialerDoes(t *testing.T) {
	config := configFor(t, peertest.NewPKI(t))
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		ours, theirs := net.Pipe()
		config.Dial = func(context.Context, string, string) (net.Conn, error) {
			<-answer
			return ours, nil
		}
		tr := running(t, config)
		start := time.Now()
		_, err := tr.RoundTrip(newRequest(t, "GET", "peer:6443", ""))
		wantReason(t, err, transport.ReasonTimeout)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %v, want two seconds", took)
		}
		close(answer)
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want a connection that was closed", err)
		}
	})
}

func TestFrozenPeerIsNoticedWithinFiveSeconds(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	serving := (&peertest.Peer{}).Start(t, pki)
	serving.Stop()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		defer l.Close()
		reached := make(chan struct{})
		serving.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(reached)
			<-r.Context().Done()
		})
		serving.ServeAlso(l)
		defer serving.Stop()
		config.Dial = l.dial
		tr := running(t, config)

		go func() { <-reached; l.freeze() }()
		start := time.Now()
		_, err := tr.RoundTrip(newRequest(t, "GET", "peer:6443", ""))
		if err == nil || !transport.FellSilent(err) || !transport.ConnectionFailed(err) {
			t.Errorf("got %v, want a connection that fell silent", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		l.thaw()
	})
}

// A watch is as long as its peer lives, however quiet it is, and no longer.
func TestWatchAtAPeerThatFreezesEndsWithinFiveSeconds(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	serving := (&peertest.Peer{}).Start(t, pki)
	serving.Stop()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		defer l.Close()
		next := make(chan struct{})
		serving.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for {
				_, _ = io.WriteString(w, "event")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
		})
		serving.ServeAlso(l)
		defer serving.Stop()
		config.Dial = l.dial
		tr := running(t, config)

		res, err := tr.RoundTrip(newRequest(t, "GET", "peer:6443", ""))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		event := make([]byte, len("event"))
		for range 2 {
			if _, err := io.ReadFull(res.Body, event); err != nil {
				t.Fatalf("a quiet watch ended with %v", err)
			}
			time.Sleep(time.Hour)
			next <- struct{}{}
		}
		synctest.Wait() // for the event: the longest time is from then on
		l.freeze()
		start := time.Now()
		_, err = io.ReadAll(res.Body)
		if err == nil || !transport.FellSilent(err) || !transport.ConnectionFailed(err) {
			t.Errorf("got %v, want a connection that fell silent", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		l.thaw()
	})
}

func TestStopEndsADialInProgress(t *testing.T) {
	config := configFor(t, peertest.NewPKI(t))
	synctest.Test(t, func(t *testing.T) {
		config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		tr, err := transport.New(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tr.Run(ctx) }()
		start := time.Now()
		go func() { time.Sleep(time.Second); cancel() }()
		_, err = tr.RoundTrip(newRequest(t, "GET", "peer:6443", ""))
		wantReason(t, err, transport.ReasonDial)
		if took := time.Since(start); took != time.Second {
			t.Errorf("the dial went on for %v", took-time.Second)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
