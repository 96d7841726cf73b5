package integration

import (
	"net/http"
	"testing"
	"time"

	"peerproxy.internal/test/cluster"
	"peerproxy.internal/test/peertest"
)

// Case 19. A server that has come back, and that this one does not trust, or the
// reverse, costs no one else anything.
func TestAPeerWithoutTrustHarmsNothingElse(t *testing.T) {
	t.Parallel()
	for reason, peer := range map[string]func(*cell) *peertest.Peer{
		"name_mismatch": func(c *cell) *peertest.Peer {
			return &peertest.Peer{Certificate: c.issue(withName(cluster.ServingLeaf(), "kubernetes"))}
		},
		"unknown_authority": func(*cell) *peertest.Peer { return &peertest.Peer{} }, // the authority is the peer's own
		"unauthorized": func(c *cell) *peertest.Peer {
			return &peertest.Peer{Certificate: c.issue(cluster.ServingLeaf()), AllowedNames: []string{"another"}}
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			lost := resource{group: "lost-" + reason[:4] + ".k8s.io", name: "things"}
			c.actor("b", answering("from b"), lost)
			c.actor("c", answering("from c"), ours())
			a := c.ready(spec{id: "a"})
			a.learns(lost)
			a.learns(ours())
			alice, path, local := a.as("alice"), lost.path("default"), common[1]
			known := alice.document("/apis")
			watch := watchEvents(t, alice.open(http.MethodGet, local.path("default")+"?watch=true", nil))

			bad := peer(c).Start(t, c.pki)
			c.publish("b", bad.Address())
			a.sees("b", bad.Address())
			failed := func() float64 {
				return counted(t, "apiserver_peer_proxy_errors_total", map[string]string{"type": reason, "group": lost.group})
			}
			const n = 3
			for range n {
				before := failed()
				alice.wantRetry(http.MethodGet, path, "")
				if got := failed() - before; got != 1 {
					t.Errorf("%v failures were counted as %s, want 1", got, reason)
				}
				alice.wantRetry(http.MethodPost, path, lost.thing(t, "one", ""))
				alice.want(http.StatusOK, http.MethodGet, local.path("default"), "")
				alice.want(http.StatusOK, http.MethodGet, ours().path("default"), "")
			}
			alice.want(http.StatusCreated, http.MethodPost, local.path("default"), local.thing(t, "one", ""))
			select {
			case event := <-watch:
				if event != "ADDED one" {
					t.Errorf("a local watch has %q, want ADDED one", event)
				}
			case <-time.After(patience):
				t.Error("a local watch has no event")
			}
			if got := alice.document("/apis"); string(got.body) != string(known.body) {
				t.Errorf("discovery was\n%s\nand is\n%s", known.body, got.body)
			}
			a.admin().want(http.StatusOK, http.MethodGet, "/readyz", "")
		})
	}
}

// issue issues a certificate of the cluster's authority.
func (c *cell) issue(leaf cluster.Leaf) peertest.Pair {
	c.t.Helper()
	pair, err := c.cluster.CA.Issue("distrusted"+c.prefix[1:], leaf)
	if err != nil {
		c.t.Fatal(err)
	}
	return peertest.Pair{Cert: pair.Cert, Key: pair.Key}
}
