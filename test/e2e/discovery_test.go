package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"peerproxy.internal/test/cluster"
)

// sameEverywhere waits until all servers have the same document at a path.
func sameEverywhere(t *testing.T, limit time.Duration, path string, servers ...*cluster.Server) []byte {
	t.Helper()
	var document []byte
	within(t, limit, func() error {
		var first answer
		for i, server := range servers {
			a, err := as(t, server).try(t.Context(), "GET", path, "", "Accept", aggregated)
			if err != nil || a.code != 200 {
				return fmt.Errorf("%s at %s: %d, %w", path, server.Name(), a.code, err)
			}
			if i == 0 {
				first = a
				continue
			}
			if !bytes.Equal(first.body, a.body) || first.header.Get("ETag") != a.header.Get("ETag") {
				return fmt.Errorf("%s differs between %s and %s: %s", path, servers[0].Name(), server.Name(), difference(first.body, a.body))
			}
		}
		document = first.body
		return nil
	})
	return document
}

// difference shows where two documents part.
func difference(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-200)
	return fmt.Sprintf("\n%s\n%s", a[from:min(len(a), i+200)], b[from:min(len(b), i+200)])
}

// names returns group/version/resource for every resource of a document.
func names(t *testing.T, document []byte) map[string]bool {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct{ Resource string }
			}
		}
	}
	if err := json.Unmarshal(document, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, group := range list.Items {
		for _, version := range group.Versions {
			for _, resource := range version.Resources {
				all[strings.Join([]string{group.Metadata.Name, version.Version, resource.Resource}, "/")] = true
			}
		}
	}
	return all
}

func TestDiscoveryIsTheSameOnEveryServer(t *testing.T) {
	c := start(t, "new="+ours137, "old="+ours136, "stock="+stock136)
	ours := []*cluster.Server{c.Server("new"), c.Server("old")}
	everyone := slices.Concat(ours, []*cluster.Server{c.Server("stock")})
	old := as(t, c.Server("old"))

	if version := old.want(200, "GET", "/version", ""); !strings.Contains(string(version.body), `"v1.36.3"`) {
		t.Errorf("the old server's version is %s", version.body)
	}

	const only = "certificates.k8s.io/v1/clustertrustbundles"
	merged := sameEverywhere(t, 15*time.Second, "/apis", everyone...)
	if !names(t, merged)[only] {
		t.Errorf("the merged document lacks %s", only)
	}
	sameEverywhere(t, time.Second, "/api", ours...)
	alone := old.want(200, "GET", "/apis", "", "Accept", aggregated+";profile=nopeer")
	if names(t, alone.body)[only] {
		t.Errorf("the old server alone claims to have %s", only)
	}

	full := old.want(200, "GET", "/apis", "", "Accept", aggregated)
	again := old.want(304, "GET", "/apis", "", "Accept", aggregated, "If-None-Match", full.header.Get("ETag"))
	if len(again.body) != 0 {
		t.Error("304 with a body")
	}
	if got := full.header.Values("Cache-Control"); len(got) != 1 || got[0] != "public" {
		t.Errorf("Cache-Control is %q", got)
	}
	proto := old.want(200, "GET", "/apis", "", "Accept", strings.Replace(aggregated, "json", "vnd.kubernetes.protobuf", 1))
	if proto.header.Get("ETag") != full.header.Get("ETag") || !bytes.HasPrefix(proto.body, []byte("k8s\x00")) {
		t.Errorf("protobuf has tag %s and begins with %q", proto.header.Get("ETag"), proto.body[:4])
	}

	t.Run("with a custom resource", func(t *testing.T) {
		createCRD(t, as(t, ours[0]), "widgets")
		for _, server := range ours {
			as(t, server).until(2*time.Second, 200, "GET", "/apis/example.com/v1/widgets", "")
		}
		with := sameEverywhere(t, 2*time.Second, "/apis", ours...)
		if !names(t, with)["example.com/v1/widgets"] {
			t.Error("the merged document lacks the custom resource")
		}
	})
}

// createCRD creates a definition in example.com/v1.
func createCRD(t *testing.T, c *client, plural string) {
	t.Helper()
	singular := strings.TrimSuffix(plural, "s")
	kind := strings.ToUpper(singular[:1]) + singular[1:]
	c.want(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.example.com"},
		"spec":{"group":"example.com","scope":"Cluster","names":{"plural":%[1]q,"singular":%[2]q,"kind":%[3]q},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, plural, singular, kind))
}

// A custom resource is usable at every server at once, and nowhere after its
// definition's deletion.
func TestACustomResourceIsUsedAtOnceEverywhere(t *testing.T) {
	c := start(t, "new="+ours137, "old="+ours136)
	newer, older := as(t, c.Server("new")), as(t, c.Server("old"))
	older.until(5*time.Second, 200, "GET", bundlesPath, "")
	const path = "/apis/example.com/v1/gadgets"
	older.want(404, "GET", path, "")
	for round := range 3 {
		createCRD(t, newer, "gadgets")
		t.Logf("round %d: usable at the other server after %v", round, older.until(2*time.Second, 200, "GET", path, ""))
		listed := within(t, 2*time.Second, func() error {
			if !names(t, older.want(200, "GET", "/apis", "", "Accept", aggregated).body)["example.com/v1/gadgets"] {
				return fmt.Errorf("not in discovery")
			}
			return nil
		})
		t.Logf("round %d: in its discovery %v later", round, listed)
		older.want(201, "POST", path, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g"}}`)
		newer.want(200, "GET", path+"/g", "")
		older.want(200, "DELETE", path+"/g", "")
		newer.want(200, "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.com", "")
		for _, each := range []*client{newer, older} {
			each.until(2*time.Second, 404, "GET", path, "")
			within(t, 2*time.Second, func() error {
				if names(t, each.want(200, "GET", "/apis", "", "Accept", aggregated).body)["example.com/v1/gadgets"] {
					return fmt.Errorf("still in the discovery of %s", each.server.Name())
				}
				return nil
			})
		}
	}
}
