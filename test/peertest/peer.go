package peertest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"peerproxy.internal/pkg/snapshot"
)

// PKI is what servers that forward to each other share.
type PKI struct {
	// Cluster signs the servers' serving certificates.
	Cluster *CA
	// FrontProxy signs the client certificates by which they know each other.
	FrontProxy *CA
}

// NewPKI makes the authorities of a cluster.
func NewPKI(t testing.TB) *PKI {
	t.Helper()
	return &PKI{Cluster: NewCA(t, "cluster"), FrontProxy: NewCA(t, "front-proxy")}
}

// ProxyClient issues the certificate that a server shows to its peers.
func (p *PKI) ProxyClient(t testing.TB) Pair {
	t.Helper()
	return p.FrontProxy.Issue(t, Cert{CommonName: "front-proxy-client"})
}

// Peer is a TLS server that does what a test says. Set its fields before Start.
type Peer struct {
	// ID is its server ID.
	ID string
	// Handler answers its requests. Nil answers 200 with the server's ID.
	Handler http.Handler
	// Certificate is its serving certificate, [ServerName]'s of the cluster's CA
	// if empty.
	Certificate Pair
	// VerifyClient is asked about client certificates at the handshake. Nil takes
	// any, as a kube-apiserver does.
	VerifyClient func(certs [][]byte, chains [][]*x509.Certificate) error
	// AllowedNames are the client certificates' names that it takes for a peer's.
	// Whoever shows another, or one of another CA, is answered 401. Empty lets
	// anyone in.
	AllowedNames []string
	// MaxTLSVersion bounds the version of TLS. Zero does not.
	MaxTLSVersion uint16
	// Listen is the address to listen on. Empty stands for 127.0.0.1:0.
	Listen string
	// HTTP1 makes it speak HTTP/1.1 alone.
	HTTP1 bool
	// MaxHeaderBytes bounds the headers that it takes, and that it says it takes.
	// Zero stands for net/http's bound.
	MaxHeaderBytes int
	// OnConn is called for each connection, the first being number 1, before its
	// handshake. If it returns true it has taken the connection over, and the
	// server does not serve it.
	OnConn func(n int, conn *tls.Conn) bool

	pki      *PKI
	tls      *tls.Config
	listener net.Listener

	mu       sync.Mutex
	servers  []*http.Server
	accepted int
	conns    map[net.Conn]bool
	requests []Request
}

// Request is a request that a peer has received.
type Request struct {
	Method, Proto, Host, URI string
	Header                   http.Header
	Body                     []byte
	// BodyError is what ended the body, if it was not its end.
	BodyError error
}

// Start makes the peer listen.
func (p *Peer) Start(t testing.TB, pki *PKI) *Peer {
	t.Helper()
	p.pki, p.conns = pki, map[net.Conn]bool{}
	if p.Listen == "" {
		p.Listen = "127.0.0.1:0"
	}
	if len(p.Certificate.Cert) == 0 {
		p.Certificate = pki.Cluster.Issue(t, Cert{CommonName: p.ID, DNSNames: []string{ServerName}})
	}
	listener, err := net.Listen("tcp", p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	p.listener = listener
	p.tls = p.tlsConfig(p.Certificate.TLS(t))
	p.serveTLS(&hookedListener{Listener: listener, peer: p})
	t.Cleanup(p.Stop)
	return p
}

// ServeAlso makes a peer that was started serve a listener of the test's, for
// instance one of in-memory connections.
func (p *Peer) ServeAlso(l net.Listener) { p.serveTLS(tls.NewListener(l, p.tls)) }

func (p *Peer) serveTLS(l net.Listener) {
	server := &http.Server{
		Handler:        http.HandlerFunc(p.serve),
		TLSConfig:      p.tls.Clone(),
		MaxHeaderBytes: p.MaxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	p.mu.Lock()
	p.servers = append(p.servers, server)
	p.mu.Unlock()
	go func() { _ = server.Serve(l) }()
}

// Address is the host:port that the peer listens on.
func (p *Peer) Address() string { return p.listener.Addr().String() }

// Peer is the peer as a snapshot names it.
func (p *Peer) Peer(state snapshot.State) *snapshot.Peer {
	return &snapshot.Peer{ServerID: p.ID, State: state, Address: p.Address()}
}

// Requests returns the requests received so far whose handler has returned.
func (p *Peer) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.requests...)
}

// Connections returns how many connections it has accepted.
func (p *Peer) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Refuse makes the peer refuse connections from now on. Those it has live on.
func (p *Peer) Refuse() { _ = p.listener.Close() }

// CloseConnections cuts off every connection.
func (p *Peer) CloseConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Stop ends the peer and all its connections. The test's end does it too.
func (p *Peer) Stop() {
	p.Refuse()
	p.CloseConnections()
	p.mu.Lock()
	servers := p.servers
	p.servers = nil
	p.mu.Unlock()
	for _, server := range servers {
		_ = server.Close()
	}
}

func (p *Peer) tlsConfig(own tls.Certificate) *tls.Config {
	config := &tls.Config{
		Certificates: []tls.Certificate{own},
		ClientAuth:   tls.RequestClientCert,
		ClientCAs:    p.pki.FrontProxy.Pool(),
		NextProtos:   []string{"h2", "http/1.1"},
		// The client is the one to ask for a newer version than the oldest.
		MinVersion:            tls.VersionTLS10,
		MaxVersion:            p.MaxTLSVersion,
		VerifyPeerCertificate: p.VerifyClient,
	}
	if p.HTTP1 {
		config.NextProtos = []string{"http/1.1"}
	}
	return config
}

// serve records a request around the handler.
func (p *Peer) serve(w http.ResponseWriter, r *http.Request) {
	body := &recordedBody{ReadCloser: r.Body}
	r.Body = body
	request := Request{Method: r.Method, Proto: r.Proto, Host: r.Host, URI: r.RequestURI, Header: r.Header.Clone()}
	defer func() {
		request.Body, request.BodyError = body.read.Bytes(), body.err
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests = append(p.requests, request)
	}()
	switch {
	case !p.trusts(r.TLS):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
	case p.Handler != nil:
		p.Handler.ServeHTTP(w, r)
	default:
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, p.ID)
	}
}

// trusts reports whether a connection is a peer's.
func (p *Peer) trusts(state *tls.ConnectionState) bool {
	if len(p.AllowedNames) == 0 {
		return true
	}
	for _, cert := range state.PeerCertificates {
		if cert.CheckSignatureFrom(p.pki.FrontProxy.cert) != nil {
			continue
		}
		if slices.Contains(p.AllowedNames, cert.Subject.CommonName) {
			return true
		}
	}
	return false
}

type recordedBody struct {
	io.ReadCloser
	read bytes.Buffer
	err  error
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Write(p[:n])
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// hookedListener gives each connection to the peer's hook first.
type hookedListener struct {
	net.Listener
	peer *Peer
}

func (l *hookedListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		n := l.peer.track(raw)
		conn := tls.Server(raw, l.peer.tls)
		if hook := l.peer.OnConn; hook == nil || !hook(n, conn) {
			return conn, nil
		}
	}
}

func (p *Peer) track(conn net.Conn) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	p.conns[conn] = true
	return p.accepted
}

// Eventually waits until the condition holds, and fails the test if it does not
// within ten seconds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in ten seconds: %s", what)
		}
	}
}
