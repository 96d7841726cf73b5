package integration

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiserver/pkg/server/options"

	"peerproxy.internal/test/cluster"
	"peerproxy.internal/test/peertest"
)

const loopHeader = "X-Kubernetes-Peer-Proxied"

// front stands before a server, at the address that others know it by. What it
// says of the server's resources may be a lie; all other requests it passes on
// as they are, and as a peer.
type front struct {
	*peertest.Peer
	behind atomic.Pointer[server]
}

// front starts a front that tells of the given groups.
func (c *cell) front(id string, groups []apidiscoveryv2.APIGroupDiscovery) *front {
	c.t.Helper()
	f := &front{}
	pair, err := c.cluster.FrontProxyCA.Issue("front"+c.prefix[1:]+"-"+id, cluster.ClientLeaf(peerName))
	if err != nil {
		c.t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.cluster.CA.PEM())
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: peertest.ServerName},
		ForceAttemptHTTP2: true,
	}
	c.t.Cleanup(transport.CloseIdleConnections)
	pass := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "https", Host: f.behind.Load().address})
		},
	}
	f.Peer = c.listen(&peertest.Peer{ID: id, Handler: discovering(groups, pass.ServeHTTP)})
	return f
}

// servesBehind starts a server behind the front.
func (f *front) ready(c *cell, s spec) *server {
	c.t.Helper()
	s.advertise = f.Address()
	server := c.start(s)
	f.behind.Store(server)
	eventually(c.t, s.id+" has published its record", func() bool { return c.get(c.recordKey(s.id)) != nil })
	return server
}

// A and B each believe that the other serves what neither does. Whatever a
// client says of it, the request makes one hop.
func TestARequestMakesOneHopWhateverServersBelieveOfEachOther(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	mirage := resource{group: "mirage.k8s.io", name: "things"}
	frontA, frontB := c.front("a", documentOf(mirage)), c.front("b", documentOf(mirage))
	a, b := frontA.ready(c, spec{id: "a"}), frontB.ready(c, spec{id: "b"})
	a.sees("b", frontB.Address())
	b.sees("a", frontA.Address())
	a.learns(mirage)
	b.learns(mirage)
	path, alice := mirage.path("default"), a.as("alice")
	hops := 0
	for name, headers := range map[string][]string{
		"nothing":        nil,
		"false":          {loopHeader, "false"},
		"true":           {loopHeader, "true"},
		"two words":      {loopHeader, "false", loopHeader, "no"},
		"in lower case":  {"x-kubernetes-peer-proxied", "false"},
		"an empty value": {loopHeader, ""},
	} {
		t.Log("a client that says " + name)
		alice.wantRetry(http.MethodGet, path, "", headers...)
		alice.wantRetry(http.MethodPost, path, mirage.thing(t, "one", ""), headers...)
		hops += 2
		toB := under(frontB.Peer, path)
		if len(toB) != hops || len(under(frontA.Peer, path)) != 0 {
			t.Fatalf("%d requests in all went to B and %d to A, want %d and none", len(toB), len(under(frontA.Peer, path)), hops)
		}
		if got := toB[hops-1].Header[loopHeader]; len(got) != 1 || got[0] != "true" {
			t.Errorf("the loop header is %q, want true", got)
		}
	}
	if n := len(a.local.under(path)) + len(b.local.under(path)); n != 0 {
		t.Errorf("%d requests reached the servers' own handlers, want none", n)
	}
}

// B knows for sure that no one serves it: it says so, and A believes its word
// before its document.
func TestAPeerThatDoesNotServeItSaysSo(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	mirage := resource{group: "mirage.k8s.io", name: "things"}
	frontB := c.front("b", documentOf(mirage))
	a, b := c.ready(spec{id: "a"}), frontB.ready(c, spec{id: "b"})
	a.learns(mirage)
	b.settles()
	path := mirage.path("default")
	a.as("alice").wantRetry(http.MethodGet, path, "")
	a.as("alice").wantRetry(http.MethodPost, path, mirage.thing(t, "one", ""))
	reached := b.local.under(path)
	if len(reached) != 2 {
		t.Fatalf("%d requests reached B's own handlers, want 2", len(reached))
	}
	for _, request := range reached {
		if got, set := request.header[loopHeader]; set {
			t.Errorf("B's own handlers see the loop header %q", got)
		}
	}
}

// settles waits until the server is sure of what no one serves.
func (s *server) settles() {
	s.t.Helper()
	s.admin().until(http.StatusNotFound, http.MethodGet, "/apis/nobody.k8s.io/v1/things")
}

func TestTheLoopHeaderOfAnOrdinaryClientMeansNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.ready(spec{id: "b", serves: []resource{ours()}})
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	path, alice := ours().path("default"), a.as("alice")
	alice.want(http.StatusOK, http.MethodGet, path, "", loopHeader, "true")
	alice.want(http.StatusOK, http.MethodGet, path, "", loopHeader, "false", loopHeader, "true")
	for _, request := range b.arrived.under(path) {
		if got := request.header[loopHeader]; len(got) != 1 || got[0] != "true" {
			t.Errorf("the loop header arrives as %q, want true once", got)
		}
	}
	// The merged document, not the local one.
	if !alice.document("/apis", loopHeader, "true").lists(t, ours()) {
		t.Error("the client is given the local document")
	}
	// What is served here, too, is served without the header.
	for _, headers := range [][]string{{loopHeader, "true"}, {loopHeader, "false", loopHeader, ""}} {
		alice.want(http.StatusOK, http.MethodGet, common[1].path("default"), "", headers...)
	}
	for _, s := range []*server{a, b} {
		for _, request := range s.local.under("/") {
			if got, set := request.header[loopHeader]; set {
				t.Errorf("%s's own handlers see the loop header %q of %s", s.spec.id, got, request.uri)
			}
		}
	}
}

// Where one CA issues the certificates of users and of peers, the name alone tells
// them apart.
func TestTheLoopHeaderOfANameThatIsNotAllowedMeansNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.ready(spec{id: "b", serves: []resource{ours()}})
	a := c.ready(spec{id: "a", requestHeaders: func(o *options.RequestHeaderAuthenticationOptions) { o.ClientCAFile = c.cluster.CA.File() }})
	a.learns(ours())
	other := a.as("other")
	other.want(http.StatusOK, http.MethodGet, ours().path("default"), "", loopHeader, "true")
	if taken := b.local.under(ours().path("default")); len(taken) != 1 || taken[0].user.GetName() != "other" {
		t.Errorf("the peer took %v, want one request of the user other", taken)
	}
	if !other.document("/apis", loopHeader, "true").lists(t, ours()) {
		t.Error("the client is given the local document")
	}
	// Of the very same CA, with the name of a peer.
	if a.as(peerName).document("/apis", "X-Remote-User", "alice", loopHeader, "true").lists(t, ours()) {
		t.Error("a peer is given the merged document")
	}
}

// To a peer a server answers for itself alone.
func TestAPeerIsToldWhatThisServerAloneServes(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.ready(spec{id: "b", serves: []resource{ours()}})
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	pair, err := c.cluster.FrontProxyCA.Issue("apeer"+c.prefix[1:], cluster.ClientLeaf(peerName))
	if err != nil {
		t.Fatal(err)
	}
	peer := a.with(pair)
	asAlice := []string{"X-Remote-User", "alice", loopHeader, "true"}
	if peer.document("/apis", asAlice...).lists(t, ours()) {
		t.Error("a peer is given the merged document")
	}
	peer.wantRetry(http.MethodGet, ours().path("default"), "", asAlice...)
	peer.want(http.StatusOK, http.MethodGet, common[1].path("default"), "", asAlice...)
}
