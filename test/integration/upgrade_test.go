package integration

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/apiserver/pkg/server/options"
)

// forged is what a client makes up to be someone else.
func forged() http.Header {
	h := http.Header{}
	for name, value := range map[string]string{
		"X-Remote-User":         "mallory",
		"X-Remote-Uid":          "0",
		"X-Remote-Group":        "system:masters",
		"X-Remote-Extra-Scopes": "all",
		"X-Custom-User":         "mallory",
		"X-Custom-Uid":          "0",
		"X-Custom-Group":        "system:masters",
		"X-Custom-Extra-Scopes": "all",
	} {
		h.Set(name, value)
	}
	return h
}

// custom adds header names to those that the server reads users from.
func custom(o *options.RequestHeaderAuthenticationOptions) {
	o.UsernameHeaders = append([]string{"X-Custom-User"}, o.UsernameHeaders...)
	o.UIDHeaders = append([]string{"X-Custom-Uid"}, o.UIDHeaders...)
	o.GroupHeaders = append([]string{"X-Custom-Group"}, o.GroupHeaders...)
	o.ExtraHeaderPrefixes = append([]string{"X-Custom-Extra-"}, o.ExtraHeaderPrefixes...)
}

// checkAlice makes sure that all that has come to the server below a path came
// as alice, and nothing of what was forged.
func checkAlice(t *testing.T, s *server, path string, want int) {
	t.Helper()
	arrived, taken := s.arrived.under(path), s.local.under(path)
	if len(arrived) != want || len(taken) != want {
		t.Fatalf("%d requests arrived and %d were let in, want %d", len(arrived), len(taken), want)
	}
	for _, request := range arrived {
		for name, values := range request.header {
			// To a server that does not know them they are headers like others.
			if strings.HasPrefix(name, "X-Custom-") && s.spec.requestHeaders != nil {
				t.Errorf("%s: %q arrives", name, values)
			}
			if strings.HasPrefix(name, "X-Remote-") && slices.ContainsFunc(values, func(v string) bool {
				return v == "mallory" || v == "0" || v == "system:masters" || v == "all"
			}) {
				t.Errorf("%s: %q arrives", name, values)
			}
		}
	}
	for _, request := range taken {
		if request.user.GetName() != "alice" || slices.Contains(request.user.GetGroups(), "system:masters") || !slices.Contains(request.user.GetGroups(), "dev") {
			t.Errorf("it came as %v, want alice of dev", request.user)
		}
	}
}

func TestNoForgedIdentityReachesAPeer(t *testing.T) {
	t.Parallel()
	for name, requestHeaders := range map[string]func(*options.RequestHeaderAuthenticationOptions){
		"default names": nil,
		"custom names":  custom,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			exec := ours("exec")
			b := c.ready(spec{id: "b", serves: []resource{exec}, requestHeaders: requestHeaders})
			a := c.ready(spec{id: "a", requestHeaders: requestHeaders})
			a.learns(exec)
			alice := a.as("alice", "dev")
			path := exec.path("plain")
			alice.want(http.StatusOK, http.MethodGet, path, "", flat(forged())...)
			checkAlice(t, b, path, 1)
			webSocketWatch(t, alice, b, exec)
			upgrade(t, alice, b, exec)
		})
	}
}

// flat is a header as names and values in turn.
func flat(h http.Header) []string {
	var out []string
	for name, values := range h {
		for _, value := range values {
			out = append(out, name, value)
		}
	}
	return out
}

// webSocketWatch watches through a WebSocket.
func webSocketWatch(t *testing.T, alice *client, b *server, r resource) {
	t.Helper()
	path := r.path("websocket")
	conn := alice.dial(t)
	config := &websocket.Config{
		Location: &url.URL{Scheme: "wss", Host: conn.RemoteAddr().String(), Path: path, RawQuery: "watch=true"},
		Origin:   &url.URL{Scheme: "https", Host: "client"},
		Version:  websocket.ProtocolVersionHybi13,
		Header:   forged(),
		Protocol: []string{"base64url.bearer.authorization.k8s.io.c2VjcmV0", "a.protocol"},
	}
	socket, err := websocket.NewClient(config, conn)
	if err != nil {
		t.Fatalf("no WebSocket: %v", err)
	}
	b.admin().want(http.StatusCreated, http.MethodPost, path, r.thing(t, "one", ""))
	var event struct {
		Type   string
		Object Thing
	}
	if err := websocket.JSON.Receive(socket, &event); err != nil || event.Type != "ADDED" || event.Object.Name != "one" {
		t.Errorf("got %s of %s, %v, want ADDED of one", event.Type, event.Object.Name, err)
	}
	socket.Close()
	checkAlice(t, b, path+"?watch=true", 1)
	for _, request := range b.arrived.under(path + "?watch=true") {
		if got := request.header["Sec-Websocket-Protocol"]; !slices.Equal(got, []string{"a.protocol"}) {
			t.Errorf("the protocols arrive as %q, want the token removed", got)
		}
	}
}

// upgrade changes to another protocol, and talks both ways.
func upgrade(t *testing.T, alice *client, b *server, r resource) {
	t.Helper()
	path := r.path("upgrade") + "/one/exec"
	conn := alice.dial(t)
	request := alice.request(t.Context(), http.MethodPost, path+"?command=a%20b;c", nil, flat(forged())...)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "SPDY/3.1")
	if err := request.Write(conn); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, request)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "SPDY/3.1" {
		body, _ := io.ReadAll(res.Body)
		t.Fatalf("got %s %v %s, want 101 to SPDY/3.1", res.Status, res.Header, body)
	}
	for _, said := range []string{"one", "\x00\xff two"} {
		if _, err := io.WriteString(conn, said); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, len(said))
		if _, err := io.ReadFull(reader, heard); err != nil || string(heard) != said {
			t.Fatalf("heard %q, %v; want %q", heard, err, said)
		}
	}
	checkAlice(t, b, path+"?command=a%20b;c", 1)
}

// dial opens a connection that speaks HTTP/1.1 and lives no longer than a
// test's patience.
func (c *client) dial(t *testing.T) *tls.Conn {
	t.Helper()
	config := c.tls.Clone()
	config.NextProtos = []string{"http/1.1"}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	raw, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", strings.TrimPrefix(c.base, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	if err := raw.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return raw.(*tls.Conn)
}
