package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"peerproxy.internal/test/cluster"
)

// webhook stands for one that refuses, at every server, what a starting server
// writes: it can't be reached.
const webhook = `{
	"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
	"metadata": {"name": "refuse"},
	"webhooks": [{
		"name": "refuse.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
		"clientConfig": {"url": "https://127.0.0.1:1/"},
		"rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["clusterroles"]}]
	}]
}`

const webhooksPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

// A server whose readiness waits for a webhook shows its APIs before: the
// webhook may look for them, at another server. When it crashes instead, they
// leave with it.
func TestWhatAStartingServerHasIsSeenBeforeItIsReady(t *testing.T) {
	c := start(t, "old="+ours136)
	old := as(t, c.Server("old"))
	// Its absence has the new server write it, which the webhook refuses.
	old.want(200, "DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user", "")
	old.want(201, "POST", webhooksPath, webhook)
	config, err := cluster.ParseServer("new=" + ours137)
	if err != nil {
		t.Fatal(err)
	}
	config.Binary = bin(t, config.Binary)
	starting, err := c.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := starting.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := old.until(25*time.Second, 200, "GET", bundlesPath, "")
	t.Logf("its resource is usable through the other server %v after its process began", took)
	old.until(time.Second, 200, "GET", "/apis/certificates.k8s.io/v1", "")
	if err := listed(old, true); err != nil {
		t.Error(err)
	}
	if a := as(t, starting).do("GET", "/readyz", ""); a.code == 200 {
		t.Error("the new server is ready: the test shows nothing")
	}
	if err := starting.Kill(); err != nil {
		t.Fatal(err)
	}
	// Its record outlives it by 15 s.
	took = old.until(20*time.Second, 404, "GET", bundlesPath, "")
	t.Logf("it is unknown %v after the crash", took)
	if err := listed(old, false); err != nil {
		t.Error(err)
	}
	old.want(200, "DELETE", webhooksPath+"/refuse", "")
	if err := starting.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	old.until(time.Second, 200, "GET", bundlesPath, "")
}

// listed wants clustertrustbundles v1 in the merged document, or not.
func listed(c *client, want bool) error {
	a, err := c.try(c.t.Context(), "GET", "/apis", "", "Accept", aggregated)
	if err != nil {
		return err
	}
	v1 := strings.Contains(string(a.body), `"clustertrustbundles"`)
	if a.code != 200 || v1 != want {
		return fmt.Errorf("discovery at %s answers %d, names clustertrustbundles: %t, want %t", c.server.Name(), a.code, v1, want)
	}
	return nil
}
