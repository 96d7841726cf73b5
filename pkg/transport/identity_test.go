package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

func newIdentity(t testing.TB) *transport.Transport {
	t.Helper()
	config := configFor(t, peertest.NewPKI(t))
	config.IdentityHeaders = []string{"X-Corp-User", " x-corp-team "}
	config.IdentityHeaderPrefixes = []string{"X-Corp-Extra-", " "}
	tr, err := transport.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// received is the user that a kube-apiserver reads from a request with these
// headers once it has crossed HTTP/1.1, the stricter of the two versions.
func received(t testing.TB, h http.Header) *user.DefaultInfo {
	t.Helper()
	var wire bytes.Buffer
	req, err := http.NewRequest("GET", "https://peer/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h
	if err := req.Write(&wire); err != nil {
		t.Fatal(err)
	}
	got, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
	if err != nil {
		t.Fatal(err)
	}
	response, ok, err := reader.AuthenticateRequest(got)
	if err != nil || !ok {
		t.Fatalf("the peer sees no user: %v", err)
	}
	return response.User.(*user.DefaultInfo)
}

func TestIdentityArrivesUnchanged(t *testing.T) {
	tr := newIdentity(t)
	tests := map[string]*user.DefaultInfo{
		"name alone": {Name: "alice", Groups: []string{}, Extra: map[string][]string{}},
		"service account": {
			Name: "system:serviceaccount:ns:sa", UID: "8b-1", Groups: []string{"system:serviceaccounts", "system:authenticated"},
			Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"p"}, "authentication.kubernetes.io/credential-id": {"a", "b"}},
		},
		"odd names": {
			Name: "Zoë Ω, \"the\" second; 100%", UID: "a b", Groups: []string{"g,h", "x y", "ü"},
			Extra: map[string][]string{"Example.com/Key": {"V"}, "example.com/key": {"v"}, "100%": {""}, "a b:c": {"d"}, "ключ": {"e"}, "%2f": {"f"}, "": {"g"}},
		},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			if err := tr.SetIdentity(h, want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, received(t, h)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoOtherIdentityCrosses(t *testing.T) {
	tr := newIdentity(t)
	h := http.Header{
		"Accept":                  {"application/json"},
		"Authorization":           {"Bearer secret"},
		"authorization":           {"Bearer secret"},
		"X-Remote-User":           {"root"},
		"x-remote-user":           {"root"},
		"X-Remote-Uid":            {"0"},
		"X-Remote-Group":          {"system:masters"},
		"X-Remote-Extra-Scopes":   {"all"},
		"x-remote-extra-%73copes": {"all"},
		"X-Remote-Login":          {"root"},
		"x-remote-team":           {"system:masters"},
		"X-Remote-":               {"root"},
		"Impersonate-User":        {"root"},
		"Impersonate-Group":       {"system:masters"},
		"Impersonate-Uid":         {"0"},
		"Impersonate-Extra-A":     {"b"},
		"X-Corp-User":             {"root"},
		"X-Corp-Team":             {"system:masters"},
		"X-Corp-Extra-Scopes":     {"all"},
		"X-Corp-Trace":            {"kept"},
		"X-Remotely":              {"kept"},
	}
	if err := tr.SetIdentity(h, &user.DefaultInfo{Name: "alice"}); err != nil {
		t.Fatal(err)
	}
	want := http.Header{"Accept": {"application/json"}, "X-Corp-Trace": {"kept"}, "X-Remotely": {"kept"}, "X-Remote-User": {"alice"}}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
}

func TestBearerTokenOfAWebSocketDoesNotCross(t *testing.T) {
	const token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
	tests := map[string]struct{ in, want []string }{
		"none":         {nil, nil},
		"no token":     {[]string{"v4.channel.k8s.io ,  v5.channel.k8s.io", "x"}, []string{"v4.channel.k8s.io ,  v5.channel.k8s.io", "x"}},
		"among others": {[]string{"v5.channel.k8s.io, " + token + ",v4.channel.k8s.io"}, []string{"v5.channel.k8s.io,v4.channel.k8s.io"}},
		"own value":    {[]string{token, "v4.channel.k8s.io"}, []string{"v4.channel.k8s.io"}},
		"alone":        {[]string{token}, nil},
	}
	tr := newIdentity(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			if test.in != nil {
				h["Sec-Websocket-Protocol"] = test.in
			}
			if err := tr.SetIdentity(h, &user.DefaultInfo{Name: "alice"}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, h["Sec-Websocket-Protocol"]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestIdentityThatCannotCrossIsAnError(t *testing.T) {
	extra := func(value string) map[string][]string { return map[string][]string{"k": {value}} }
	tests := map[string]struct {
		user  user.DefaultInfo
		field string
	}{
		"empty name":          {user.DefaultInfo{}, "user name"},
		"name with newline":   {user.DefaultInfo{Name: "a\nX-Remote-Group: system:masters"}, "user name"},
		"name padded":         {user.DefaultInfo{Name: " alice"}, "user name"},
		"name padded behind":  {user.DefaultInfo{Name: "alice "}, "user name"},
		"name padded by tab":  {user.DefaultInfo{Name: "alice\t"}, "user name"},
		"name with delete":    {user.DefaultInfo{Name: "a\x7f"}, "user name"},
		"UID padded":          {user.DefaultInfo{Name: "a", UID: "1 "}, "UID"},
		"UID with null":       {user.DefaultInfo{Name: "a", UID: "\x00"}, "UID"},
		"empty group":         {user.DefaultInfo{Name: "a", Groups: []string{"g", ""}}, "group"},
		"group padded":        {user.DefaultInfo{Name: "a", Groups: []string{" g"}}, "group"},
		"group with return":   {user.DefaultInfo{Name: "a", Groups: []string{"g\r"}}, "group"},
		"extra value padded":  {user.DefaultInfo{Name: "a", Extra: extra(" v")}, "extra value"},
		"extra value newline": {user.DefaultInfo{Name: "a", Extra: extra("v\n")}, "extra value"},
	}
	tr := newIdentity(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}}
			err := tr.SetIdentity(h, &test.user)
			var identity *transport.IdentityError
			if !errors.As(err, &identity) || identity.Field != test.field {
				t.Errorf("got %v, want an IdentityError of the %s", err, test.field)
			}
			if len(h) != 0 {
				t.Errorf("left %v", h)
			}
		})
	}
}

// Whatever a user is called, and whatever header a client sends, the peer sees that
// very user or the request is not sent.
func FuzzIdentity(f *testing.F) {
	f.Add("alice", "1", "system:masters", "example.com/Key", "value", "Accept", "*/*")
	f.Add("a%", "", "g ", "K%2f\n", "\xff", "", "\n")
	f.Add("alice", "", "devs", "a", "b", "X-Remote-Extra-A", "c")
	f.Add("alice", "", "devs", "a", "b", "x-remote-group", "system:masters")
	f.Add("alice", "", "devs", "a", "b", "X-Remote-Login", "root")
	f.Add("alice", "", "devs", "a", "b", "Impersonate-User", "root")
	f.Add("alice", "", "devs", "a", "b", "X-Corp-Extra-", "root")
	f.Add("alice", "", "devs", "a", "b", "Sec-WebSocket-Protocol", "v5.channel.k8s.io,\tbase64url.bearer.authorization.k8s.io.c2VjcmV0")
	tr := newIdentity(f)
	f.Fuzz(func(t *testing.T, name, uid, group, key, value, clientName, clientValue string) {
		want := &user.DefaultInfo{Name: name, UID: uid, Groups: []string{group}, Extra: map[string][]string{key: {value}}}
		h := http.Header{}
		if !httpguts.ValidHeaderFieldName(clientName) || !httpguts.ValidHeaderFieldValue(clientValue) {
			return // no request that this server takes
		}
		h.Add(clientName, clientValue)
		if err := tr.SetIdentity(h, want); err != nil {
			return
		}
		noneOfTheClients(t, h)
		if diff := cmp.Diff(want, received(t, h)); diff != "" {
			t.Error(diff)
		}
	})
}

// noneOfTheClients fails the test where headers hold what [received] does not
// read, and another way to authenticate, or another cluster's flags, do.
func noneOfTheClients(t *testing.T, h http.Header) {
	t.Helper()
	written := []string{"x-remote-user", "x-remote-uid", "x-remote-group"}
	for name := range h {
		name = strings.ToLower(name)
		if slices.Contains([]string{"authorization", "x-corp-user", "x-corp-team"}, name) ||
			strings.HasPrefix(name, "impersonate-") || strings.HasPrefix(name, "x-corp-extra-") ||
			strings.HasPrefix(name, "x-remote-") && !slices.Contains(written, name) && !strings.HasPrefix(name, "x-remote-extra-") {
			t.Errorf("%s crosses", name)
		}
	}
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": h["Sec-Websocket-Protocol"]}
	tokens := websocket.NewProtocolAuthenticator(authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
		t.Error("a bearer token crosses")
		return nil, false, nil
	}))
	_, _, _ = tokens.AuthenticateRequest(&http.Request{Header: upgrade})
}

func TestServerAsksInItsOwnName(t *testing.T) {
	pki := peertest.NewPKI(t)
	peer := (&peertest.Peer{}).Start(t, pki)
	req := newRequest(t, "GET", peer.Address(), "")
	req.Header.Set("X-Remote-User", "alice")
	res, err := transport.AsServer(running(t, configFor(t, pki))).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, res)
	got := received(t, peer.Requests()[0].Header)
	if got.Name != "system:apiserver" || len(got.Groups) != 1 || got.Groups[0] != "system:authenticated" {
		t.Errorf("the peer saw %v", got)
	}
	if got := peer.Requests()[0].Header.Values(transport.LoopHeader); len(got) != 1 || got[0] != "true" {
		t.Errorf("the peer saw the loop header %q", got)
	}
	if req.Header.Get("X-Remote-User") != "alice" || req.Header.Get(transport.LoopHeader) != "" {
		t.Error("the caller's request was changed")
	}
}
