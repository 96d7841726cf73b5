package forward

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	upstream "k8s.io/apiserver/pkg/util/peerproxy/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// countErrors starts counting anew and returns the errors counted, by reason.
func countErrors(t *testing.T) func() map[string]int {
	t.Helper()
	return count(t, "apiserver_peer_proxy_errors_total", "type")
}

// count starts counting anew and returns what was counted, by a label.
func count(t *testing.T, name, by string) func() map[string]int {
	t.Helper()
	metrics.Register()
	upstream.Reset()
	return func() map[string]int {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counted := map[string]int{}
		for _, family := range families {
			if family.GetName() != name {
				continue
			}
			for _, metric := range family.GetMetric() {
				want := map[string]string{"group": "g.example.com", "version": "v1", "resource": "things"}
				for _, label := range metric.GetLabel() {
					if label.GetName() == by {
						counted[label.GetValue()] += int(metric.GetCounter().GetValue())
						want[by] = label.GetValue()
					}
				}
				if !testutil.LabelsMatch(metric, want) {
					t.Errorf("labels %v", metric.GetLabel())
				}
			}
		}
		return counted
	}
}

// wantCounted fails the test unless this alone was counted, and once.
func wantCounted(t *testing.T, counted map[string]int, what string) {
	t.Helper()
	if len(counted) != 1 || counted[what] != 1 {
		t.Errorf("counted %v, want one %q", counted, what)
	}
}

func decodeStatus(t *testing.T, got answer, codecs runtime.NegotiatedSerializer) *metav1.Status {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), got.header.Get("Content-Type"))
	if !ok {
		t.Fatalf("answered with %q: %s", got.header.Get("Content-Type"), got.body)
	}
	status := &metav1.Status{}
	if _, kind, err := info.Serializer.Decode([]byte(got.body), nil, status); err != nil || kind.Kind != "Status" {
		t.Fatalf("%v: %q", err, got.body)
	}
	return status
}

// Case 9.
func TestDeadPeersAreAStatusWithoutAddresses(t *testing.T) {
	for _, mediaType := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
		t.Run(mediaType, func(t *testing.T) {
			b, c := &peertest.Peer{ID: "b"}, &peertest.Peer{ID: "c"}
			w := newWorld(t, b, c)
			b.Stop()
			c.Stop()
			counted := countErrors(t)
			req := w.request("POST", things, "body")
			req.Header.Set("Accept", mediaType)
			got := w.do(req)
			if got.header.Get("Content-Type") != mediaType {
				t.Errorf("answered with %q", got.header.Get("Content-Type"))
			}
			status := decodeStatus(t, got, w.forwarder.Serializer)
			if status.Code != http.StatusServiceUnavailable || status.Reason != metav1.StatusReasonServiceUnavailable {
				t.Errorf("got %v", status)
			}
			if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1" || status.Details.RetryAfterSeconds != 1 {
				t.Errorf("got %d, Retry-After %q", got.code, got.header.Get("Retry-After"))
			}
			for _, address := range []string{"127.0.0.1", "kubernetes.default"} {
				if strings.Contains(got.body, address) {
					t.Errorf("the client sees an address: %s", got.body)
				}
			}
			wantCounted(t, counted(), "dial")
		})
	}
}

// Case 25, and its kind.
func TestUserThatCannotBeSent(t *testing.T) {
	tests := []struct {
		name   string
		user   user.Info
		reason string
	}{
		{"none", nil, "no_user"},
		{"without a name", &user.DefaultInfo{Groups: []string{"g"}}, "identity"},
		{"with a padded group", &user.DefaultInfo{Name: "a", Groups: []string{"g "}}, "identity"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := &peertest.Peer{ID: "b"}
			w := newWorld(t, b)
			w.user = test.user
			counted := countErrors(t)
			got := w.do(w.request("POST", things, "body"))
			status := decodeStatus(t, got, w.forwarder.Serializer)
			if got.code != http.StatusInternalServerError || status.Reason != metav1.StatusReasonInternalError || got.header.Get("Retry-After") != "" {
				t.Errorf("got %d %s", got.code, got.body)
			}
			if len(b.Requests()) != 0 {
				t.Error("the request was sent")
			}
			wantCounted(t, counted(), test.reason)
		})
	}
}

func TestAnswersAreCountedByCode(t *testing.T) {
	w := newWorld(t, &peertest.Peer{ID: "b", Handler: readThenAnswer(http.StatusConflict, nil, "")})
	counted := count(t, "apiserver_rerouted_request_total", "code")
	w.do(w.request("POST", things, "body"))
	wantCounted(t, counted(), "409")
}

func TestUnknownOutcomeSaysSo(t *testing.T) {
	w := newWorld(t, &peertest.Peer{ID: "b", Handler: lose})
	counted := countErrors(t)
	got := w.do(w.request("POST", things, "body"))
	status := decodeStatus(t, got, w.forwarder.Serializer)
	if got.code != http.StatusGatewayTimeout || !strings.Contains(status.Message, "may or may not have been executed") {
		t.Errorf("got %d %s", got.code, got.body)
	}
	wantCounted(t, counted(), "connection_lost")
}

func TestDeadlineIs504WithoutRetryAfter(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			ended := make(chan struct{})
			b := &peertest.Peer{ID: "b", Handler: handler(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				close(ended)
			})}
			w := newWorld(t, b, &peertest.Peer{ID: "c"})
			w.candidates[1].State = snapshot.StateStarting
			w.inContext = func(ctx context.Context) context.Context {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				t.Cleanup(cancel)
				return ctx
			}
			counted := countErrors(t)
			got := w.do(w.request(method, things, "body"))
			if got.code != http.StatusGatewayTimeout || got.header.Get("Retry-After") != "" {
				t.Errorf("got %d %s", got.code, got.body)
			}
			wantCounted(t, counted(), "deadline")
			<-ended
		})
	}
}

// A body that the client does not send to its end is no fault of the peer's.
func TestBrokenClientBodyIs400(t *testing.T) {
	b, c := &peertest.Peer{ID: "b"}, &peertest.Peer{ID: "c"}
	w := newWorld(t, b, c)
	conn := w.dialFront()
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST "+things+" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nnot a chunk\r\n")
	got := readAnswer(t, conn)
	var status metav1.Status
	if err := json.Unmarshal([]byte(got.body), &status); err != nil || got.code != http.StatusBadRequest || status.Reason != metav1.StatusReasonBadRequest {
		t.Errorf("got %d %s", got.code, got.body)
	}
	if log := w.log.String(); log != "" {
		t.Errorf("logged: %s", log)
	}
}

// A request that can't be written fails for good, and is no fault of the peers'.
func TestRequestThatCannotBeWrittenIs400(t *testing.T) {
	tests := map[string]string{
		"too many headers": "POST " + things + " HTTP/1.1\r\nHost: a\r\nX-Long: " + strings.Repeat("x", 8<<10) + "\r\nContent-Length: 4\r\n\r\nbody",
		"odd trailer":      "POST " + things + " HTTP/1.1\r\nHost: a\r\nTrailer: a b\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			var peers []*peertest.Peer
			for _, id := range []string{"b", "c", "d"} {
				peers = append(peers, &peertest.Peer{ID: id, MaxHeaderBytes: 4 << 10})
			}
			w := newWorld(t, peers...)
			all := w.candidates
			for i := range all {
				// After it the peer's settings are known.
				w.candidates = all[i : i+1]
				w.do(w.request("GET", things, ""))
			}
			w.candidates = all
			counted := countErrors(t)
			conn := w.dialFront()
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, text)
			got := readAnswer(t, conn)
			if status := decodeStatus(t, got, w.forwarder.Serializer); got.code != http.StatusBadRequest || status.Reason != metav1.StatusReasonBadRequest || got.header.Get("Retry-After") != "" {
				t.Errorf("got %d %s", got.code, got.body)
			}
			wantCounted(t, counted(), "bad_request")
			if log := w.log.String(); log != "" {
				t.Errorf("logged: %s", log)
			}
			for _, peer := range peers {
				if n := len(peer.Requests()); n != 1 {
					t.Errorf("%s executed %d requests", peer.ID, n-1)
				}
			}
		})
	}
}

func TestARefusalIsCountedAndSaysWhy(t *testing.T) {
	countErrors(t)
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "/apis/g.example.com/v1/things", http.NoBody)
	info := &apirequest.RequestInfo{APIGroup: "g.example.com", APIVersion: "v1", Resource: "things"}
	Refuse(recorder, request.WithContext(apirequest.WithRequestInfo(request.Context(), info)), peertest.Codecs())
	if recorder.Code != http.StatusServiceUnavailable || recorder.Header().Get("Retry-After") == "" || !strings.Contains(recorder.Body.String(), "not known at the moment which server") {
		t.Errorf("got %d %v %s", recorder.Code, recorder.Header(), recorder.Body)
	}
	const want = `
# HELP apiserver_peer_proxy_errors_total [ALPHA] Total number of errors encountered while proxying requests to a peer kube apiserver
# TYPE apiserver_peer_proxy_errors_total counter
apiserver_peer_proxy_errors_total{group="",resource="",type="unknown",version=""} 1
`
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), "apiserver_peer_proxy_errors_total"); err != nil {
		t.Error(err)
	}
}

func TestMayGoOn(t *testing.T) {
	tests := []struct {
		reason    reason
		get, post bool
	}{
		{reasonRefused, true, true},
		{reasonNotServed, true, true},
		{reasonUnauthorized, true, true},
		{reasonUnready, true, true},
		{reason(transport.ReasonNotSent), true, true},
		{reasonLost, true, false},
		{reasonBadRequest, false, false},
		{reasonDeadline, false, false},
		{reasonShutdown, false, false},
		{reasonClientGone, false, false},
		{reasonClientBody, false, false},
	}
	for _, test := range tests {
		if get, post := test.reason.mayGoOn("GET"), test.reason.mayGoOn("POST"); get != test.get || post != test.post {
			t.Errorf("%s: GET %t, POST %t", test.reason, get, post)
		}
	}
}
