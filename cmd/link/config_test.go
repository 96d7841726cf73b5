package link

import (
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	"peerproxy.internal/pkg/peerproxy"
)

// configFor returns what the proxy is made of for a command line.
func configFor(t *testing.T, args ...string) peerproxy.Config {
	t.Helper()
	opts, own := parse(t, args...)
	factory, err := kubeapiserver.NewStorageFactoryConfig().Complete(opts.Etcd).New()
	if err != nil {
		t.Fatal(err)
	}
	config := &app.Config{KubeAPIs: &controlplane.Config{}}
	config.KubeAPIs.ControlPlane.Generic = &server.Config{
		APIServerID:          "apiserver-a",
		LoopbackClientConfig: &rest.Config{},
	}
	config.KubeAPIs.ControlPlane.StorageFactory = factory
	c, err := proxyConfig(config, ServerFlags(opts), own)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFlagsGetToTheProxy(t *testing.T) {
	c := configFor(t,
		"--peer-starting-grace-period=1m", "--peer-unknown-grace-period=2s", "--peer-departed-grace-period=3m",
		"--peer-ca-file=ca", "--proxy-client-cert-file=cert", "--proxy-client-key-file=key", "--etcd-prefix=/elsewhere")
	if want := (peerproxy.Periods{Starting: time.Minute, Unknown: 2 * time.Second, Departed: 3 * time.Minute}); c.Periods != want {
		t.Errorf("got the periods %+v, want %+v", c.Periods, want)
	}
	if c.CAFile != "ca" || c.ProxyClientCertFile != "cert" || c.ProxyClientKeyFile != "key" {
		t.Errorf("got the files %q, %q, %q", c.CAFile, c.ProxyClientCertFile, c.ProxyClientKeyFile)
	}
	if c.Records.Prefix != "/elsewhere" || c.ServerID != "apiserver-a" {
		t.Errorf("got the prefix %q, the server ID %q", c.Records.Prefix, c.ServerID)
	}
}
