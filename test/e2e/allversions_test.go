package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"

	"peerproxy.internal/test/cluster"
)

// With every API version on at two servers, of different releases, and at none
// other, all three show and serve all of them. The old server's ID comes first,
// so that what the order of versions is made of is not the new one's list alone.
func TestAllAPIVersionsAreOnAtSomeServers(t *testing.T) {
	const all = ",runtime-config=api/all=true"
	c := start(t, "late="+ours137+all, "early="+ours136+all+",flag.feature-gates=StorageVersionMigrator=true", "plain="+ours136)
	everyone := []*cluster.Server{c.Server("early"), c.Server("late"), c.Server("plain")}
	document := sameEverywhere(t, 15*time.Second, "/apis", everyone...)
	sameEverywhere(t, 2*time.Second, "/api", everyone...)

	t.Run("a version that the old server lacks comes first", func(t *testing.T) { testVersionOrder(t, document, c) })
	t.Run("a legacy walk is the same everywhere", func(t *testing.T) { testLegacyEverywhere(t, everyone) })
	t.Run("client-go makes the same mappings everywhere", func(t *testing.T) { testAllMappings(t, everyone) })
	t.Run("OpenAPI is the same everywhere", func(t *testing.T) { testOpenAPIEverywhere(t, everyone) })
	t.Run("kubectl sees the same everywhere", func(t *testing.T) { testKubectlEverywhere(t, everyone) })
}

// testVersionOrder looks at a group of which one server has v1 and v1beta1, the
// other v1beta1 alone, and the third nothing.
func testVersionOrder(t *testing.T, document []byte, c *cluster.Cluster) {
	const group = "storagemigration.k8s.io"
	for server, want := range map[string][]string{"early": {"v1beta1"}, "late": {"v1", "v1beta1"}, "plain": nil} {
		alone := as(t, c.Server(server)).want(200, "GET", "/apis", "", "Accept", aggregated+";profile=nopeer")
		if got := versionsOf(t, alone.body, group); !slices.Equal(got, want) {
			t.Fatalf("%s alone has versions %v of %s, want %v", server, got, group, want)
		}
	}
	if got, want := versionsOf(t, document, group), []string{"v1", "v1beta1"}; !slices.Equal(got, want) {
		t.Errorf("together they have versions %v, want %v", got, want)
	}
}

// versionsOf returns a group's versions in the order of an aggregated document.
func versionsOf(t *testing.T, document []byte, group string) []string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct{ Version string }
		}
	}
	if err := json.Unmarshal(document, &list); err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, item := range list.Items {
		for _, version := range item.Versions {
			if item.Metadata.Name == group {
				versions = append(versions, version.Version)
			}
		}
	}
	return versions
}

// testLegacyEverywhere asks every server for each document that a legacy walk
// comes to: it is there, and the same.
func testLegacyEverywhere(t *testing.T, everyone []*cluster.Server) {
	paths := legacyPaths(t, everyone[0])
	for _, known := range []string{"/apis/coordination.k8s.io/v1beta1", "/apis/storagemigration.k8s.io/v1beta1"} {
		if !slices.Contains(paths, known) {
			t.Errorf("%s names no %s", everyone[0].Name(), known)
		}
	}
	for _, path := range paths {
		equalEverywhere(t, path, everyone)
	}
}

// equalEverywhere complains if servers do not all say the same at a path.
func equalEverywhere(t *testing.T, path string, everyone []*cluster.Server) {
	t.Helper()
	if _, err := tryEqual(t, path, everyone); err != nil {
		t.Error(err)
	}
}

// tryEqual asks every server once for a path, uncompressed, because what the
// local chain answers it does not compress, and returns what the first says.
func tryEqual(t *testing.T, path string, everyone []*cluster.Server) ([]byte, error) {
	t.Helper()
	first := as(t, everyone[0]).want(200, "GET", path, "", "Accept-Encoding", "identity")
	for _, server := range everyone[1:] {
		a := as(t, server).want(200, "GET", path, "", "Accept-Encoding", "identity")
		if !bytes.Equal(first.body, a.body) || first.header.Get("ETag") != a.header.Get("ETag") {
			return nil, fmt.Errorf("%s differs between %s and %s: tags %s and %s, %s", path, everyone[0].Name(), server.Name(),
				first.header.Get("ETag"), a.header.Get("ETag"), difference(first.body, a.body))
		}
	}
	return first.body, nil
}

// testAllMappings compares all mappings that client-go makes at any server, of
// aggregated and of legacy discovery.
func testAllMappings(t *testing.T, everyone []*cluster.Server) {
	var first []string
	for _, server := range everyone {
		for _, legacy := range []bool{false, true} {
			all := allMappings(t, server, legacy)
			if first == nil {
				first = all
			}
			if !slices.Equal(first, all) {
				t.Errorf("at %s (legacy discovery: %t) the mappings are\n%s\nat %s\n%s", server.Name(), legacy,
					strings.Join(all, "\n"), everyone[0].Name(), strings.Join(first, "\n"))
			}
		}
	}
	if len(first) < 100 {
		t.Errorf("%d mappings are too few", len(first))
	}
}

// allMappings returns the mapping of each kind in each version, and of each
// resource by its name alone, which depends on the order of groups and versions.
func allMappings(t *testing.T, server *cluster.Server, legacy bool) []string {
	t.Helper()
	groups := groupsAt(t, server, legacy)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	var all []string
	for _, group := range groups {
		for version, resources := range group.VersionedResources {
			for _, resource := range resources {
				if !strings.Contains(resource.Name, "/") {
					all = append(all, mappingsOf(t, mapper, schema.GroupVersion{Group: group.Group.Name, Version: version}, resource)...)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mappingsOf returns the mapping of a resource's kind in a version, and what its
// name alone means.
func mappingsOf(t *testing.T, mapper meta.RESTMapper, gv schema.GroupVersion, resource metav1.APIResource) []string {
	t.Helper()
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: resource.Kind}, gv.Version)
	if err != nil {
		t.Fatal(err)
	}
	byName, err := mapper.ResourcesFor(schema.GroupVersionResource{Resource: resource.Name})
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		fmt.Sprint(mapping.GroupVersionKind, " ", mapping.Resource, " ", mapping.Scope.Name()),
		fmt.Sprint(resource.Name, " ", byName),
	}
}

// testOpenAPIEverywhere compares the index of OpenAPI v3, and asks for documents
// of group-versions that not all servers have.
func testOpenAPIEverywhere(t *testing.T, everyone []*cluster.Server) {
	var index string
	// A peer's index is read anew every 10 s; it may change after the peer's start.
	within(t, 15*time.Second, func() error {
		body, err := tryEqual(t, "/openapi/v3", everyone)
		index = string(body)
		return err
	})
	for _, only := range []string{"apis/storagemigration.k8s.io/v1", "apis/storagemigration.k8s.io/v1beta1", "apis/coordination.k8s.io/v1beta1"} {
		if !strings.Contains(index, fmt.Sprintf("%q", only)) {
			t.Errorf("the index lacks %s", only)
		}
		equalEverywhere(t, "/openapi/v3/"+only, everyone)
	}
}

// testKubectlEverywhere uses what the plain server lacks through each server.
func testKubectlEverywhere(t *testing.T, everyone []*cluster.Server) {
	list := mustKubectl(t, everyone[0], "", "api-resources", "--sort-by=name")
	for _, server := range everyone {
		if other := mustKubectl(t, server, "", "api-resources", "--sort-by=name"); other != list {
			t.Errorf("kubectl api-resources differs between %s and %s:\n%s\n%s", everyone[0].Name(), server.Name(), list, other)
		}
		mustKubectl(t, server, "", "explain", "--api-version=coordination.k8s.io/v1beta1", "leasecandidates.spec.leaseName")
		candidate := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1beta1","kind":"LeaseCandidate","metadata":{"name":"by-%s","namespace":"default"},
			"spec":{"leaseName":"some","binaryVersion":"1.36.0","emulationVersion":"1.36.0","strategy":"OldestEmulationVersion"}}`, server.Name())
		mustKubectl(t, server, candidate, "apply", "--validate=strict", "-f", "-")
		bad := strings.Replace(candidate, "binaryVersion", "binaryVersoin", 1)
		if out, err := kubectl(t, server, bad, "apply", "--validate=strict", "-f", "-"); err == nil || !strings.Contains(out, "binaryVersoin") {
			t.Errorf("at %s a misspelt field was accepted: %v %s", server.Name(), err, out)
		}
		mustKubectl(t, server, "", "delete", "leasecandidate", "by-"+server.Name())
	}
}
