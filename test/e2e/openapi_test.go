package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"peerproxy.internal/test/cluster"
)

// TestOpenAPIIsTheSameOnEveryServer has custom resources, whose metadata 1.36
// and 1.37 describe in different words.
func TestOpenAPIIsTheSameOnEveryServer(t *testing.T) {
	c := start(t, "new="+ours137, "old="+ours136)
	newer, older := c.Server("new"), c.Server("old")
	as(t, older).until(5*time.Second, 200, "GET", bundlesPath, "")
	createCRD(t, as(t, newer), "widgets")
	createScalable(t, as(t, older))

	names := []string{"apis/example.com/v1", "apis/example.org/v1"}
	index := sameOpenAPI(t, 20*time.Second, "/openapi/v3", func(index []byte) error { return indexes(index, names...) }, newer, older)
	alone := as(t, older).want(200, "GET", "/openapi/v3", "", "Accept", "application/json;profile=nopeer").body
	other := as(t, newer).want(200, "GET", "/openapi/v3", "", "Accept", "application/json;profile=nopeer").body
	for _, name := range names {
		if openAPIURLs(t, alone)[name] == openAPIURLs(t, other)[name] {
			t.Errorf("the servers describe %s alike without the proxy: this test shows nothing", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(openAPIURLs(t, index))) {
		sameOpenAPI(t, time.Second, openAPIURLs(t, index)[name], nil, newer, older)
	}
	hasWidgets := func(document []byte) error { return mentions(document, `"com.example.v1.Widget"`) }
	sameOpenAPI(t, 30*time.Second, "/openapi/v2", hasWidgets, newer, older)

	t.Run("after a change of the definition", func(t *testing.T) {
		as(t, newer).want(200, "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
			`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties","value":{"spec":{"type":"string","description":"as it was changed"}}}]`, "Content-Type", "application/json-patch+json")
		changed := func(document []byte) error { return mentions(document, "as it was changed") }
		for _, server := range []*cluster.Server{newer, older} {
			within(t, 5*time.Second, func() error {
				return changed(as(t, server).want(200, "GET", "/openapi/v3/apis/example.com/v1", "").body)
			})
		}
		sameOpenAPI(t, 5*time.Second, "/openapi/v3/apis/example.com/v1", changed, newer, older)
		index := sameOpenAPI(t, 5*time.Second, "/openapi/v3", nil, newer, older)
		sameOpenAPI(t, time.Second, openAPIURLs(t, index)["apis/example.com/v1"], changed, newer, older)
		sameOpenAPI(t, 30*time.Second, "/openapi/v2", changed, newer, older)
		for _, server := range []*cluster.Server{newer, older} {
			mustKubectl(t, server, "", "explain", "widgets.spec")
			mustKubectl(t, server, "", "explain", "foos.metadata.labels")
		}
	})

	t.Run("after the deletion of the definition", func(t *testing.T) {
		as(t, older).want(200, "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", "")
		isGone := func(index []byte) error {
			if indexes(index, "apis/example.com/v1") == nil {
				return fmt.Errorf("it still lists the custom resource")
			}
			return nil
		}
		sameOpenAPI(t, 5*time.Second, "/openapi/v3", isGone, newer, older)
	})
}

// sameOpenAPI waits until servers answer alike at a path, in bytes and entity
// tag, and want has no complaint of the answer. It asks for nothing compressed:
// the local chain, unlike the proxy, compresses no OpenAPI.
func sameOpenAPI(t *testing.T, limit time.Duration, path string, want func([]byte) error, servers ...*cluster.Server) []byte {
	t.Helper()
	var first answer
	within(t, limit, func() error {
		for i, server := range servers {
			a, err := as(t, server).try(t.Context(), "GET", path, "", "Accept", "application/json", "Accept-Encoding", "identity")
			switch {
			case err != nil || a.code != 200:
				return fmt.Errorf("%s at %s: %d, %w", path, server.Name(), a.code, err)
			case i == 0:
				first = a
			case !bytes.Equal(first.body, a.body):
				return fmt.Errorf("%s differs between %s and %s: %s", path, servers[0].Name(), server.Name(), difference(first.body, a.body))
			case first.header.Get("ETag") != a.header.Get("ETag"):
				return fmt.Errorf("%s has the tags %s and %s", path, first.header.Get("ETag"), a.header.Get("ETag"))
			}
		}
		if want != nil {
			return want(first.body)
		}
		return nil
	})
	return first.body
}

// openAPIURLs are where the documents of an index are, by name.
func openAPIURLs(t *testing.T, index []byte) map[string]string {
	t.Helper()
	var parsed struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(index, &parsed); err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for name, document := range parsed.Paths {
		urls[name] = document.ServerRelativeURL
	}
	return urls
}

func indexes(index []byte, names ...string) error {
	for _, name := range names {
		if err := mentions(index, `"`+name+`":`); err != nil {
			return err
		}
	}
	return nil
}

func mentions(document []byte, text string) error {
	if !strings.Contains(string(document), text) {
		return fmt.Errorf("it lacks %s", text)
	}
	return nil
}

// createScalable creates a namespaced definition with all subresources in
// example.org/v1.
func createScalable(t *testing.T, c *client) {
	t.Helper()
	c.want(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"foos.example.org"},
		"spec":{"group":"example.org","scope":"Namespaced","names":{"plural":"foos","singular":"foo","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
		"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}},"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}`)
}
