package transport_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"peerproxy.internal/test/peertest"
)

// A new connection waits for no more than the peer's first word, and for that not
// for long: a peer without session tickets that speaks HTTP/1.1 has none.
func TestNewConnectionWaitsForThePeersFirstWord(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	serving := pki.Cluster.Issue(t, peertest.Cert{DNSNames: []string{peertest.ServerName}}).TLS(t)
	for _, test := range []struct {
		name  string
		tls   *tls.Config
		waits time.Duration
	}{
		{"HTTP/2", &tls.Config{NextProtos: []string{"h2"}}, 0},
		{"HTTP/2 without session tickets", &tls.Config{NextProtos: []string{"h2"}, SessionTicketsDisabled: true}, 0},
		{"HTTP/1.1", &tls.Config{NextProtos: []string{"http/1.1"}}, 0},
		{"HTTP/1.1 without session tickets", &tls.Config{NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true}, 500 * time.Millisecond},
		{"TLS 1.2", &tls.Config{NextProtos: []string{"h2"}, MaxVersion: tls.VersionTLS12}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipeListener()
				test.tls.Certificates = []tls.Certificate{serving}
				test.tls.ClientAuth = tls.RequestClientCert
				server := &http.Server{TLSConfig: test.tls, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })}
				done := make(chan error)
				go func() { done <- server.Serve(tls.NewListener(l, test.tls)) }()
				defer func() { _ = server.Close(); <-done }()
				config := config
				config.Dial = l.dial
				tr := running(t, config)
				start := time.Now()
				if got := get(t, tr, "peer:6443"); got != "here" {
					t.Errorf("got %q", got)
				}
				if took := time.Since(start); took != test.waits {
					t.Errorf("took %v, want %v", took, test.waits)
				}
			})
		})
	}
}
