package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// link is the network connection below one of TLS.
type link struct {
	net.Conn
	all     *links
	address string // that was dialled
	state   tls.ConnectionState
	binding string
	heard   []byte // read from Conn, and not yet from here
	// leadsBack is set once the other end was met in this very process.
	leadsBack atomic.Bool
}

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) {
	if len(l.heard) == 0 {
		return l.Conn.Read(p)
	}
	n := copy(p, l.heard)
	l.heard = l.heard[n:]
	return n, nil
}

// Close implements net.Conn.
func (l *link) Close() error {
	l.all.remove(l)
	return l.Conn.Close()
}

// links are the connections that are open, whatever generation they are of.
type links struct {
	// verify reports whether a connection would be accepted with these CAs.
	verify func(state tls.ConnectionState, roots *x509.CertPool) error

	mu    sync.Mutex
	roots *x509.CertPool // the CAs that hold now
	open  map[*link]bool
	// bound are those of open that have a binding, by it.
	bound map[string]*link
}

// add takes in a connection that was verified by the given CAs. It fails if
// others hold meanwhile, and do not verify it.
func (s *links) add(l *link, state tls.ConnectionState, roots *x509.CertPool) error {
	l.state = state
	l.binding = bindingOf(&state)
	s.mu.Lock()
	defer s.mu.Unlock()
	if roots != s.roots {
		if err := s.verify(state, s.roots); err != nil {
			return err
		}
	}
	if s.open == nil {
		s.open, s.bound = map[*link]bool{}, map[string]*link{}
	}
	s.open[l] = true
	if l.binding != "" {
		s.bound[l.binding] = l
	}
	return nil
}

func (s *links) remove(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, l)
	delete(s.bound, l.binding)
}

// hold makes these the CAs that hold, closes the connections that they do not
// verify, and returns the addresses that those were to, one for each.
func (s *links) hold(roots *x509.CertPool) []string {
	s.mu.Lock()
	s.roots = roots
	var revoked []*link
	for l := range s.open {
		if s.verify(l.state, roots) != nil {
			revoked = append(revoked, l)
		}
	}
	s.mu.Unlock()
	var addresses []string
	for _, l := range revoked {
		_ = l.Close()
		addresses = append(addresses, l.address)
	}
	return addresses
}

// verify verifies the certificates that a peer has shown.
func (t *Transport) verify(state tls.ConnectionState, roots *x509.CertPool) error {
	options := x509.VerifyOptions{
		Roots:         roots,
		Intermediates: x509.NewCertPool(),
		DNSName:       t.config.ServerName,
		CurrentTime:   t.config.Clock.Now(),
	}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err
}

var errLeadsBack = errors.New("the request came back to where it was sent from")

// LeadsBack reports whether a request has come over a connection that this very
// transport has opened: an address that a peer is known by is this server's own,
// for instance that of a load balancer before all of them. The request has to be
// refused. To the one who sent it the answer is a [*ConnectError] of [ReasonSelf].
func (t *Transport) LeadsBack(r *http.Request) bool {
	if r.TLS == nil {
		return false
	}
	binding := bindingOf(r.TLS)
	if binding == "" {
		return false
	}
	t.links.mu.Lock()
	defer t.links.mu.Unlock()
	l, found := t.links.bound[binding]
	if found {
		l.leadsBack.Store(true)
	}
	return found
}

// bindingOf returns what the two ends of a connection, and no one else, have in
// common, or "" where they have nothing: with old implementations of TLS 1.2.
//
// Source: RFC 9266.
func bindingOf(state *tls.ConnectionState) string {
	binding, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
	if err != nil {
		return ""
	}
	return string(binding)
}
