package peertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// ServerName is the name that peers' certificates hold.
const ServerName = "kubernetes.default.svc"

// CA is a certificate authority.
type CA struct {
	// PEM is its certificate.
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Cert says what is in a certificate.
type Cert struct {
	// CommonName is the subject's name.
	CommonName string
	// DNSNames are the names it is valid for. A server's certificate needs one.
	DNSNames []string
	// IPs are the addresses it is valid for.
	IPs []net.IP
	// NotBefore and NotAfter bound its life. The zero times stand for 1999, so
	// that it is valid in the time of testing/synctest, and an hour from now.
	NotBefore, NotAfter time.Time
}

// Pair is a certificate and its key, as PEM.
type Pair struct{ Cert, Key []byte }

var serial atomic.Int64

// NewCA makes a certificate authority.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	template := newTemplate(Cert{CommonName: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{PEM: encode("CERTIFICATE", der), cert: cert, key: key}
}

// Issue makes a certificate that serves for a server and for a client.
func (ca *CA) Issue(t testing.TB, c Cert) Pair {
	t.Helper()
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, newTemplate(c), ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Cert: encode("CERTIFICATE", der), Key: encode("EC PRIVATE KEY", keyDER)}
}

// Pool returns a pool that holds the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// TLS returns the pair as crypto/tls wants it.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// WriteFile writes content to a file of that name in a directory of the test,
// and returns its path.
func WriteFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newTemplate(c Cert) *x509.Certificate {
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)),
		Subject:      pkix.Name{CommonName: c.CommonName},
		DNSNames:     c.DNSNames,
		IPAddresses:  c.IPs,
		NotBefore:    c.NotBefore,
		NotAfter:     c.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
