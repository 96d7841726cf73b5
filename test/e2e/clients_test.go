package e2e

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"peerproxy.internal/test/cluster"
)

// Every kind of client sees the whole cluster at every server, whatever it
// reads: here the old server lacks resources of 1.37, and the new one lacks
// batch/v1 and apps/v1.
func TestEveryClientSeesTheWholeCluster(t *testing.T) {
	c := start(t, "new="+ours137+",runtime-config=batch/v1=false,runtime-config=apps/v1=false", "old="+ours136)
	newer, older := c.Server("new"), c.Server("old")
	as(t, older).until(5*time.Second, 200, "GET", bundlesPath, "")
	as(t, newer).until(5*time.Second, 200, "GET", "/apis/apps/v1/deployments", "")
	sameEverywhere(t, 15*time.Second, "/apis", newer, older)

	for _, server := range []*cluster.Server{newer, older} {
		t.Run("at the "+server.Name()+" server", func(t *testing.T) {
			t.Run("a legacy walk", func(t *testing.T) { testLegacyWalk(t, server) })
			t.Run("client-go's mappings", func(t *testing.T) { testMappings(t, server) })
			t.Run("kubectl explain", func(t *testing.T) {
				for _, resource := range []string{"clustertrustbundles.spec.trustBundle", "jobs.spec.completions", "deployments.spec.replicas"} {
					mustKubectl(t, server, "", "explain", resource)
				}
			})
			t.Run("kubectl apply with validation", func(t *testing.T) { testValidation(t, c, server) })
			t.Run("kubectl create and scale", func(t *testing.T) {
				name := "web-" + server.Name()
				mustKubectl(t, server, "", "create", "deployment", name, "--image=example.com/web")
				mustKubectl(t, server, "", "scale", "deployment", name, "--replicas=3")
				mustKubectl(t, server, "", "delete", "deployment", name)
			})
		})
	}
	t.Run("the same documents at both", func(t *testing.T) { testSameLegacy(t, newer, older) })
}

// testLegacyWalk asks for every group-version that /apis names, as clients do
// that know no aggregated discovery.
func testLegacyWalk(t *testing.T, server *cluster.Server) {
	for _, path := range legacyPaths(t, server) {
		as(t, server).want(200, "GET", path, "")
	}
}

// legacyPaths are the paths of a legacy walk.
func legacyPaths(t *testing.T, server *cluster.Server) []string {
	t.Helper()
	var groups metav1.APIGroupList
	if err := json.Unmarshal(as(t, server).want(200, "GET", "/apis", "").body, &groups); err != nil {
		t.Fatal(err)
	}
	paths := []string{"/api/v1", "/apis"}
	for _, group := range groups.Groups {
		paths = append(paths, "/apis/"+group.Name)
		for _, version := range group.Versions {
			paths = append(paths, "/apis/"+version.GroupVersion)
		}
	}
	for _, known := range []string{"/apis/certificates.k8s.io/v1", "/apis/batch/v1", "/apis/apps/v1"} {
		if !strings.Contains(strings.Join(paths, " ")+" ", known+" ") {
			t.Errorf("%s names no %s", server.Name(), known)
		}
	}
	return paths
}

func testSameLegacy(t *testing.T, one, other *cluster.Server) {
	for _, path := range legacyPaths(t, one) {
		first, second := as(t, one).want(200, "GET", path, ""), as(t, other).want(200, "GET", path, "")
		if string(first.body) != string(second.body) || first.header.Get("ETag") != second.header.Get("ETag") {
			t.Errorf("%s differs: %s", path, difference(first.body, second.body))
		}
	}
}

// groupsAt returns what client-go learns of a server by aggregated or by legacy
// discovery.
func groupsAt(t *testing.T, server *cluster.Server, legacy bool) []*restmapper.APIGroupResources {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(server.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	client.UseLegacyDiscovery = legacy
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// testMappings compares the mappings that client-go makes of aggregated and of
// legacy discovery.
func testMappings(t *testing.T, server *cluster.Server) {
	mappings := map[string][]string{}
	for _, legacy := range []bool{false, true} {
		mapper := restmapper.NewDiscoveryRESTMapper(groupsAt(t, server, legacy))
		var found []string
		for _, gk := range []schema.GroupKind{{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}, {Group: "batch", Kind: "Job"}, {Group: "apps", Kind: "Deployment"}, {Kind: "Pod"}} {
			mapping, err := mapper.RESTMapping(gk)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, fmt.Sprint(mapping.Resource, mapping.Scope.Name()))
		}
		sort.Strings(found)
		mappings[fmt.Sprint(legacy)] = found
	}
	if !reflect.DeepEqual(mappings["false"], mappings["true"]) {
		t.Errorf("aggregated discovery gives %v, legacy %v", mappings["false"], mappings["true"])
	}
}

// testValidation applies a good object and a bad one, with kubectl's own
// validation by OpenAPI.
func testValidation(t *testing.T, c *cluster.Cluster, server *cluster.Server) {
	object := bundle(t, c, "validated-"+server.Name())
	mustKubectl(t, server, mustJSON(t, object), "apply", "--validate=strict", "-f", "-")
	object.Object["spec"].(map[string]any)["trustBundel"] = "x"
	if out, err := kubectl(t, server, mustJSON(t, object), "apply", "--validate=strict", "-f", "-"); err == nil || !strings.Contains(out, "trustBundel") {
		t.Errorf("a misspelt field was accepted: %v %s", err, out)
	}
}
