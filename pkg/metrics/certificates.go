package metrics

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Certificate says which certificate is meant. Its text is a metric's label.
type Certificate string

const (
	// CertificateClient authenticates this server to its peers.
	CertificateClient Certificate = "client"
	// CertificateCA is the CA of peers' serving certificates that expires first.
	CertificateCA Certificate = "ca"
)

var certificateExpiration = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace: "apiserver",
	Subsystem: "peer_proxy",
	Name:      "certificate_expiration_timestamp_seconds",
	Help: "Time at which a certificate that is used between this kube-apiserver and its peers expires, in seconds since the epoch, by 'type': " +
		"client is the certificate that authenticates this server, ca the first to expire of the CAs that are valid now.",
	StabilityLevel: metrics.ALPHA,
}, []string{"type"})

// SetCertificateExpiration tells when a certificate expires.
func SetCertificateExpiration(which Certificate, at time.Time) {
	certificateExpiration.WithLabelValues(string(which)).Set(float64(at.Unix()))
}
