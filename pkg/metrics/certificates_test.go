package metrics

import (
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
)

func TestCertificateExpiration(t *testing.T) {
	Register()
	SetCertificateExpiration(CertificateClient, time.Unix(1, 0))
	SetCertificateExpiration(CertificateClient, time.Unix(1800000000, 0))
	SetCertificateExpiration(CertificateCA, time.Unix(1900000000, 0))
	want := `
# HELP apiserver_peer_proxy_certificate_expiration_timestamp_seconds [ALPHA] Time at which a certificate that is used between this kube-apiserver and its peers expires, in seconds since the epoch, by 'type': client is the certificate that authenticates this server, ca the first to expire of the CAs that are valid now.
# TYPE apiserver_peer_proxy_certificate_expiration_timestamp_seconds gauge
apiserver_peer_proxy_certificate_expiration_timestamp_seconds{type="ca"} 1.9e+09
apiserver_peer_proxy_certificate_expiration_timestamp_seconds{type="client"} 1.8e+09
`
	name := "apiserver_peer_proxy_certificate_expiration_timestamp_seconds"
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}
