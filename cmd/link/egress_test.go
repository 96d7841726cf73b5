package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// connectProxy is an HTTP proxy that knows CONNECT alone.
type connectProxy struct {
	refuse  bool
	running sync.WaitGroup

	mu    sync.Mutex
	asked []string // the targets
}

// serve makes the proxy serve a listener until the test ends.
func (p *connectProxy) serve(t *testing.T, listener net.Listener) {
	t.Helper()
	server := &http.Server{Handler: p}
	p.running.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(p.running.Wait)
	t.Cleanup(func() { _ = server.Close() })
}

func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host)
	p.mu.Unlock()
	if p.refuse {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	target, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = target.Close()
		return
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	p.join(client, target)
	p.join(target, client)
}

func (p *connectProxy) join(from, to net.Conn) {
	p.running.Go(func() {
		_, _ = io.Copy(to, from)
		_, _ = from.Close(), to.Close()
	})
}

// targets returns what the proxy was asked for so far.
func (p *connectProxy) targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// listen returns a listener for the proxy and what names it in the server's
// --egress-selector-config-file.
func listen(t *testing.T, over string) (net.Listener, string) {
	t.Helper()
	if over == "uds" {
		// The names of sockets are short.
		path := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return listener, "uds: {udsName: " + path + "}"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ca := peertest.NewCA(t, "egress")
	own := ca.Issue(t, peertest.Cert{CommonName: "proxy", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	client := ca.Issue(t, peertest.Cert{CommonName: "apiserver"})
	config := &tls.Config{Certificates: []tls.Certificate{own.TLS(t)}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	return tls.NewListener(listener, config), fmt.Sprintf("tcp: {url: %q, tlsConfig: {caBundle: %s, clientCert: %s, clientKey: %s}}",
		"https://"+listener.Addr().String(), peertest.WriteFile(t, "ca.crt", ca.PEM),
		peertest.WriteFile(t, "client.crt", client.Cert), peertest.WriteFile(t, "client.key", client.Key))
}

// egressFile returns the --egress-selector-config-file of a server that goes
// through the proxy for one kind of traffic.
func egressFile(t *testing.T, traffic, proxy string) string {
	t.Helper()
	return peertest.WriteFile(t, "egress.yaml", []byte(strings.Join([]string{
		"apiVersion: apiserver.k8s.io/v1beta1",
		"kind: EgressSelectorConfiguration",
		"egressSelections:",
		"- name: " + traffic,
		"  connection:",
		"    proxyProtocol: HTTPConnect",
		"    transport: {" + proxy + "}",
	}, "\n")))
}

// through returns a transport to peers for a server that is configured to go
// through the proxy for one kind of traffic.
func through(t *testing.T, pki *peertest.PKI, traffic, proxy string) *transport.Transport {
	t.Helper()
	configuration, err := egressselector.ReadEgressSelectorConfiguration(egressFile(t, traffic, proxy))
	if err != nil {
		t.Fatal(err)
	}
	generic := &genericapiserver.Config{}
	if generic.EgressSelector, err = egressselector.NewEgressSelector(configuration); err != nil {
		t.Fatal(err)
	}
	dial, err := egressDialer(generic)
	if err != nil {
		t.Fatal(err)
	}
	own := pki.ProxyClient(t)
	tr, err := transport.New(transport.Config{
		CAFile:   peertest.WriteFile(t, "ca.crt", pki.Cluster.PEM),
		CertFile: peertest.WriteFile(t, "proxy.crt", own.Cert),
		KeyFile:  peertest.WriteFile(t, "proxy.key", own.Key),
		Dial:     dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- tr.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return tr
}

func send(t *testing.T, tr *transport.Transport, peer *peertest.Peer, headers ...string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+peer.Address()+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// Peers are reached through the egress proxy of the network "controlplane", and
// are verified by mutual TLS all the same: the proxy sees bytes alone.
func TestPeersAreReachedThroughTheEgressProxy(t *testing.T) {
	for _, over := range []string{"tcp", "uds"} {
		t.Run(over, func(t *testing.T) {
			pki := peertest.NewPKI(t)
			peer := (&peertest.Peer{ID: "b", AllowedNames: []string{"front-proxy-client"}}).Start(t, pki)
			stranger := (&peertest.Peer{
				ID:          "c",
				Certificate: peertest.NewCA(t, "other").Issue(t, peertest.Cert{DNSNames: []string{peertest.ServerName}}),
			}).Start(t, pki)
			proxy := &connectProxy{}
			listener, named := listen(t, over)
			proxy.serve(t, listener)
			tr := through(t, pki, "controlplane", named)
			for _, headers := range [][]string{nil, {"Connection", "Upgrade", "Upgrade", "websocket"}} {
				if got, err := send(t, tr, peer, headers...); err != nil || got != "b" {
					t.Errorf("got %q, %v", got, err)
				}
			}
			want := "CONNECT " + peer.Address()
			if got := proxy.targets(); !slices.Equal(got, []string{want, want}) {
				t.Errorf("the proxy was asked for %q, want %q for each kind of connection", got, want)
			}
			_, err := send(t, tr, stranger)
			wantReason(t, err, transport.ReasonUnknownAuthority)
		})
	}
}

func TestAnEgressProxyThatRefuses(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{ID: "b"}).Start(t, pki)
	proxy := &connectProxy{refuse: true}
	listener, named := listen(t, "uds")
	proxy.serve(t, listener)
	_, err := send(t, through(t, pki, "controlplane", named), peer)
	wantReason(t, err, transport.ReasonDial)
	if n := peer.Connections(); n != 0 {
		t.Errorf("%d connections went past the proxy", n)
	}
}

// A proxy for other traffic is no business of the peers'.
func TestAnEgressProxyForOtherTraffic(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{ID: "b"}).Start(t, pki)
	proxy := &connectProxy{}
	listener, named := listen(t, "uds")
	proxy.serve(t, listener)
	if got, err := send(t, through(t, pki, "cluster", named), peer); err != nil || got != "b" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := proxy.targets(); len(got) != 0 {
		t.Errorf("the proxy was asked for %q", got)
	}
}

func wantReason(t *testing.T, err error, want transport.Reason) {
	t.Helper()
	if connect, ok := errors.AsType[*transport.ConnectError](err); !ok || connect.Reason != want {
		t.Errorf("got %v, want a ConnectError of reason %s", err, want)
	}
}
