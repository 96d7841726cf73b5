package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"
)

// verify checks a certificate as TLS does.
func verify(t *testing.T, ca *CA, pair *KeyPair, name string, usage x509.ExtKeyUsage) error {
	t.Helper()
	loaded, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(ca.File())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatalf("no certificate in %s", ca.File())
	}
	_, err = loaded.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func newTestCA(t *testing.T, dir, name string) *CA {
	t.Helper()
	ca, err := NewCA(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestCertificates(t *testing.T) {
	const server, client = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	dir := t.TempDir()
	ca, other := newTestCA(t, dir, "ca"), newTestCA(t, dir, "other")
	nameless, expired := ServingLeaf(), ServingLeaf()
	nameless.DNSNames = []string{"localhost"}
	expired.NotAfter = time.Now().Add(-time.Minute)
	for _, tc := range []struct {
		name  string
		leaf  Leaf
		ca    *CA
		host  string
		usage x509.ExtKeyUsage
		ok    bool
	}{
		{"serves peers", ServingLeaf(), ca, "kubernetes.default.svc", server, true},
		{"serves loopback", ServingLeaf(), ca, "127.0.0.1", server, true},
		{"serves IPv6 loopback", ServingLeaf(), ca, "[::1]", server, true},
		{"serves the service's address", ServingLeaf(), ca, serviceIP, server, true},
		{"is a client", ClientLeaf("alice", "dev"), ca, "", client, true},
		{"serves no other name", ServingLeaf(), ca, "example.com", server, false},
		{"lacks a name", nameless, ca, "kubernetes.default.svc", server, false},
		{"is of another CA", ServingLeaf(), other, "localhost", server, false},
		{"has expired", expired, ca, "localhost", server, false},
		{"is no server's", ClientLeaf("alice"), ca, "", server, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pair, err := ca.Issue("leaf", tc.leaf)
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(t, tc.ca, pair, tc.host, tc.usage); (err == nil) != tc.ok {
				t.Errorf("verified: %v, want success: %v", err, tc.ok)
			}
		})
	}
}

func TestKeysArePrivate(t *testing.T) {
	ca := newTestCA(t, t.TempDir(), "ca")
	info, err := os.Stat(ca.keyPair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}
