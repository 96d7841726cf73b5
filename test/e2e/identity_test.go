package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"peerproxy.internal/test/cluster"
)

// kind is a way to be someone at a server.
type kind struct {
	name string
	// config is access to the server as that someone, header what else is sent.
	config *rest.Config
	header []string
}

// Whoever a user is, and however that is known, the peer's audit log has exactly
// who the first server's has, with the same audit ID.
func TestEveryKindOfUserIsTheSameUserAtThePeer(t *testing.T) {
	c := start(t, "new="+ours137+",audit=on", "old="+ours136+",audit=on,flag.token-auth-file="+tokens(t))
	old := c.Server("old")
	admin := as(t, old)
	admin.until(5*time.Second, 200, "GET", bundlesPath, "")
	everyoneUsesBundles(t, admin)
	account := serviceAccount(t, admin)

	kinds := []kind{
		{name: "certificate", config: certificate(t, old, "alice, the first", "readers, all", "Team/Blue")},
		{name: "certificate with letters of all kinds", config: certificate(t, old, "Zoë ☃", "größe=1; b")},
		{name: "token with UID and groups", config: bearer(c, old, "token-of-bob")},
		{name: "service account", config: bearer(c, old, account)},
		{name: "impersonation", config: old.AdminConfig(), header: []string{
			"Impersonate-User", "carol@example.com", "Impersonate-Uid", "0a1-B", "Impersonate-Group", "a, b",
			"Impersonate-Extra-Acme.com%2fproject", "some-project, other", "Impersonate-Extra-%4bEY", "Value",
		}},
	}
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			who := with(t, old, k.config)
			path := fmt.Sprintf("%s/kind-%d", bundlesPath, i)
			who.want(404, "GET", path, "", k.header...)
			sameUser(t, c, path)
			query := fmt.Sprintf("%s?watch=true&timeoutSeconds=1&labelSelector=kind%%3D%d", bundlesPath, i)
			who.want(200, "GET", query, "", k.header...)
			sameUser(t, c, query)
			write := fmt.Sprintf("%s?dryRun=All&fieldManager=kind-%d", bundlesPath, i)
			who.want(201, "POST", write, mustJSON(t, bundle(t, c, "written")), k.header...)
			sameUser(t, c, write)
		})
	}
	t.Run("token in a WebSocket's subprotocol", func(t *testing.T) {
		path := bundlesPath + "?watch=true&timeoutSeconds=1&labelSelector=kind%3Dwebsocket"
		protocol := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("token-of-bob"))
		who := with(t, old, bearer(c, old, ""))
		who.http = overHTTP1(c)
		who.want(101, "GET", path, "", "Origin", "https://example.com", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==",
			"Sec-WebSocket-Protocol", protocol+", binary.k8s.io", "X-Remote-User", "mallory", "X-Remote-Group", "system:masters")
		sameUser(t, c, path)
	})
	t.Run("the server itself", func(t *testing.T) {
		admin.want(200, "GET", "/openapi/v3", "")
		for _, path := range []string{"/api", "/apis", "/openapi/v3"} {
			asksItself(t, c.Server("new"), path)
		}
	})
	for i, name := range []string{" padded", "padded ", "control\x01"} {
		t.Run(fmt.Sprintf("a name that no header can hold: %q", name), func(t *testing.T) {
			path := fmt.Sprintf("%s/unsendable-%d", bundlesPath, i)
			with(t, old, certificate(t, old, name)).want(500, "GET", path, "")
			if events := audited(t, c.Server("new"), path); len(events) > 0 {
				t.Errorf("the peer was asked as %v", events[0].User)
			}
		})
	}
}

// tokens is a token file.
func tokens(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("token-of-bob,bob,UID-7,\"dev,Ops Team\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// everyoneUsesBundles gives all users, at all servers, the right to read and make
// bundles.
func everyoneUsesBundles(t *testing.T, admin *client) {
	t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	admin.want(201, "POST", rbac+"clusterroles", `{"metadata":{"name":"user"},"rules":[{"apiGroups":["certificates.k8s.io"],"resources":["clustertrustbundles"],"verbs":["get","list","watch","create"]}]}`)
	admin.want(201, "POST", rbac+"clusterrolebindings", `{"metadata":{"name":"user"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"user"},"subjects":[{"kind":"Group","name":"system:authenticated"}]}`)
	as(t, admin.server, "probe").until(5*time.Second, 200, "GET", bundlesPath, "")
}

// serviceAccount returns the token of a new service account.
func serviceAccount(t *testing.T, admin *client) string {
	t.Helper()
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	admin.want(201, "POST", accounts, `{"metadata":{"name":"robot"}}`)
	a := admin.want(201, "POST", accounts+"/robot/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
	var request authenticationv1.TokenRequest
	if err := json.Unmarshal(a.body, &request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func certificate(t *testing.T, s *cluster.Server, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := s.ConfigFor(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// bearer is access with a token, or with nothing.
func bearer(c *cluster.Cluster, s *cluster.Server, token string) *rest.Config {
	return &rest.Config{Host: s.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA.PEM()}}
}

// with is access to a server by a configuration.
func with(t *testing.T, s *cluster.Server, config *rest.Config) *client {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t: t, server: s, config: config, http: httpClient}
}

// overHTTP1 is a client that can upgrade its connections.
func overHTTP1(c *cluster.Cluster) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA.PEM())
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}}
}

// sameUser wants a request in the audit logs of both servers, as the same user
// and with the same audit ID; the first names the peer.
func sameUser(t *testing.T, c *cluster.Cluster, uri string) {
	t.Helper()
	var here, there []auditv1.Event
	within(t, 5*time.Second, func() error {
		here, there = audited(t, c.Server("old"), uri), audited(t, c.Server("new"), uri)
		if len(here) != 1 || len(there) != 1 {
			return fmt.Errorf("%s is %d times in the audit log of the server that was asked, %d times in that of its peer", uri, len(here), len(there))
		}
		return nil
	})
	user := here[0].User
	if here[0].ImpersonatedUser != nil {
		user = *here[0].ImpersonatedUser
	}
	t.Logf("the user is %v", user)
	if diff := cmp.Diff(user, there[0].User); diff != "" {
		t.Errorf("at the peer it is another user: %s", diff)
	}
	if here[0].AuditID != there[0].AuditID {
		t.Errorf("the audit ID is %s, at the peer %s", here[0].AuditID, there[0].AuditID)
	}
	if peer := here[0].Annotations["peerproxy.kubernetes.io/peer"]; peer != c.Server("new").ID() {
		t.Errorf("the audit log names the peer %q, want %s", peer, c.Server("new").ID())
	}
}

// asksItself wants that a server was asked for a document, and by no one but
// another server in its own name. The clients that a kube-apiserver has of itself
// ask, too: they give the program's name.
func asksItself(t *testing.T, s *cluster.Server, path string) {
	t.Helper()
	want := authenticationv1.UserInfo{Username: "system:apiserver", UID: "system:apiserver", Groups: []string{"system:authenticated"}}
	within(t, 5*time.Second, func() error {
		events := slices.DeleteFunc(audited(t, s, path), func(e auditv1.Event) bool { return strings.HasPrefix(e.UserAgent, "kube-apiserver") })
		for _, event := range events {
			if diff := cmp.Diff(want, event.User); diff != "" {
				t.Errorf("%s was asked for as another: %s", path, diff)
			}
		}
		if len(events) == 0 {
			return fmt.Errorf("no one has asked %s for %s", s.Name(), path)
		}
		return nil
	})
}

// audited are the events of a request in a server's audit log.
func audited(t *testing.T, s *cluster.Server, uri string) (events []auditv1.Event) {
	t.Helper()
	log, err := os.ReadFile(s.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		var event auditv1.Event
		if json.Unmarshal([]byte(line), &event) != nil {
			continue // the last line may be half written
		}
		if got, err := url.QueryUnescape(event.RequestURI); err == nil && got == unescaped(t, uri) {
			events = append(events, event)
		}
	}
	return events
}

func unescaped(t *testing.T, uri string) string {
	t.Helper()
	plain, err := url.QueryUnescape(uri)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
