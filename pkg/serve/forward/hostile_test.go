package forward

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"peerproxy.internal/test/peertest"
)

// saying is a hook for [peertest.Peer.OnConn] under which the peer answers the first
// request of a connection with these bytes.
func saying(answer func() string) func(int, *tls.Conn) bool {
	return func(_ int, conn *tls.Conn) bool {
		go func() {
			defer func() { _ = conn.Close() }()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, answer())
			}
		}()
		return true
	}
}

// To write one would panic.
func TestAnswerWithoutAStatusIsNone(t *testing.T) {
	for method, want := range map[string]int{http.MethodGet: http.StatusServiceUnavailable, http.MethodPost: http.StatusGatewayTimeout} {
		peer := &peertest.Peer{ID: "b", HTTP1: true, OnConn: saying(func() string { return "HTTP/1.1 099 None\r\nContent-Length: 0\r\n\r\n" })}
		w := newWorld(t, peer)
		if got := w.do(w.request(method, things, "")); got.code != want || !strings.Contains(got.body, `"kind":"Status"`) {
			t.Errorf("%s: got %d %s", method, got.code, got.body)
		}
	}
}

// Whatever bytes a peer answers with, the client gets an answer that is one, or is
// cut off, with this server's audit ID or the peer's in it, and nothing that is
// between the servers.
func FuzzAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Audit-Id, X-Hop\r\nAudit-Id: 1\r\nX-Hop: 1\r\nKeep-Alive: 1\r\n\r\nok")
	f.Add("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 404 Not Found\r\nX-Kubernetes-Peer-Not-Served: true\r\nContent-Length: 0\r\n\r\n")
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Audit-Id\r\n\r\n2\r\nok\r\n0\r\nAudit-Id: 1\r\n\r\n")
	f.Add("HTTP/1.1 200 OK\r\nX-Kubernetes-Peer-Not-Served: true\r\nAudit-Id:\r\nContent-Length: 5\r\n\r\nok")
	f.Add("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nok")
	f.Add("HTTP/1.1 000\r\n\r\n")
	answers := make(chan string, 1)
	w := newWorld(f, &peertest.Peer{ID: "b", HTTP1: true, OnConn: saying(func() string { return <-answers })})
	f.Fuzz(func(t *testing.T, raw string) {
		answers <- raw
		rec := httptest.NewRecorder()
		cutOff := false
		peertest.Chain(t, alice, handler(func(rw http.ResponseWriter, r *http.Request) {
			defer func() {
				v := recover()
				err, _ := v.(error)
				cutOff = errors.Is(err, http.ErrAbortHandler)
				if v != nil && !cutOff {
					panic(v)
				}
			}()
			w.forwarder.Forward(rw, r, w.candidates)
		})).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, things, nil))
		if cutOff {
			return
		}
		got := rec.Result()
		if got.StatusCode < 200 || len(got.Header["Audit-Id"]) == 0 {
			t.Errorf("got %d with %v", got.StatusCode, got.Header)
		}
		for _, name := range []string{NotServedHeader, "Connection", "Keep-Alive", "Proxy-Authenticate", "Transfer-Encoding", "Upgrade"} {
			if values, set := got.Header[name]; set {
				t.Errorf("%s is %q", name, values)
			}
		}
	})
}
