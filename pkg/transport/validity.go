package transport

import (
	"crypto/x509"
	"time"

	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/metrics"
)

// checkValidity logs, once each, the certificates in use that are not valid now,
// and tells the metrics when those that are valid will no longer be.
func (t *Transport) checkValidity(logger klog.Logger) {
	now := t.config.Clock.Now()
	metrics.SetCertificateExpiration(metrics.CertificateClient, t.creds.own.Leaf.NotAfter)
	metrics.SetCertificateExpiration(metrics.CertificateCA, firstToExpire(t.creds.authorities, now))
	invalid := map[*x509.Certificate]string{}
	check := func(f file, cert *x509.Certificate) {
		problem := problemOf(cert, now)
		if problem == "" {
			return
		}
		invalid[cert] = problem
		if t.invalid[cert] != problem {
			logger.Error(nil, "A certificate that is used for peers "+problem+": replace it, or correct this server's clock",
				"file", f.kind, "path", f.path, "subject", cert.Subject.String(), "notBefore", cert.NotBefore, "notAfter", cert.NotAfter)
		}
	}
	check(t.files.cert, t.creds.own.Leaf)
	for _, authority := range t.creds.authorities {
		check(t.files.ca, authority)
	}
	t.invalid = invalid
}

func problemOf(cert *x509.Certificate, now time.Time) string {
	switch {
	case now.After(cert.NotAfter):
		return "has expired"
	case now.Before(cert.NotBefore):
		return "is not valid yet"
	}
	return ""
}

// firstToExpire returns when the first of the CAs that are valid expires. If none
// is, it is the last that did or will.
func firstToExpire(authorities []*x509.Certificate, now time.Time) time.Time {
	var first, last time.Time
	for _, cert := range authorities {
		if cert.NotAfter.After(last) {
			last = cert.NotAfter
		}
		if problemOf(cert, now) == "" && (first.IsZero() || cert.NotAfter.Before(first)) {
			first = cert.NotAfter
		}
	}
	if first.IsZero() {
		return last
	}
	return first
}
