package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"peerproxy.internal/test/cluster"
)

// What only a dead member has is listed, and is a 503. But a custom resource
// that it listed, and that is deleted after its death, is gone: it would keep
// namespaces from being deleted for as long as the member is remembered.
func TestWhatADeadMemberHad(t *testing.T) {
	c := start(t, "new="+ours137, "old="+ours136+",runtime-config=batch/v1=false", "other="+ours136+",runtime-config=batch/v1=false")
	left := []*cluster.Server{c.Server("old"), c.Server("other")}
	old := as(t, left[0])
	old.until(5*time.Second, 200, "GET", "/apis/batch/v1", "")
	createCRD(t, old, "relics")
	const path = "/apis/example.com/v1/relics"
	for _, server := range append(left, c.Server("new")) {
		as(t, server).until(5*time.Second, 200, "GET", path, "")
		as(t, server).until(5*time.Second, 200, "GET", "/apis/example.com/v1", "", "Accept", "application/json;profile=nopeer")
	}
	// By then the others have asked the new server for its document once more.
	lasts(t, 2*time.Second)
	if err := c.Server("new").Kill(); err != nil {
		t.Fatal(err)
	}
	died := time.Now()

	old.want(200, "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/relics.example.com", "")
	for _, server := range left {
		took := within(t, 5*time.Second, func() error { return relicIsGone(t, as(t, server), path) })
		t.Logf("the custom resource is gone at the %s server after %v", server.Name(), took)
	}
	for _, server := range left {
		// A kube-apiserver itself takes up to a second to make its index anew.
		within(t, 5*time.Second, func() error { return lacksGroup(t, as(t, server), "/openapi/v3", "application/json") })
	}

	old.until(30*time.Second, 503, "GET", "/apis/batch/v1", "")
	t.Logf("the dead member is given up after %v", time.Since(died))
	if groups := string(old.want(200, "GET", "/apis", "").body); !strings.Contains(groups, `"batch/v1"`) {
		t.Error("/apis forgot the group-version")
	}
	if answer := old.do("GET", "/apis/batch/v1/namespaces/default/jobs", ""); answer.code != 503 {
		t.Errorf("its resources give %d, want 503", answer.code)
	}
	for _, server := range left {
		if err := relicIsGone(t, as(t, server), path); err != nil {
			t.Errorf("when the member is given up: %v", err)
		}
		if err := lacksGroup(t, as(t, server), "/openapi/v3", "application/json"); err != nil {
			t.Errorf("when the member is given up: %v", err)
		}
	}
}

// relicIsGone complains if a server still knows the custom resource. It never
// doubts that there is none: a 503 fails the test.
func relicIsGone(t *testing.T, c *client, path string) error {
	t.Helper()
	for _, gone := range []string{path, path + "/any", "/apis/example.com/v1", "/apis/example.com"} {
		switch a := c.do("GET", gone, ""); a.code {
		case 404:
		case 503:
			t.Fatalf("%s at %s: 503 %s", gone, c.server.Name(), a.body)
		default:
			return fmt.Errorf("%s at %s: %d", gone, c.server.Name(), a.code)
		}
	}
	if err := lacksGroup(t, c, "/apis", aggregated); err != nil {
		return err
	}
	return lacksGroup(t, c, "/apis", "application/json")
}

// lacksGroup complains if a document names the custom resource's group.
func lacksGroup(t *testing.T, c *client, path, accept string) error {
	t.Helper()
	if a := c.want(200, "GET", path, "", "Accept", accept); strings.Contains(string(a.body), "example.com") {
		return fmt.Errorf("%s (%s) at %s names the group", path, accept, c.server.Name())
	}
	return nil
}
