package integration

import (
	"net/http"
	"testing"
)

// A peer that is about to stop has no record any more, and answers still.
func TestTheOnlyPeerAnswersWithoutARecord(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.actor("b", drainingBody("from b"), ours())
	a := c.ready(spec{id: "a"})
	a.sees("b", b.Address())
	a.learns(ours())
	a.settles() // no document is missing
	c.remove(c.recordKey("b"))
	a.misses("b")
	alice, path := a.as("alice"), ours().path("default")
	const n = 5
	for range n {
		for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: ours().thing(t, "one", "")} {
			if got := alice.want(http.StatusOK, method, path, body); string(got.body) != "from b" {
				t.Errorf("%s: got %q, want b's answer", method, got.body)
			}
		}
	}
	alice.want(http.StatusOK, http.MethodGet, path+"?watch=true", "")
	if got := len(under(b, path)); got != 2*n+1 {
		t.Errorf("%d requests came to b, want %d", got, 2*n+1)
	}
	if !alice.document("/apis").lists(t, ours()) {
		t.Error("the peer's resource has left discovery")
	}
}
