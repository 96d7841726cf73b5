package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	dialTimeout      = 2 * time.Second
	handshakeTimeout = 3 * time.Second
	// A connection on which nothing was heard for pingAfter is pinged, and
	// closed when no answer comes within pingTimeout: a frozen peer is noticed
	// within five seconds.
	pingAfter   = 2 * time.Second
	pingTimeout = 2500 * time.Millisecond

	idleTimeout       = 90 * time.Second
	maxIdlePerPeer    = 64
	maxResponseHeader = 1 << 20
)

// generation is everything that was made of one state of the files.
type generation struct {
	ordinary, upgrade *http.Transport
	retired           atomic.Bool
}

// credentials are what the files hold.
type credentials struct {
	authorities []*x509.Certificate
	roots       *x509.CertPool // the authorities as a pool
	own         tls.Certificate
}

func (t *Transport) newGeneration(creds credentials) *generation {
	h1 := new(http.Protocols)
	h1.SetHTTP1(true)
	both := new(http.Protocols)
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	g := &generation{
		ordinary: t.newHTTPTransport(creds, both, "h2", "http/1.1"),
		upgrade:  t.newHTTPTransport(creds, h1, "http/1.1"),
	}
	// On a connection that was used before, a request may be lost, or sent again
	// by net/http, because the peer has just closed it.
	g.upgrade.DisableKeepAlives = true
	g.ordinary.DialTLSContext = newDialQueue(g.ordinary.DialTLSContext).dialContext
	return g
}

func (t *Transport) newHTTPTransport(creds credentials, protocols *http.Protocols, names ...string) *http.Transport {
	config := &tls.Config{
		RootCAs:            creds.roots,
		Time:               t.config.Clock.Now,
		ServerName:         t.config.ServerName,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         names,
		ClientSessionCache: noSessions{},
		// Sent whatever CAs the peer names: its refusal then says what is wrong,
		// where an absent certificate would be just another anonymous request.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &creds.own, nil
		},
	}
	return &http.Transport{
		Protocols:              protocols,
		DialTLSContext:         t.dialTLS(config),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdlePerPeer,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}

// dialTLS opens connections whose every failure is a [*ConnectError]. It has to
// return a [*tls.Conn] for net/http to learn that HTTP/2 was agreed on.
func (t *Transport) dialTLS(config *tls.Config) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if t.config.isOwn(address) {
			return nil, &ConnectError{Reason: ReasonSelf, Err: errOwnAddress}
		}
		ctx, cancel := t.untilStopped(ctx)
		defer cancel()
		raw, err := t.dial(ctx, network, address)
		if err != nil {
			return nil, &ConnectError{Reason: dialReason(err), Err: err}
		}
		l := &link{Conn: raw, all: &t.links, address: address}
		conn := tls.Client(l, config)
		if err := t.secure(ctx, conn, l, config.RootCAs); err != nil {
			_ = l.Close()
			return nil, &ConnectError{Reason: t.handshakeReason(err), Err: err}
		}
		if err := ctx.Err(); err != nil {
			_ = conn.Close()
			return nil, &ConnectError{Reason: dialReason(err), Err: context.Cause(ctx)}
		}
		return conn, nil
	}
}

var errOwnAddress = errors.New("the address is this server's own")

// isOwn reports whether an address is this server's own, however it is written.
func (c *Config) isOwn(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Port() == c.Own.Port() && at.Addr().Unmap() == c.Own.Addr().Unmap()
}

// secure makes sure who is at the other side, and that it takes us for a peer.
func (t *Transport) secure(ctx context.Context, conn *tls.Conn, l *link, roots *x509.CertPool) error {
	if err := handshake(ctx, conn); err != nil {
		return err
	}
	if err := l.hearVerdict(ctx, conn); err != nil {
		return err
	}
	return t.links.add(l, conn.ConnectionState(), roots)
}

// dial returns in time whatever the config's Dial does: one that goes through an
// egress proxy waits for its answer with no limit of its own.
func (t *Transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	go func() {
		conn, err := t.config.Dial(ctx, network, address)
		select {
		case results <- result{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case r := <-results:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func handshake(ctx context.Context, conn *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	return conn.HandshakeContext(ctx)
}

// untilStopped ends a dial with the transport: net/http lets it go on after its
// request has ended.
func (t *Transport) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-t.stopped:
			cancel(errStopped)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// retire closes the connections that are idle; those in use are closed when
// their requests end.
func (g *generation) retire() {
	g.retired.Store(true)
	g.closeIdle()
}

func (g *generation) closeIdle() { g.ordinary.CloseIdleConnections() }
