package sim

import (
	"crypto/tls"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"peerproxy.internal/test/peertest"
)

// codecs encode the servers' errors.
var codecs = peertest.Codecs()

// pki is what servers know each other by. All worlds share one.
type pki struct {
	caFile, certFile, keyFile string
	serving                   *tls.Config
	requestHeader             *authenticatorfactory.RequestHeaderConfig
	authenticate              authenticator.Request
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	authorities := peertest.NewPKI(t)
	own := authorities.ProxyClient(t)
	serving := authorities.Cluster.Issue(t, peertest.Cert{CommonName: "kube-apiserver", DNSNames: []string{peertest.ServerName}})
	trusted, err := dynamiccertificates.NewStaticCAContent("front-proxy", authorities.FrontProxy.PEM)
	if err != nil {
		t.Fatal(err)
	}
	header := &authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
		GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		CAContentProvider:   trusted,
		AllowedClientNames:  headerrequest.StaticStringSlice{"front-proxy-client"},
	}
	return &pki{
		caFile:   peertest.WriteFile(t, "ca.crt", authorities.Cluster.PEM),
		certFile: peertest.WriteFile(t, "client.crt", own.Cert),
		keyFile:  peertest.WriteFile(t, "client.key", own.Key),
		serving: &tls.Config{
			Certificates: []tls.Certificate{serving.TLS(t)},
			ClientAuth:   tls.RequestClientCert,
			NextProtos:   []string{"h2", "http/1.1"},
		},
		requestHeader: header,
		authenticate: headerrequest.NewDynamicVerifyOptionsSecure(trusted.VerifyOptions, header.AllowedClientNames,
			header.UsernameHeaders, header.UIDHeaders, header.GroupHeaders, header.ExtraHeaderPrefixes),
	}
}
