package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"peerproxy.internal/test/cluster"
	"peerproxy.internal/test/peertest"
)

var recordsResource = schema.GroupResource{Resource: "apiServerPeerIPInfo"}

// patience is how long a test waits for what has to come: long enough for a busy
// machine.
const patience = 30 * time.Second

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(patience); !condition(); {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// client is a user at a server.
type client struct {
	t    *testing.T
	base string
	tls  *tls.Config
	http *http.Client
}

// as is access to the server under a name.
func (s *server) as(name string, groups ...string) *client {
	s.t.Helper()
	pair, err := s.cell.cluster.CA.Issue("user"+s.suffix()+"-"+name, cluster.ClientLeaf(name, groups...))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.with(pair)
}

// with is access to the server with a certificate.
func (s *server) with(pair *cluster.KeyPair) *client {
	s.t.Helper()
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.cell.cluster.CA.PEM())
	config := &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: peertest.ServerName}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &client{t: s.t, base: "https://" + s.address, tls: config, http: &http.Client{Transport: transport}}
}

// admin may do everything, and is not limited by flow control.
func (s *server) admin() *client { return s.as("admin", user.SystemPrivilegedGroup) }

// answer is what a server has answered.
type answer struct {
	code    int
	header  http.Header
	trailer http.Header
	body    []byte
}

// request makes a request whose path and query go out as they are written here.
// Headers come as names and values in turn.
func (c *client) request(ctx context.Context, method, target string, body io.Reader, headers ...string) *http.Request {
	c.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, c.base, body)
	if err != nil {
		c.t.Fatal(err)
	}
	path, query, asks := strings.Cut(target, "?")
	request.URL = &url.URL{Scheme: "https", Host: request.URL.Host, Opaque: path, RawQuery: query, ForceQuery: asks}
	for i := 0; i < len(headers); i += 2 {
		request.Header[headers[i]] = append(request.Header[headers[i]], headers[i+1])
	}
	if body != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	return request
}

// open sends a request and returns the answer with its body to be read.
func (c *client) open(method, target string, body io.Reader, headers ...string) *http.Response {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	res, err := c.http.Do(c.request(ctx, method, target, body, headers...))
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, target, err)
	}
	c.t.Cleanup(func() { res.Body.Close() })
	return res
}

// do sends a request and reads the answer.
func (c *client) do(method, target, body string, headers ...string) answer {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	res, err := c.http.Do(c.request(ctx, method, target, reader, headers...))
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, target, err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("%s %s: reading the body: %v", method, target, err)
	}
	return answer{code: res.StatusCode, header: res.Header, trailer: res.Trailer, body: content}
}

// want sends a request and fails the test if the answer has another code.
func (c *client) want(code int, method, target, body string, headers ...string) answer {
	c.t.Helper()
	got := c.do(method, target, body, headers...)
	if got.code != code {
		c.t.Fatalf("%s %s: got %d %s, want %d", method, target, got.code, got.body, code)
	}
	return got
}

// until sends a request again and again until the answer has the code.
func (c *client) until(code int, method, target string, headers ...string) answer {
	c.t.Helper()
	var got answer
	eventually(c.t, fmt.Sprintf("%s %s answers %d", method, target, code), func() bool {
		got = c.do(method, target, "", headers...)
		return got.code == code
	})
	return got
}

// wantRetry sends a request and fails the test unless the answer is that no
// server can take it now: 503 in the form of a Status, to be tried again, and
// without any address.
func (c *client) wantRetry(method, target, body string, headers ...string) {
	c.t.Helper()
	c.want(http.StatusServiceUnavailable, method, target, body, headers...).checkRetry(c.t)
}

func (a answer) checkRetry(t *testing.T) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(a.body, &status); err != nil {
		t.Fatalf("the body is no Status: %v: %s", err, a.body)
	}
	if status.Kind != "Status" || status.Reason != metav1.StatusReasonServiceUnavailable || int(status.Code) != a.code {
		t.Errorf("got %s, want a Status of reason ServiceUnavailable", a.body)
	}
	if got := a.header.Get("Retry-After"); got != "1" {
		t.Errorf("got Retry-After %q, want 1", got)
	}
	if bytes.Contains(a.body, []byte("127.0.0.1")) {
		t.Errorf("the body shows an address: %s", a.body)
	}
}

// documents returns the merged document at a path.
func (c *client) document(path string, headers ...string) answer {
	c.t.Helper()
	return c.want(http.StatusOK, http.MethodGet, path, "", append([]string{"Accept", aggregated}, headers...)...)
}

// lists reports whether a document lists a resource of a group.
func (a answer) lists(t *testing.T, r resource) bool {
	t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(a.body, &list); err != nil {
		t.Fatal(err)
	}
	for _, group := range list.Items {
		for _, version := range group.Versions {
			if group.Name == r.group && slices.ContainsFunc(version.Resources, func(d apidiscoveryv2.APIResourceDiscovery) bool { return d.Resource == r.name }) {
				return true
			}
		}
	}
	return false
}

// learns waits until the server's merged discovery has the resource.
func (s *server) learns(r resource) {
	s.t.Helper()
	admin := s.admin()
	eventually(s.t, s.spec.id+" knows of "+r.group, func() bool {
		got := admin.do(http.MethodGet, "/apis", "", "Accept", aggregated)
		return got.code == http.StatusOK && got.lists(s.t, r)
	})
}

// path is where a resource is in a namespace.
func (r resource) path(namespace string) string {
	root := "/apis/" + r.group
	if r.group == "" {
		root = "/api"
	}
	return root + "/v1/namespaces/" + namespace + "/" + r.name
}

// thing is an object of the resource, in JSON.
func (r resource) thing(t *testing.T, name, data string) string {
	t.Helper()
	return toJSON(t, &Thing{
		TypeMeta:   metav1.TypeMeta{Kind: "Thing", APIVersion: r.gv().String()},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       data,
	})
}

func toJSON(t *testing.T, object any) string {
	t.Helper()
	out, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func writeJSON(w io.Writer, object any) error { return json.NewEncoder(w).Encode(object) }

func fromJSON[T any](t *testing.T, body []byte) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return out
}

// seen is a request that has come by.
type seen struct {
	method, uri string
	header      http.Header
	user        user.Info
}

// traffic is what has come by at one place.
type traffic struct {
	mu       sync.Mutex
	requests []seen
}

// record lets requests come by on their way to the next handler.
func (t *traffic) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := apirequest.UserFrom(r.Context())
		t.mu.Lock()
		t.requests = append(t.requests, seen{method: r.Method, uri: r.RequestURI, header: maps.Clone(r.Header), user: who})
		t.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// under returns the requests for what is below a path.
func (t *traffic) under(path string) []seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []seen
	for _, request := range t.requests {
		if strings.HasPrefix(request.uri, path) {
			found = append(found, request)
		}
	}
	return found
}

// under returns the requests that a scripted peer has answered below a path.
func under(peer *peertest.Peer, path string) []peertest.Request {
	return slices.DeleteFunc(peer.Requests(), func(r peertest.Request) bool { return !strings.HasPrefix(r.URI, path) })
}

// auditLog is an audit backend that keeps the events.
type auditLog struct {
	mu     sync.Mutex
	events []*auditinternal.Event
}

// ProcessEvents implements audit.Backend.
func (l *auditLog) ProcessEvents(events ...*auditinternal.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range events {
		l.events = append(l.events, event.DeepCopy())
	}
	return true
}

// Run implements audit.Backend.
func (l *auditLog) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (l *auditLog) Shutdown() {}

func (l *auditLog) String() string { return "test" }

// completed returns the last events of the requests for what is below a path.
func (l *auditLog) completed(path string) []*auditinternal.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.events), func(e *auditinternal.Event) bool {
		return e.Stage != auditinternal.StageResponseComplete || !strings.HasPrefix(e.RequestURI, path)
	})
}
