package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is how long a certificate is good for, unless asked otherwise.
const validity = 365 * 24 * time.Hour

// CA is a certificate authority with an ECDSA P-256 key. It may be used by any
// number of goroutines.
type CA struct {
	dir     string
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	keyPair KeyPair
}

// KeyPair is a certificate and its key: the files and their PEM content.
type KeyPair struct {
	CertFile, KeyFile string
	Cert, Key         []byte
}

// Leaf says what a certificate is for.
type Leaf struct {
	// CommonName is a client's user name, Organizations are its groups.
	CommonName    string
	Organizations []string
	// DNSNames and IPs are the names that a server is reached by.
	DNSNames []string
	IPs      []net.IP
	// Usage is what the certificate may be used for.
	Usage x509.ExtKeyUsage
	// NotBefore and NotAfter bound its life; an hour ago and in a year when
	// zero.
	NotBefore, NotAfter time.Time
}

// ServingLeaf is the certificate of an apiserver that clients, peers and
// webhooks accept.
func ServingLeaf() Leaf {
	return Leaf{
		CommonName: "kube-apiserver",
		DNSNames:   []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"},
		IPs:        []net.IP{net.ParseIP(loopback), net.IPv6loopback, net.ParseIP(serviceIP)},
		Usage:      x509.ExtKeyUsageServerAuth,
	}
}

// ClientLeaf is the certificate of a client with the given user name and
// groups.
func ClientLeaf(user string, groups ...string) Leaf {
	return Leaf{CommonName: user, Organizations: groups, Usage: x509.ExtKeyUsageClientAuth}
}

// NewCA makes an authority with the common name and writes it to dir, as
// <name>.crt and <name>.key.
func NewCA(dir, name string) (*CA, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(Leaf{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of CA %q: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing the certificate of CA %q: %w", name, err)
	}
	pair, err := writeKeyPair(dir, name, der, key)
	if err != nil {
		return nil, err
	}
	return &CA{dir: dir, cert: cert, key: key, keyPair: *pair}, nil
}

// File is the path of the authority's certificate.
func (ca *CA) File() string { return ca.keyPair.CertFile }

// PEM is the authority's certificate.
func (ca *CA) PEM() []byte { return ca.keyPair.Cert }

// Issue makes a key and signs a certificate for it, and writes them beside the
// authority's own as <name>.crt and <name>.key.
func (ca *CA) Issue(name string, leaf Leaf) (*KeyPair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(leaf)
	if err != nil {
		return nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{leaf.Usage}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, fmt.Errorf("signing certificate %q: %w", name, err)
	}
	return writeKeyPair(ca.dir, name, der, key)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

func newTemplate(leaf Leaf) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organizations},
		NotBefore:    orTime(leaf.NotBefore, now.Add(-time.Hour)),
		NotAfter:     orTime(leaf.NotAfter, now.Add(validity)),
		DNSNames:     leaf.DNSNames,
		IPAddresses:  leaf.IPs,
	}, nil
}

func orTime(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}

func writeKeyPair(dir, name string, der []byte, key *ecdsa.PrivateKey) (*KeyPair, error) {
	pair := &KeyPair{
		CertFile: filepath.Join(dir, name+".crt"),
		Cert:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
	if err := os.WriteFile(pair.CertFile, pair.Cert, 0o644); err != nil {
		return nil, err
	}
	var err error
	pair.KeyFile, pair.Key, err = writeKey(dir, name, key)
	return pair, err
}

func writeKey(dir, name string, key *ecdsa.PrivateKey) (file string, content []byte, err error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", nil, fmt.Errorf("encoding key %q: %w", name, err)
	}
	file = filepath.Join(dir, name+".key")
	content = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return file, content, os.WriteFile(file, content, 0o600)
}
