package peerproxy

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"peerproxy.internal/test/peertest"
)

// A peer is who has a certificate of the request-header CA and, where names are
// given, one of them.
func TestWhoIsAPeer(t *testing.T) {
	ca, another := peertest.NewCA(t, "front-proxy"), peertest.NewCA(t, "front-proxy")
	content, err := dynamiccertificates.NewStaticCAContent("request-header", ca.PEM)
	if err != nil {
		t.Fatal(err)
	}
	const name = "front-proxy-client"
	hourAgo := time.Now().Add(-time.Hour)
	issued := func(ca *peertest.CA, c peertest.Cert) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{ca.Issue(t, c).TLS(t).Leaf}}
	}
	for _, tc := range []struct {
		name    string
		allowed []string
		state   *tls.ConnectionState
		want    bool
	}{
		{"an allowed name", []string{"x", name}, issued(ca, peertest.Cert{CommonName: name}), true},
		{"any name where none is given", nil, issued(ca, peertest.Cert{CommonName: "other"}), true},
		{"another name", []string{name}, issued(ca, peertest.Cert{CommonName: "other"}), false},
		{"no name", []string{name}, issued(ca, peertest.Cert{}), false},
		{"an allowed name among the DNS names alone", []string{name}, issued(ca, peertest.Cert{CommonName: "other", DNSNames: []string{name}}), false},
		{"another CA of the same name", []string{name}, issued(another, peertest.Cert{CommonName: name}), false},
		{"a certificate that has expired", []string{name}, issued(ca, peertest.Cert{CommonName: name, NotBefore: hourAgo.Add(-time.Hour), NotAfter: hourAgo}), false},
		{"no certificate", nil, &tls.ConnectionState{}, false},
		{"no TLS", nil, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			trusted := trustPeers(&authenticatorfactory.RequestHeaderConfig{CAContentProvider: content, AllowedClientNames: headerrequest.StaticStringSlice(tc.allowed)})
			if got := trusted(&http.Request{TLS: tc.state}); got != tc.want {
				t.Errorf("a peer: %t, want %t", got, tc.want)
			}
		})
	}
}
