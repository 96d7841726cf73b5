package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"peerproxy.internal/test/cluster"
	"peerproxy.internal/test/upgrade"
)

const controllers137 = "kube-controller-manager-v1.37"

// requestsIn is the path of namespaced objects that 1.37 alone serves.
func requestsIn(namespace string) string {
	return "/apis/certificates.k8s.io/v1/namespaces/" + namespace + "/podcertificaterequests"
}

const requestsName = "certificates.k8s.io/v1/podcertificaterequests"

// nested is a cluster in which a namespace controller works with one server.
type nested struct {
	*client
	cluster     *cluster.Cluster
	controllers *cluster.Controllers
	etcd        *clientv3.Client
}

// control starts the real namespace controller for a server.
func control(t *testing.T, c *cluster.Cluster, s *cluster.Server) *nested {
	t.Helper()
	controllers, err := c.StartControllers(cluster.ControllersConfig{
		Name: "controllers", Binary: bin(t, controllers137), URL: s.URL(), Controllers: []string{"namespace-controller"},
	})
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{c.EtcdURL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	return &nested{client: as(t, s), cluster: c, controllers: controllers, etcd: etcd}
}

// create makes a namespace, with an object in it that 1.36 and 1.37 have.
func (n *nested) create(name string) {
	n.t.Helper()
	n.want(201, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
	n.want(201, "POST", "/api/v1/namespaces/"+name+"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"object"}}`)
}

// createWithRequest adds one that only 1.37 has.
func (n *nested) createWithRequest(name string) {
	n.t.Helper()
	n.create(name)
	request, err := upgrade.CertificateRequest("object")
	if err != nil {
		n.t.Fatal(err)
	}
	n.want(201, "POST", requestsIn(name), mustJSON(n.t, request))
}

func (n *nested) delete(name string) {
	n.t.Helper()
	n.want(200, "DELETE", "/api/v1/namespaces/"+name, "")
}

// wantGone waits until the namespace is gone, and looks for what it left behind.
func (n *nested) wantGone(limit time.Duration, name string) {
	n.t.Helper()
	took := within(n.t, limit, func() error {
		a, err := n.try(n.t.Context(), "GET", "/api/v1/namespaces/"+name, "")
		if err != nil || a.code == 404 {
			return err
		}
		return errors.Join(fmt.Errorf("the namespace is still there: %s", a.body), n.controllers.Err())
	})
	n.t.Logf("namespace %s was gone after %v", name, took)
	if left := n.left(name); len(left) > 0 {
		n.t.Errorf("it left behind %q", left)
	}
}

func (n *nested) left(name string) []string {
	n.t.Helper()
	keys, err := upgrade.LeftIn(n.t.Context(), n.etcd, name)
	if err != nil {
		n.t.Fatal(err)
	}
	return keys
}

// wantWaiting waits until the controller says that it could not delete all there
// is: it has tried, and knows that it must try again.
func (n *nested) wantWaiting(name string) {
	n.t.Helper()
	within(n.t, 30*time.Second, func() error {
		namespace := n.do("GET", "/api/v1/namespaces/"+name, "").object(n.t)
		status, _ := namespace.Object["status"].(map[string]any)
		conditions, _ := status["conditions"].([]any)
		for _, condition := range conditions {
			c := condition.(map[string]any)
			if c["status"] == "True" && (c["type"] == "NamespaceDeletionContentFailure" || c["type"] == "NamespaceDeletionDiscoveryFailure") {
				return nil
			}
		}
		return errors.Join(fmt.Errorf("no failure is told in %v", status), n.controllers.Err())
	})
}

// recordGone waits until the endpoint record of a server is gone from etcd.
func (n *nested) recordGone(id string) {
	n.t.Helper()
	within(n.t, 30*time.Second, func() error {
		found, err := n.etcd.Get(n.t.Context(), "/registry/peerserverleases/"+id, clientv3.WithCountOnly())
		if err == nil && found.Count > 0 {
			err = errors.New("its record is still there")
		}
		return err
	})
}

// lists reports whether the server's discovery lists a resource.
func (n *nested) lists(resource string) bool {
	n.t.Helper()
	return names(n.t, n.want(200, "GET", "/apis", "", "Accept", aggregated).body)[resource]
}

// A namespace is deleted through a server that lacks some of what is in it.
func TestANamespaceWaitsForThePeerThatServesWhatIsInIt(t *testing.T) {
	c := start(t, "new="+ours137, "old="+ours136)
	n, newer := control(t, c, c.Server("old")), c.Server("new")
	n.until(5*time.Second, 200, "GET", requestsIn("default"), "")
	n.createWithRequest("peer-there")
	n.delete("peer-there")
	n.wantGone(time.Minute, "peer-there")

	n.createWithRequest("peer-away")
	if err := newer.Kill(); err != nil {
		t.Fatal(err)
	}
	n.delete("peer-away")
	away := func(when string) {
		t.Helper()
		if a := n.do("GET", requestsIn("peer-away"), ""); a.code != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s, want 503 with Retry-After", when, a.code, a.body)
		}
		if !n.lists(requestsName) {
			t.Errorf("%s: discovery lists no %s", when, requestsName)
		}
	}
	n.wantWaiting("peer-away")
	away("while it has a record")
	n.recordGone(newer.ID())
	away("without a record")
	n.want(200, "GET", "/api/v1/namespaces/peer-away", "")
	if left := n.left("peer-away"); len(left) != 1 {
		t.Errorf("in the namespace are %q, want one request", left)
	}

	if err := newer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.wantGone(90*time.Second, "peer-away") // the controller tries again each minute at least
}

// What a peer that died listed of a custom resource does not bring it back. Only
// the first seconds are seen here: that it stays so for as long as the document is
// kept, tests of the snapshot show.
func TestACustomResourceThatIsDeletedAfterAPeersDeathIsGone(t *testing.T) {
	c := start(t, "one="+ours137, "two="+ours137)
	n, other := control(t, c, c.Server("one")), c.Server("two")
	definition := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	n.want(201, "POST", definition, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	n.create("widgets")
	widgets := "/apis/example.com/v1/namespaces/widgets/widgets"
	as(t, other).until(10*time.Second, 200, "GET", widgets, "")
	n.until(10*time.Second, 201, "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"object"}}`)
	if err := other.Kill(); err != nil {
		t.Fatal(err)
	}
	n.want(200, "DELETE", definition+"/widgets.example.com", "")
	n.until(20*time.Second, 404, "GET", widgets, "")
	within(t, 5*time.Second, func() error { // the server's own discovery follows its handlers
		if n.lists("example.com/v1/widgets") {
			return errors.New("discovery lists the custom resource")
		}
		return nil
	})
	gone := func(when string) {
		t.Helper()
		n.want(404, "GET", widgets, "")
		if n.lists("example.com/v1/widgets") {
			t.Errorf("%s: discovery lists the custom resource", when)
		}
	}
	gone("while the peer has a record")
	n.recordGone(other.ID())
	gone("without a record")
	n.delete("widgets")
	n.wantGone(time.Minute, "widgets")
}

// What only a server that never gets ready has is no reason to wait for it.
func TestNamespacesAreDeletedBesideAServerThatCrashesBeforeItIsReady(t *testing.T) {
	c := start(t, "old="+ours136)
	n := control(t, c, c.Server("old"))
	newer, err := c.NewServer(cluster.ServerConfig{
		Name: "new", Binary: bin(t, ours137),
		Flags: map[string]string{"etcd-readycheck-timeout": "1ns"}, // it never is ready
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := newer.Launch(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.until(30*time.Second, 200, "GET", requestsIn("default"), "") // it is seen before it is ready
		if err := newer.Ready(t.Context()); err == nil {
			t.Fatal("it is ready: the test shows nothing")
		}
		if err := newer.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	n.create("some")
	n.delete("some")
	n.wantGone(time.Minute, "some")
	n.until(30*time.Second, 404, "GET", requestsIn("default"), "")
	if n.lists(requestsName) {
		t.Errorf("discovery lists %s", requestsName)
	}
}
