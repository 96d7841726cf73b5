package forward

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

// echo switches protocols and returns each line.
var echo = handler(func(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nAudit-Id: the peer's\r\n"+NotServedHeader+": true\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(conn, buffered)
})

// Case 13.
func TestUpgradeHappensAsTheUser(t *testing.T) {
	const token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
	tests := []struct{ name, method, target, protocol string }{
		{"WebSocket", "GET", watch, "websocket"},
		{"SPDY", "POST", things + "/a/exec?command=ls", "SPDY/3.1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := &peertest.Peer{ID: "b", Handler: echo}
			w := newWorld(t, b)
			conn := w.dialFront()
			_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
				"Sec-WebSocket-Key: a2V5\r\nSec-WebSocket-Protocol: %s, v5.channel.k8s.io\r\n"+
				"X-Remote-User: root\r\nX-Remote-Group: system:masters\r\nX-Remote-Extra-Scopes: all\r\nX-Corp-User: root\r\n"+
				"Impersonate-User: root\r\nAuthorization: Bearer secret\r\nContent-Length: 0\r\n\r\n",
				test.method, test.target, test.protocol, token)
			r := bufio.NewReader(conn)
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != test.protocol {
				t.Fatalf("got %s %v", res.Status, res.Header)
			}
			if ids := res.Header["Audit-Id"]; len(ids) != 1 || ids[0] != "the peer's" {
				t.Errorf("Audit-Id %q", ids)
			}
			if res.Header.Get(NotServedHeader) != "" {
				t.Error("the marker reached the client")
			}
			for _, line := range []string{"one", "two"} {
				_, _ = io.WriteString(conn, line+"\n")
				wantLine(t, r, line)
			}
			_ = conn.Close()
			peertest.Eventually(t, "the peer's connection ends", func() bool { return len(b.Requests()) == 1 })

			got := b.Requests()[0]
			if got.Proto != "HTTP/1.1" || got.Method != test.method || got.URI != test.target {
				t.Errorf("sent as %s %s %s", got.Proto, got.Method, got.URI)
			}
			want := map[string]string{
				"X-Remote-User": "alice", "X-Remote-Uid": "a1", "X-Remote-Group": "devs system:authenticated",
				"X-Remote-Extra-Scopes": "", "X-Corp-User": "", "Impersonate-User": "", "Authorization": "",
				"X-Kubernetes-Peer-Proxied": "true",
				"Sec-Websocket-Protocol":    "v5.channel.k8s.io", "Sec-Websocket-Key": "a2V5",
			}
			for name, value := range want {
				if got := strings.Join(got.Header[name], " "); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
		})
	}
}

func TestUpgradeFailsOver(t *testing.T) {
	b, c := &peertest.Peer{ID: "b"}, &peertest.Peer{ID: "c", Handler: echo}
	w := newWorld(t, b, c)
	w.candidates[1].State = snapshot.StateStarting
	b.Stop()
	conn := w.dialFront()
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", watch)
	r := bufio.NewReader(conn)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v %v", res, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	wantLine(t, r, "hello")
}

// The peer has the last word on whether protocols are switched.
func TestUpgradeThatThePeerDeclines(t *testing.T) {
	w := newWorld(t, &peertest.Peer{ID: "b", Handler: readThenAnswer(http.StatusForbidden, nil, "no")})
	conn := w.dialFront()
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", watch)
	if got := readAnswer(t, conn); got.code != http.StatusForbidden || got.body != "no" {
		t.Errorf("got %d %s", got.code, got.body)
	}
}

// A peer that switches to something else is cut off, and its connection closed.
func TestSwitchToAnotherProtocolIsCutOff(t *testing.T) {
	closed := make(chan struct{})
	b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		_, _ = io.Copy(io.Discard, buffered)
		close(closed)
	})}
	w := newWorld(t, b)
	counted := countErrors(t)
	conn := w.dialFront()
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", watch)
	if got, _ := io.ReadAll(conn); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	<-closed
	wantCounted(t, counted(), "protocol_switch")
}

func TestOddUpgradeIsABadRequest(t *testing.T) {
	b := &peertest.Peer{ID: "b"}
	w := newWorld(t, b)
	conn := w.dialFront()
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: w\u00e9b\r\n\r\n", watch)
	if got := readAnswer(t, conn); got.code != http.StatusBadRequest || len(b.Requests()) != 0 {
		t.Errorf("got %d %s", got.code, got.body)
	}
}
