package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// LoopHeader marks a request that a peer has forwarded, so that it is not
// forwarded a second time. It is set to "true".
//
// Source: PeerProxiedHeader in k8s.io/apiserver/pkg/util/peerproxy.
const LoopHeader = "X-Kubernetes-Peer-Proxied"

// DefaultServerName is the name that every kube-apiserver's serving certificate
// holds.
const DefaultServerName = "kubernetes.default.svc"

// DialFunc opens a connection to an address of the form host:port.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Config is what a [Transport] is made of.
type Config struct {
	// CAFile is the PEM bundle that peers' serving certificates are checked
	// against.
	CAFile string
	// CertFile and KeyFile are the PEM client certificate, with its chain, and
	// key that peers recognize this server by.
	CertFile, KeyFile string
	// ServerName is the name that a peer's certificate must hold. Empty stands
	// for [DefaultServerName].
	ServerName string
	// Dial opens connections, for instance through an egress proxy. It is given
	// two seconds; what it opens later is closed. Nil stands for a plain
	// [net.Dialer].
	Dial DialFunc
	// Own, optional, is where peers reach this server. Nothing is dialled there:
	// that is [ReasonSelf].
	Own netip.AddrPort
	// IdentityHeaders are the names of the headers, beyond the usual ones, that
	// carry a user's name, UID or groups in this cluster; IdentityHeaderPrefixes
	// the prefixes of those that carry extra values. None of them ever crosses.
	IdentityHeaders, IdentityHeaderPrefixes []string
	// Clock says when to look at the files again, and what is valid. Nil stands for
	// the real one.
	Clock clock.WithTicker
}

// Transport sends requests to peers. Make it with [New]. It is safe for
// concurrent use.
type Transport struct {
	config  Config
	stopped chan struct{}
	current atomic.Pointer[generation]
	links   links

	// Touched by Run only, once New has returned.
	files files
	creds credentials
	// pending is what the last look at the files has brought.
	pending files
	// trouble with the files, and the certificates that are not valid: those that
	// were logged.
	trouble string
	invalid map[*x509.Certificate]string
}

// New reads the files of the config and returns a Transport that uses what is
// in them. It starts nothing: call Run to follow changes of the files. Trouble
// with a file is a [*FileError].
func New(config Config) (*Transport, error) {
	if config.ServerName == "" {
		config.ServerName = DefaultServerName
	}
	if config.Dial == nil {
		config.Dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	t := &Transport{config: config, stopped: make(chan struct{})}
	read, creds, err := config.load()
	if err != nil {
		return nil, err
	}
	t.links.verify = t.verify
	t.links.hold(creds.roots)
	t.files, t.creds = read, creds
	t.current.Store(t.newGeneration(creds))
	return t, nil
}

// RoundTrip sends a request whose URL holds a peer's address, and returns the
// peer's answer, as [http.RoundTripper] says. A request with an Upgrade header
// goes over a connection of its own, which is closed after the answer if the
// peer does not switch protocols.
//
// The error is a [*ConnectError], a [*RefusedError] or an [*UnsendableError] when
// the peer did not execute the request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	gen := t.current.Load()
	ctx, cancel := context.WithCancelCause(req.Context())
	var sent progress
	out := req.WithContext(sent.trace(sent.await(ctx), cancel))
	transport := gen.ordinary
	if out.Header.Get("Upgrade") != "" {
		transport = gen.upgrade
	}
	res, err := transport.RoundTrip(out)
	sent.waiting.Store(false)
	if err != nil {
		err = classify(ctx, &sent, err)
		cancel(nil)
		return nil, err
	}
	if l := sent.link.Load(); l != nil && l.leadsBack.Load() {
		_ = res.Body.Close()
		cancel(nil)
		return nil, &ConnectError{Reason: ReasonSelf, Err: errLeadsBack}
	}
	res.Request = req
	if res.StatusCode == http.StatusSwitchingProtocols {
		// The body is the connection itself and has to stay writable. The
		// caller's context frees what cancel would.
		return res, nil
	}
	res.Body = &responseBody{ReadCloser: res.Body, cancel: cancel, gen: gen}
	return res, nil
}

// responseBody ends what belongs to a request when its answer is closed.
type responseBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
	gen    *generation
}

func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	if b.gen.retired.Load() {
		b.gen.closeIdle()
	}
	return err
}

var errStopped = errors.New("the transport has stopped")
