package integration

import (
	"net/http"
	"testing"

	"peerproxy.internal/test/peertest"
)

// A peer whose connections break is asked in the background whether it is back.
func TestASuspectIsDialledInTheBackground(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := &peertest.Peer{ID: "b"}
	b.Handler = discovering(documentOf(ours()), func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			b.CloseConnections()
		}
	})
	c.join(b)
	other := c.actor("c", answering("from c"), ours())
	a := c.ready(spec{id: "a"})
	a.sees("b", b.Address())
	a.sees("c", other.Address())
	a.learns(ours())
	a.settles() // no document is missing
	alice, path := a.as("alice"), ours().path("default")
	eventually(t, "a request has come to b", func() bool {
		alice.want(http.StatusOK, http.MethodGet, path, "")
		return len(under(b, path)) > 0
	})
	eventually(t, "b is asked whether it lives", func() bool { return len(under(b, "/livez")) > 0 })
}
