package link

import (
	"context"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/reconcilers"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	api "k8s.io/kubernetes/pkg/apis/core"

	"peerproxy.internal/test/cluster"
	"peerproxy.internal/test/peertest"
)

// A server with all its flags, which learns of a peer from etcd, dials it by its
// own egress proxy and by no other way.
func TestAServerDialsThroughItsEgressProxy(t *testing.T) {
	etcd, err := cluster.Start(t.Context(), cluster.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Stop() })
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{ID: "b"}).Start(t, pki)
	proxy := &connectProxy{}
	listener, named := listen(t, "uds")
	proxy.serve(t, listener)
	client := pki.ProxyClient(t)
	key := peertest.WriteFile(t, "proxy.key", client.Key)
	opts, own := parse(t,
		"--etcd-servers="+etcd.EtcdURL(),
		"--egress-selector-config-file="+egressFile(t, "controlplane", named),
		"--peer-server-id=a",
		"--peer-ca-file="+peertest.WriteFile(t, "ca.crt", pki.Cluster.PEM),
		"--proxy-client-cert-file="+peertest.WriteFile(t, "proxy.crt", client.Cert),
		"--proxy-client-key-file="+key,
		"--requestheader-client-ca-file="+peertest.WriteFile(t, "front.crt", pki.FrontProxy.PEM),
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+key,
		"--service-account-signing-key-file="+key)
	flags := ServerFlags(opts)
	if errs := flags.Validate(); !flags.On() || len(errs) > 0 {
		t.Fatal("the peer proxy is off, or its flags are wrong: ", errs)
	}
	// As NewConfig does, which a process can call once alone.
	opts.PeerCAFile = ""
	config, err := app.NewConfig(opts)
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(config, flags, own)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, config, peer)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	peertest.Eventually(t, "the server has dialled the peer", func() bool { return peer.Connections() > 0 })
	if got, want := proxy.targets(), "CONNECT "+peer.Address(); !slices.Contains(got, want) {
		t.Errorf("the egress proxy was asked for %q, want %q", got, want)
	}
}

// publish writes the record of a peer as a stock server does.
func publish(t *testing.T, config *app.Config, peer *peertest.Peer) {
	t.Helper()
	records, err := config.KubeAPIs.ControlPlane.StorageFactory.(*serverstorage.DefaultStorageFactory).NewConfig(api.Resource("apiServerPeerIPInfo"), &api.Endpoints{})
	if err != nil {
		t.Fatal(err)
	}
	writer, err := reconcilers.NewPeerEndpointLeaseReconciler(records, "/peerserverleases/", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Destroy()
	ip, port, err := net.SplitHostPort(peer.Address())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.UpdateLease(peer.ID, ip, []corev1.EndpointPort{{Name: "https", Port: int32(number)}}); err != nil {
		t.Fatal(err)
	}
}
