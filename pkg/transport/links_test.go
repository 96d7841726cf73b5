package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// Two peers, each of a CA of its own. One of the CAs leaves the bundle.
func TestRevokedCAClosesItsConnectionsAlone(t *testing.T) {
	for _, http1 := range []bool{true, false} {
		t.Run(protocolName(http1), func(t *testing.T) {
			pki := peertest.NewPKI(t)
			next := peertest.NewCA(t, "next")
			config := configFor(t, pki)
			write(t, config.CAFile, slices.Concat(pki.Cluster.PEM, next.PEM))
			var goOn chan struct{} // of the bubble
			stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "first ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-goOn:
					_, _ = io.WriteString(w, "last")
				case <-r.Context().Done():
				}
			})
			named := peertest.Cert{DNSNames: []string{peertest.ServerName}}
			left := (&peertest.Peer{HTTP1: http1, Handler: stream}).Start(t, pki)
			stays := (&peertest.Peer{HTTP1: http1, Handler: stream, Certificate: next.Issue(t, named)}).Start(t, pki)
			left.Stop()
			stays.Stop()
			synctest.Test(t, func(t *testing.T) {
				goOn = make(chan struct{})
				network := pipeNetwork{}
				defer network.close()
				network.serve(t, "left:6443", left)
				network.serve(t, "stays:6443", stays)
				config := config
				config.Dial = network.dial
				tr, log := runInBubble(t, config)
				open := map[string]*http.Response{}
				for _, address := range []string{"left:6443", "stays:6443"} {
					res, err := tr.RoundTrip(newRequest(t, "GET", address, ""))
					if err != nil {
						t.Fatal(err)
					}
					open[address] = res
				}

				write(t, config.CAFile, next.PEM)
				start := time.Now()
				if _, err := io.ReadAll(open["left:6443"].Body); err == nil {
					t.Error("the answer of the peer whose CA has left ended as if it were whole")
				}
				_ = open["left:6443"].Body.Close()
				if took := time.Since(start); took > 30*time.Second {
					t.Errorf("its connection was closed after %v", took)
				}
				_, err := tr.RoundTrip(newRequest(t, "GET", "left:6443", ""))
				wantReason(t, err, transport.ReasonUnknownAuthority)

				time.Sleep(time.Minute)
				close(goOn)
				if got := readAll(t, open["stays:6443"]); got != "first last" {
					t.Errorf("of the other peer's answer came %q", got)
				}
				if n := strings.Count(log.String(), "Closed the connections"); n != 1 || !strings.Contains(log.String(), `connections=1 addresses=["left:6443"]`) {
					t.Errorf("logged: %s", log.String())
				}
			})
		})
	}
}

func TestRevokedCAClosesUpgradedConnections(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	peer := (&peertest.Peer{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	})}).Start(t, pki)
	peer.Stop()
	synctest.Test(t, func(t *testing.T) {
		network := pipeNetwork{}
		defer network.close()
		network.serve(t, "peer:6443", peer)
		config.Dial = network.dial
		tr, _ := runInBubble(t, config)
		req := newRequest(t, "GET", "peer:6443", "")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		write(t, config.CAFile, peertest.NewCA(t, "next").PEM)
		start := time.Now()
		if n, err := res.Body.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes came over the connection", n)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("it was closed after %v", took)
		}
	})
}

// The bundle changes while a connection is made by the old one.
func TestConnectionOfARevokedCAThatIsBeingMade(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	peer := (&peertest.Peer{}).Start(t, pki)
	peer.Stop()
	synctest.Test(t, func(t *testing.T) {
		network := pipeNetwork{}
		defer network.close()
		network.serve(t, "peer:6443", peer)
		config := config
		config.Dial = func(ctx context.Context, kind, address string) (net.Conn, error) {
			time.Sleep(1500 * time.Millisecond)
			return network.dial(ctx, kind, address)
		}
		tr, _ := runInBubble(t, config)
		write(t, config.CAFile, peertest.NewCA(t, "next").PEM)
		time.Sleep(19 * time.Second) // it is used at 20 s
		_, err := tr.RoundTrip(newRequest(t, "GET", "peer:6443", ""))
		wantReason(t, err, transport.ReasonUnknownAuthority)
	})
}

// A half-written bundle is not one that lacks a CA.
func TestTornBundleRevokesNothing(t *testing.T) {
	inTime(t, func(t *testing.T, pki *peertest.PKI, config transport.Config, shown func() string) {
		torn := slices.Concat(peertest.NewCA(t, "other").PEM, pki.Cluster.PEM[:len(pki.Cluster.PEM)/2])
		write(t, config.CAFile, torn)
		for range 4 {
			shown()
		}
	})
}

func TestAddressThatLeadsBack(t *testing.T) {
	pki := peertest.NewPKI(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, http1 := range []bool{true, false} {
			t.Run(tls.VersionName(version)+protocolName(http1), func(t *testing.T) {
				var own, other *transport.Transport
				peer := (&peertest.Peer{HTTP1: http1, MaxTLSVersion: version, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if other.LeadsBack(r) {
						t.Error("another's connection leads back")
					}
					if own.LeadsBack(r) {
						w.WriteHeader(http.StatusServiceUnavailable)
					}
				})}).Start(t, pki)
				own, other = running(t, configFor(t, pki)), running(t, configFor(t, pki))
				_, err := own.RoundTrip(newRequest(t, "POST", peer.Address(), "body"))
				wantReason(t, err, transport.ReasonSelf)
			})
		}
	}
}

func TestNothingIsDialledAtTheOwnAddress(t *testing.T) {
	pki := peertest.NewPKI(t)
	for _, tc := range []struct {
		name, own, peer string
		want            transport.Reason
	}{
		{"the own one", "192.0.2.1:6443", "192.0.2.1:6443", transport.ReasonSelf},
		{"mapped into IPv6", "192.0.2.1:6443", "[::ffff:192.0.2.1]:6443", transport.ReasonSelf},
		{"in another spelling", "[2001:db8::1]:6443", "[2001:db8:0::1]:6443", transport.ReasonSelf},
		{"another port", "192.0.2.1:6443", "192.0.2.1:6444", transport.ReasonDial},
		{"another host", "192.0.2.1:6443", "192.0.2.2:6443", transport.ReasonDial},
		{"where the own one is not known", "", "192.0.2.1:6443", transport.ReasonDial},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := configFor(t, pki)
			config.Own, _ = netip.ParseAddrPort(tc.own)
			config.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("dialled") }
			_, err := running(t, config).RoundTrip(newRequest(t, "GET", tc.peer, ""))
			wantReason(t, err, tc.want)
		})
	}
}

func TestAConnectionOfAnotherDoesNotLeadBack(t *testing.T) {
	pki := peertest.NewPKI(t)
	var own *transport.Transport
	peer := (&peertest.Peer{ID: "b", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if own.LeadsBack(r) {
			t.Error("leads back")
		}
	})}).Start(t, pki)
	own = running(t, configFor(t, pki))
	get(t, running(t, configFor(t, pki)), peer.Address())
	plain, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a", nil)
	if own.LeadsBack(plain) {
		t.Error("a connection without TLS leads back")
	}
}

// A peer's 401 to this server's own question is about its certificate.
func TestUnauthorizedServerIsAFailureToConnect(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{AllowedNames: []string{"someone-else"}}).Start(t, pki)
	tr := running(t, configFor(t, pki))
	_, err := transport.AsServer(tr).RoundTrip(newRequest(t, "GET", peer.Address(), ""))
	wantReason(t, err, transport.ReasonUnauthorized)
	if connect, ok := errors.AsType[*transport.ConnectError](err); !ok || !strings.Contains(err.Error(), connect.Reason.Remedy()) {
		t.Errorf("%v does not say what to do", err)
	}
}
