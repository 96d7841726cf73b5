package integration

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"peerproxy.internal/test/peertest"
)

// A peer whose connections break is asked in the background whether it is back,
// and gets requests again once it is.
func TestASuspectIsDialledInTheBackground(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := &peertest.Peer{ID: "b"}
	var healed atomic.Bool
	b.Handler = discovering(documentOf(ours()), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" && !healed.Load() {
			b.CloseConnections()
		}
		_, _ = io.WriteString(w, "from b")
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
	healed.Store(true)
	eventually(t, "b has answered a request", func() bool {
		return string(alice.want(http.StatusOK, http.MethodGet, path, "").body) == "from b"
	})
}
