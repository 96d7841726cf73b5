package forward

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// misconfigurations are peers that can't be used, each by its reason.
func misconfigurations(t *testing.T, pki *peertest.PKI) map[transport.Reason]*peertest.Peer {
	t.Helper()
	issue := func(ca *peertest.CA, c peertest.Cert) *peertest.Peer {
		if c.DNSNames == nil {
			c.DNSNames = []string{peertest.ServerName}
		}
		return &peertest.Peer{Certificate: ca.Issue(t, c)}
	}
	now := time.Now()
	return map[transport.Reason]*peertest.Peer{
		transport.ReasonNameMismatch: issue(pki.Cluster, peertest.Cert{
			DNSNames: []string{"b.example.com"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
		}),
		transport.ReasonUnknownAuthority:  issue(peertest.NewCA(t, "other"), peertest.Cert{}),
		transport.ReasonExpired:           issue(pki.Cluster, peertest.Cert{NotAfter: now.Add(-time.Hour)}),
		transport.ReasonNotYetValid:       issue(pki.Cluster, peertest.Cert{NotBefore: now.Add(time.Hour), NotAfter: now.Add(2 * time.Hour)}),
		transport.ReasonClientCertificate: {VerifyClient: peertest.RefuseClient},
		transport.ReasonUnauthorized:      {AllowedNames: []string{"someone-else"}},
	}
}

// Case 19, and its kind. The certificates are real, and so is TLS.
func TestMisconfigurationIsNamedInMetricAndLog(t *testing.T) {
	pki := peertest.NewPKI(t)
	for reason, peer := range misconfigurations(t, pki) {
		t.Run(string(reason), func(t *testing.T) {
			peer.ID = "apiserver-b"
			w := newWorldOf(t, pki, peer)
			clock := clocktesting.NewFakeClock(time.Now())
			w.forwarder.Clock = clock
			counted := countErrors(t)
			for _, method := range []string{"GET", "POST", "DELETE"} {
				got := w.do(w.request(method, things, "body"))
				status := decodeStatus(t, got, w.forwarder.Serializer)
				if got.code != http.StatusServiceUnavailable || status.Code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" {
					t.Errorf("%s: got %d %s", method, got.code, got.body)
				}
				if strings.Contains(got.body, "certificate") || strings.Contains(got.body, "127.0.0.1") {
					t.Errorf("the client is told: %s", got.body)
				}
			}
			if got := counted(); len(got) != 1 || got[string(reason)] != 3 {
				t.Errorf("counted %v, want 3 of %s", got, reason)
			}
			wantLogged(t, w, 1, reason)
			clock.Step(59 * time.Second)
			w.do(w.request("GET", things, ""))
			wantLogged(t, w, 1, reason)
			clock.Step(2 * time.Second)
			w.do(w.request("GET", things, ""))
			wantLogged(t, w, 2, reason)
		})
	}
}

func wantLogged(t *testing.T, w *world, lines int, reason transport.Reason) {
	t.Helper()
	log := w.log.String()
	if n := strings.Count(log, "\n"); n != lines {
		t.Errorf("%d lines were logged, want %d: %s", n, lines, log)
	}
	for _, part := range []string{string(reason), reason.Remedy(), "apiserver-b"} {
		if !strings.Contains(log, part) {
			t.Errorf("the log does not say %q: %s", part, log)
		}
	}
}

// Another peer takes the request, once, and the cause is counted all the same.
func TestMisconfiguredPeerFailsNoRequest(t *testing.T) {
	pki := peertest.NewPKI(t)
	for reason, peer := range misconfigurations(t, pki) {
		t.Run(string(reason), func(t *testing.T) {
			peer.ID = "b"
			c := &peertest.Peer{ID: "c"}
			w := newWorldOf(t, pki, peer, c)
			w.forwarder.Random = func(int) int { return 0 } // b first
			counted := countErrors(t)
			for range 5 {
				if got := w.do(w.request("POST", things, "body")); got.code != http.StatusOK || got.body != "c" {
					t.Errorf("got %d %s", got.code, got.body)
				}
			}
			if n := len(c.Requests()); n != 5 {
				t.Errorf("c executed %d requests, want 5", n)
			}
			// A peer whose connection failed is a suspect, and asked no more.
			want := 1
			if reason == transport.ReasonUnauthorized {
				want = 5
			}
			if got := counted(); len(got) != 1 || got[string(reason)] != want {
				t.Errorf("counted %v, want %d of %s", got, want, reason)
			}
		})
	}
}

// Case 31. The address of a peer is that of this server, or of a load balancer
// that may choose it.
func TestAddressThatLeadsBackIsNamedInMetricAndLog(t *testing.T) {
	b := &peertest.Peer{ID: "apiserver-b"}
	w := newWorld(t, b)
	b.Handler = handler(func(rw http.ResponseWriter, r *http.Request) {
		if w.forwarder.Transport.LeadsBack(r) {
			rw.Header().Set("Connection", "close")
			RefuseMarked(rw, r, w.forwarder.Serializer)
		}
	})
	counted := countErrors(t)
	for range 3 {
		got := w.do(w.request("POST", things, "body"))
		if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" || strings.Contains(got.body, "advertise") {
			t.Errorf("got %d %s", got.code, got.body)
		}
	}
	if got := counted(); len(got) != 1 || got[string(transport.ReasonSelf)] != 3 {
		t.Errorf("counted %v", got)
	}
	wantLogged(t, w, 1, transport.ReasonSelf)
	if n := len(w.dialled()); n != 3 {
		t.Errorf("%d dials for three requests: the next connection might have led elsewhere", n)
	}
}

// Which server has answered is between servers, whoever says it.
func TestNoClientIsToldWhichServerAnswers(t *testing.T) {
	b := &peertest.Peer{ID: "b", Handler: readThenAnswer(200, http.Header{transport.ServerHeader: {"b"}}, "a thing")}
	w := newWorld(t, b)
	got := w.do(w.request("GET", things, ""))
	if named := got.header.Values(transport.ServerHeader); got.body != "a thing" || len(named) > 0 {
		t.Errorf("got %q, answered by %q", got.body, named)
	}
}
