package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"peerproxy.internal/test/cluster"
)

// bundle is a ClusterTrustBundle that trusts the cluster's CA.
func bundle(t *testing.T, c *cluster.Cluster, name string) *unstructured.Unstructured {
	t.Helper()
	pem, err := os.ReadFile(c.CA.File())
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/v1",
		"kind":       "ClusterTrustBundle",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"trustBundle": string(pem)},
	}}
}

// pairs are the old and the new servers that have to work together.
var pairs = []struct{ name, newer, older string }{
	{"ours with ours", ours137, ours136},
	{"our old server with a stock new one", stock137, ours136},
}

func TestWhatOnlyTheNewServerHasIsUsedThroughTheOldOne(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair.name, func(t *testing.T) {
			c := start(t, "new="+pair.newer, "old="+pair.older)
			old := as(t, c.Server("old"))
			old.until(5*time.Second, 200, "GET", bundlesPath, "")
			t.Run("a resource is created, read, changed, watched and deleted", func(t *testing.T) { testLife(t, c) })
			t.Run("a subresource is updated", func(t *testing.T) { testSubresource(t, c) })
			t.Run("kubectl works", func(t *testing.T) { testKubectl(t, c) })
			t.Run("errors stay what they are", func(t *testing.T) { testErrors(t, c) })
			if pair.newer == stock137 { // of ours TestEveryClientSeesTheWholeCluster wants more
				t.Run("all documents have it", func(t *testing.T) { testDocuments(t, c) })
			}
		})
	}
}

func testLife(t *testing.T, c *cluster.Cluster) {
	old := as(t, c.Server("old"))
	all := old.dynamic.Resource(bundles)
	list, err := all.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := all.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	next := func(want watch.EventType) {
		t.Helper()
		select {
		case event := <-watcher.ResultChan():
			if event.Type != want {
				t.Errorf("watched %v %v, want %v", event.Type, event.Object, want)
			}
		case <-time.After(2 * time.Second):
			t.Errorf("no %v event within 2 s", want)
		}
	}

	if _, err := all.Create(t.Context(), bundle(t, c, "one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	next(watch.Added)
	if _, err := all.Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	patch := []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)
	patched, err := all.Patch(t.Context(), "one", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil || patched.GetLabels()["patched"] != "yes" {
		t.Error(err, patched)
	}
	next(watch.Modified)
	if _, err := as(t, c.Server("new")).dynamic.Resource(bundles).Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Errorf("the new server does not have it: %v", err)
	}
	// A kube-apiserver answers HEAD with 405; what matters is that a peer's
	// answer comes through as it is.
	direct := as(t, c.Server("new")).do(http.MethodHead, bundlesPath+"/one", "")
	if head := old.do(http.MethodHead, bundlesPath+"/one", ""); head.code != direct.code || len(head.body) != 0 {
		t.Errorf("HEAD gives %d %q, at the new server %d", head.code, head.body, direct.code)
	}
	if err := all.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	next(watch.Deleted)
}

func testSubresource(t *testing.T, c *cluster.Cluster) {
	old := as(t, c.Server("old"))
	const csinodes = "/apis/storage.k8s.io/v1/csinodes"
	old.want(201, "POST", csinodes, `{"apiVersion":"storage.k8s.io/v1","kind":"CSINode","metadata":{"name":"n1"},"spec":{"drivers":[]}}`)
	node := old.want(200, "GET", csinodes+"/n1/status", "").object(t)
	body, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	old.want(200, "PUT", csinodes+"/n1/status", string(body))
	old.want(200, "DELETE", csinodes+"/n1", "")
}

func testKubectl(t *testing.T, c *cluster.Cluster) {
	old := c.Server("old")
	object := bundle(t, c, "by-kubectl")
	object.SetLabels(map[string]string{"app": "demo"})
	manifest, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, old, string(manifest), "apply", "--validate=false", "-f", "-")
	if out := mustKubectl(t, old, "", "get", "clustertrustbundles", "-o", "name"); !strings.Contains(out, "by-kubectl") {
		t.Errorf("kubectl get: %s", out)
	}
	mustKubectl(t, old, "", "wait", "--for=jsonpath={.metadata.name}=by-kubectl", "clustertrustbundle/by-kubectl", "--timeout=5s")
	if out := mustKubectl(t, old, "", "api-resources", "--api-group=certificates.k8s.io"); !strings.Contains(out, "clustertrustbundles") {
		t.Errorf("kubectl api-resources: %s", out)
	}
	mustKubectl(t, old, "", "delete", "clustertrustbundle", "by-kubectl")
}

func testDocuments(t *testing.T, c *cluster.Cluster) {
	old := c.Server("old")
	t.Run("legacy discovery", func(t *testing.T) { testLegacyWalk(t, old) })
	t.Run("OpenAPI v3, for kubectl explain", func(t *testing.T) {
		mustKubectl(t, old, "", "explain", "clustertrustbundles.spec.trustBundle")
	})
	t.Run("OpenAPI, for kubectl's validation", func(t *testing.T) { testValidation(t, c, old) })
	t.Run("OpenAPI v2", func(t *testing.T) {
		within(t, 30*time.Second, func() error {
			a, err := as(t, old).try(t.Context(), "GET", "/openapi/v2", "", "Accept", "application/json")
			if err != nil || a.code != 200 {
				return fmt.Errorf("%d, %w", a.code, err)
			}
			return errors.Join(mentions(a.body, `"`+bundlesPath+`/{name}"`), mentions(a.body, `"io.k8s.api.certificates.v1.ClusterTrustBundle"`))
		})
	})
}

func testErrors(t *testing.T, c *cluster.Cluster) {
	old := as(t, c.Server("old"))
	status := old.want(404, "GET", bundlesPath+"/absent", "").object(t)
	if name, _, _ := unstructured.NestedString(status.Object, "details", "name"); name != "absent" {
		t.Errorf("an object's own 404 became %v", status.Object)
	}
	old.want(404, "GET", "/apis/certificates.k8s.io/v1/absentresources", "")
	old.want(404, "GET", "/apis/absent.k8s.io/v1/things", "")
	forbidden := as(t, c.Server("old"), "alice").want(403, "GET", bundlesPath, "").object(t)
	if message, _, _ := unstructured.NestedString(forbidden.Object, "message"); !strings.Contains(message, `User "alice"`) {
		t.Errorf("alice was refused as %q", message)
	}
}
