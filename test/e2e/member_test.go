package e2e

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"peerproxy.internal/test/cluster"
)

// recordOf waits until the endpoint record of a server that is ready is in etcd.
func recordOf(t *testing.T, c *cluster.Cluster, id string) {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{c.EtcdURL()}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	within(t, time.Minute, func() error {
		got, err := etcd.Get(t.Context(), "/registry/peerserverleases/"+id)
		if err != nil {
			return err
		}
		if got.Count == 0 {
			return fmt.Errorf("there is no endpoint record of %s", id)
		}
		record, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), got.Kvs[0].Value)
		if err != nil {
			return err
		}
		if len(record.(*corev1.Endpoints).Subsets) == 0 {
			return fmt.Errorf("the endpoint record of %s is an early one", id)
		}
		return nil
	})
}

func TestAPeerThatStartsIsRoutableWithinASecondOfItsRecord(t *testing.T) {
	c := start(t, "old="+ours136)
	old := as(t, c.Server("old"))
	old.want(404, "GET", bundlesPath, "")
	newer, err := c.NewServer(cluster.ServerConfig{Name: "new", Binary: bin(t, ours137)})
	if err != nil {
		t.Fatal(err)
	}
	if err := newer.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	recordOf(t, c, newer.ID())
	t.Logf("routable %v after the record", old.until(time.Second, 200, "GET", bundlesPath, ""))

	// It comes back with other APIs.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := newer.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	gone := old.do("GET", bundlesPath, "")
	if gone.code != 503 || gone.header.Get("Retry-After") == "" {
		t.Errorf("while the only server that has it is away: %d %s, want 503 with Retry-After", gone.code, gone.body)
	}
	if err := newer.Restart(t.Context(), func(s *cluster.ServerConfig) {
		s.RuntimeConfig = "storagemigration.k8s.io/v1beta1=true,certificates.k8s.io/v1=false"
	}); err != nil {
		t.Fatal(err)
	}
	recordOf(t, c, newer.ID())
	t.Logf("known anew %v after the record", old.until(time.Second, 404, "GET", bundlesPath, ""))
}

// A server that starts beside a peer that can't be asked does not wait for it.
func TestAServerStartsBesideAPeerThatCantBeAsked(t *testing.T) {
	c := start(t, "frozen="+ours137)
	if err := c.Server("frozen").Freeze(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	old, err := c.NewServer(cluster.ServerConfig{Name: "old", Binary: bin(t, ours136)})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(began))
	as(t, old).want(200, "GET", "/api/v1/namespaces", "")
}

// Each half of the advertised address falls back on its own, and IPv6 works.
func TestAPeerAtAnIPv6AddressWithoutAPortOfItsOwn(t *testing.T) {
	c := start(t, "old="+ours136)
	newer, err := c.NewServer(cluster.ServerConfig{
		Name:    "new",
		Binary:  bin(t, ours137),
		Flags:   map[string]string{"bind-address": "::", "peer-advertise-ip": "::1"},
		Without: []string{"peer-advertise-port"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := newer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := as(t, c.Server("old"))
	old.until(5*time.Second, 200, "GET", bundlesPath, "")
	_, port, err := net.SplitHostPort(newer.Address())
	if err != nil {
		t.Fatal(err)
	}
	lease := old.want(200, "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"+newer.ID(), "").object(t)
	if got, want := lease.GetAnnotations()["kubernetes.io/peer-advertise-address"], net.JoinHostPort("::1", port); got != want {
		t.Errorf("it advertises %s, want %s", got, want)
	}
}

// Without --peer-ca-file the server is a stock one.
func TestWithTheFeatureOffTheServerBehavesAsStock(t *testing.T) {
	c := start(t, "new="+ours137, "old="+ours136+",peers=off")
	old := as(t, c.Server("old"))
	old.want(404, "GET", bundlesPath, "")
	document := old.want(200, "GET", "/apis", "", "Accept", aggregated)
	if names(t, document.body)["certificates.k8s.io/v1/clustertrustbundles"] {
		t.Error("the old server merges discovery")
	}
	// It still answers what peers forward, and shows them where.
	recordOf(t, c, c.Server("old").ID())
}

// What a stock old server forwards to ours is served.
func TestAStockServerForwardsToOurs(t *testing.T) {
	c := start(t, "new="+ours137, "stock="+stock136)
	stock := as(t, c.Server("stock"))
	stock.until(30*time.Second, 200, "GET", bundlesPath, "")
	stock.want(201, "POST", bundlesPath, mustJSON(t, bundle(t, c, "by-stock")))
	as(t, c.Server("new")).want(200, "GET", bundlesPath+"/by-stock", "")
}

func mustJSON(t *testing.T, object runtime.Object) string {
	t.Helper()
	body, err := runtime.Encode(unstructured.UnstructuredJSONScheme, object)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
