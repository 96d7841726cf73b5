package transport_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// reloading is a transport under a clock of the test's.
type reloading struct {
	*transport.Transport
	clock  *clocktesting.FakeClock
	config transport.Config
}

func newReloading(t *testing.T, config transport.Config) reloading {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	config.Clock = clock
	r := reloading{Transport: running(t, config), clock: clock, config: config}
	peertest.Eventually(t, "Run waits for its ticker", clock.HasWaiters)
	return r
}

// untilReloaded lets time go by until the condition holds. A change is used once
// it was seen twice.
func (r reloading) untilReloaded(t *testing.T, what string, condition func() bool) {
	t.Helper()
	peertest.Eventually(t, what, func() bool {
		r.clock.Step(10 * time.Second)
		return condition()
	})
}

// namesClient answers with the name in the client's certificate.
var namesClient = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
})

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestChangedCertificateIsUsed(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{Handler: namesClient}).Start(t, pki)
	r := newReloading(t, configFor(t, pki))
	if got := get(t, r, peer.Address()); got != "front-proxy-client" {
		t.Fatalf("before: %q", got)
	}
	next := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: "next"})
	write(t, r.config.CertFile, next.Cert)
	write(t, r.config.KeyFile, next.Key)
	r.untilReloaded(t, "the next certificate is shown", func() bool { return get(t, r, peer.Address()) == "next" })
}

func TestSwappedSymlinkIsSeen(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{Handler: namesClient}).Start(t, pki)
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		pair := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: name})
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "crt"), pair.Cert)
		write(t, filepath.Join(dir, name, "key"), pair.Key)
	}
	link := func(to string) {
		if err := os.Symlink(to, filepath.Join(dir, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "now")); err != nil {
			t.Fatal(err)
		}
	}
	link("one")
	config := configFor(t, pki)
	config.CertFile, config.KeyFile = filepath.Join(dir, "now", "crt"), filepath.Join(dir, "now", "key")
	r := newReloading(t, config)
	if got := get(t, r, peer.Address()); got != "one" {
		t.Fatalf("before: %q", got)
	}
	link("two")
	r.untilReloaded(t, "the certificate behind the new link is shown", func() bool { return get(t, r, peer.Address()) == "two" })
}

func TestChangedCAIsUsed(t *testing.T) {
	pki := peertest.NewPKI(t)
	r := newReloading(t, configFor(t, pki))
	next := peertest.NewCA(t, "next")
	peer := (&peertest.Peer{
		ID:          "b",
		Certificate: next.Issue(t, peertest.Cert{DNSNames: []string{peertest.ServerName}}),
	}).Start(t, pki)
	_, err := r.RoundTrip(newRequest(t, "GET", peer.Address(), ""))
	wantReason(t, err, transport.ReasonUnknownAuthority)

	write(t, r.config.CAFile, append(pki.Cluster.PEM, next.PEM...))
	r.untilReloaded(t, "the next CA is trusted", func() bool {
		res, err := r.RoundTrip(newRequest(t, "GET", peer.Address(), ""))
		if err != nil {
			return false
		}
		return readAll(t, res) == "b"
	})
}

// runInBubble returns a transport that runs in a bubble of testing/synctest, and its log.
func runInBubble(t *testing.T, config transport.Config) (*transport.Transport, ktesting.Buffer) {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	tr, err := transport.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	done := make(chan error)
	go func() { done <- tr.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return tr, logger.GetSink().(ktesting.Underlier).GetBuffer()
}

func TestUnchangedFilesChangeNothing(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	peer := (&peertest.Peer{}).Start(t, pki)
	peer.Stop()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		defer func() { _ = l.Close() }()
		peer.ServeAlso(l)
		defer peer.Stop()
		dials := 0
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return l.dial(ctx, network, address)
		}
		tr, log := runInBubble(t, config)
		for range 3 {
			get(t, tr, "peer:6443")
			time.Sleep(11 * time.Second)
		}
		if dials != 1 || log.String() != "" {
			t.Errorf("%d connections, logged %s", dials, log.String())
		}
	})
}

func TestTroubleWithTheFilesIsLoggedOnce(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	synctest.Test(t, func(t *testing.T) {
		_, log := runInBubble(t, config)
		for _, step := range []struct {
			ca    string
			lines int
		}{{"", 1}, {"not PEM", 1}, {string(pki.Cluster.PEM), 1}, {"", 2}, {string(peertest.NewCA(t, "next").PEM), 3}} {
			write(t, config.CAFile, []byte(step.ca))
			time.Sleep(31 * time.Second)
			if n := strings.Count(log.String(), "\n"); n != step.lines {
				t.Errorf("with %q: %d lines: %s", step.ca, n, log.String())
			}
		}
	})
}

// The transport that is left behind keeps its connections while they are used
// and not a moment longer.
func TestReloadLetsRequestsInFlightFinish(t *testing.T) {
	for _, http1 := range []bool{true, false} {
		t.Run(protocolName(http1), func(t *testing.T) {
			pki := peertest.NewPKI(t)
			goOn := make(chan struct{})
			closed := make(chan struct{})
			peer := (&peertest.Peer{HTTP1: http1, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Shown", r.TLS.PeerCertificates[0].Subject.CommonName)
				_, _ = io.WriteString(w, "first ")
				_ = http.NewResponseController(w).Flush()
				<-goOn
				_, _ = io.WriteString(w, "last")
			})}).Start(t, pki)
			config := configFor(t, pki)
			config.Dial = dialNoticingClose(closed)
			r := newReloading(t, config)

			res, err := r.RoundTrip(newRequest(t, "GET", peer.Address(), ""))
			if err != nil {
				t.Fatal(err)
			}
			next := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: "next"})
			write(t, config.CertFile, next.Cert)
			write(t, config.KeyFile, next.Key)
			r.untilReloaded(t, "the new generation is used", func() bool {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				res, err := r.RoundTrip(newRequest(t, "GET", peer.Address(), "").WithContext(ctx))
				return err == nil && res.Body.Close() == nil && res.Header.Get("Shown") == "next"
			})
			select {
			case <-closed:
				t.Fatal("the old connection was closed while in use")
			default:
			}
			close(goOn)
			if got := readAll(t, res); got != "first last" {
				t.Errorf("got %q", got)
			}
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Error("the old connection was not closed")
			}
		})
	}
}

func TestRequestsSpeakHTTP2UncompressedAndShowTheCertificate(t *testing.T) {
	pki := peertest.NewPKI(t)
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(listen, func(t *testing.T) {
			peer := (&peertest.Peer{Listen: listen, Handler: namesClient}).Start(t, pki)
			tr := running(t, configFor(t, pki))
			if got := get(t, tr, peer.Address()); got != "front-proxy-client" {
				t.Errorf("got %q", got)
			}
			got := peer.Requests()[0]
			if got.Proto != "HTTP/2.0" {
				t.Errorf("spoke %s", got.Proto)
			}
			if encoding := got.Header.Get("Accept-Encoding"); encoding != "" {
				t.Errorf("asked for encoding %q", encoding)
			}
		})
	}
}

func TestUpgradeSpeaksHTTP1(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	})}).Start(t, pki)
	tr := running(t, configFor(t, pki))
	req := newRequest(t, "POST", peer.Address(), "")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res.Status)
	}
	conn, ok := res.Body.(io.ReadWriter)
	if !ok {
		t.Fatal("the body can't be written")
	}
	_, _ = io.WriteString(conn, "hello\n")
	if got, _ := io.ReadAll(conn); string(got) != "hello\n" {
		t.Errorf("got %q", got)
	}
}
