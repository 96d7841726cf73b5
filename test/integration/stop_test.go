package integration

import (
	"context"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes/fake"

	"peerproxy.internal/pkg/peerproxy"
	"peerproxy.internal/test/cluster"
	"peerproxy.internal/test/peertest"
)

// A forwarded watch ends as a local one does.
func TestAForwardedWatchEndsWhenThisServerShutsDown(t *testing.T) {
	t.Parallel()
	for place, r := range map[string]resource{"local": common[1], "forwarded": ours()} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			a, watch := watched(t, r, spec{id: "a", watchGrace: patience / 2})
			if took := a.end(patience); took > patience/3 {
				t.Errorf("the server took %v to end: it has not ended the watch", took)
			}
			select {
			case event, open := <-watch:
				if open {
					t.Errorf("the watch ends with %q, want a clean end", event)
				}
			case <-time.After(patience):
				t.Error("the watch has not ended")
			}
		})
	}
}

// By default a server does not tell watches that it stops, and waits for them
// until its patience ends: for the forwarded ones no longer than for its own.
func TestAForwardedWatchKeepsAServerNoLongerThanALocalOne(t *testing.T) {
	t.Parallel()
	took := map[string]time.Duration{}
	for place, r := range map[string]resource{"local": common[1], "forwarded": ours()} {
		a, _ := watched(t, r, spec{id: "a"})
		took[place] = a.end(patience)
	}
	t.Logf("the server took %v to end beside a local watch, %v beside a forwarded one", took["local"], took["forwarded"])
	if took["forwarded"] > took["local"]+time.Second {
		t.Errorf("the server took %v to end, beside a local watch %v", took["forwarded"], took["local"])
	}
}

// watched starts a server that lacks a resource of ours, and lets someone watch
// a resource there.
func watched(t *testing.T, r resource, s spec) (*server, <-chan string) {
	t.Helper()
	c := newCell(t)
	c.ready(spec{id: "b", serves: []resource{ours()}})
	a := c.ready(s)
	a.learns(ours())
	watch := a.as("alice").open(http.MethodGet, r.path("default")+"?watch=true", nil)
	if watch.StatusCode != http.StatusOK {
		t.Fatalf("got %s, want 200", watch.Status)
	}
	return a, watchEvents(t, watch)
}

// The proxy's own goroutines, of all kinds, end with the context of Run. This
// test is not run beside others, so that it can count goroutines.
func TestRunEndsWithinASecondOfItsContext(t *testing.T) {
	c := newCell(t)
	c.actor("good", answering("from good"), ours())
	c.join(&peertest.Peer{ID: "silent", OnConn: peertest.Hang})
	for _, id := range []string{"slow", "slower", "slowest"} {
		c.join(&peertest.Peer{ID: id, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
	}
	c.publish("nowhere", "127.0.0.1:1")
	proxyCert, err := c.cluster.FrontProxyCA.Issue("stopping"+c.prefix[1:], cluster.ClientLeaf(peerName))
	if err != nil {
		t.Fatal(err)
	}
	frontProxyCA, err := dynamiccertificates.NewStaticCAContent("front-proxy", c.cluster.FrontProxyCA.PEM())
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	proxy, err := peerproxy.New(peerproxy.Config{
		ServerID:            "a",
		CAFile:              c.cluster.CA.File(),
		ProxyClientCertFile: proxyCert.CertFile,
		ProxyClientKeyFile:  proxyCert.KeyFile,
		RequestHeader:       &authenticatorfactory.RequestHeaderConfig{CAContentProvider: frontProxyCA, AllowedClientNames: headerrequest.StaticStringSlice{peerName}},
		Client:              fake.NewClientset(identityLease("a", "first"), identityLease("good", "first"), identityLease("silent", "first")),
		Records:             *c.backend().ForResource(recordsResource),
		StorageMediaType:    "application/vnd.kubernetes.protobuf",
		Serializer:          serializer.NewCodecFactory(newScheme(nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	proxy.WrapHandler(discovering(documentOf(common...), http.NotFound))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- proxy.Run(ctx) }()
	records := proxy.EndpointLeaseReconciler()
	for _, id := range []string{"good", "silent", "slow", "slower", "slowest", "nowhere"} {
		eventually(t, id+" is known", func() bool {
			_, err := records.GetEndpoint(id)
			return err == nil
		})
	}
	if err := records.UpdateLease("a", "127.0.0.1", httpsPort(6443)); err != nil {
		t.Error(err)
	}
	began := time.Now()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("Run took %v to end", took)
	}
	// Run has returned, so what it started is gone. The other ends of its
	// connections, in this process too, notice that in their own time.
	var left error
	defer func() {
		if t.Failed() && left != nil {
			t.Log(left)
		}
	}()
	eventually(t, "no goroutine is left", func() bool {
		left = goleak.Find(before)
		return left == nil
	})
}

// The hooks' context ends when the server takes no more requests, and Run with
// it, whatever the peers do.
func TestRunEndsWithTheServer(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	a := c.ready(spec{id: "a"})
	silent := c.join(&peertest.Peer{ID: "silent", OnConn: peertest.Hang})
	a.sees("silent", silent.Address())
	eventually(t, "the silent peer is being asked", func() bool { return silent.Connections() > 0 })
	a.end(patience)
	if err := within(t.Context(), time.Second, a.ran); err != nil {
		t.Errorf("Run has not returned: %v", err)
	}
}
