package forward

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/audit"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

func TestPathAndQueryArriveByteForByte(t *testing.T) {
	targets := []string{
		things,
		things + "?",
		things + "?a=b&c",
		things + "?labelSelector=a%3Db%2Cc&b=a;c&c=%zz&d=a+b&e=%41",
		things + "?z=1&a=2&z=3",
		things + "/a%2Fb",
		things + "/a%2fb",
		things + "/%41%7E~",
		things + "/a;b,c=d:e@f!$&'()*+",
		things + "/a//b/",
		things + "/./a/../b",
		things + "/\"quoted\"|{}^`<>",
		things + "/ümläut%C3%BC",
		things + "/%20",
		things + "/%00",
		things + "/[x]",
		"//apis/g/v1/x",
		"//apis/g/v1/a%2Fb",
	}
	for _, http1 := range []bool{false, true} {
		b := &peertest.Peer{ID: "b", HTTP1: http1}
		w := newWorld(t, b)
		for i, target := range targets {
			t.Run(fmt.Sprintf("%s/http1=%t", target, http1), func(t *testing.T) {
				conn := w.dialFront()
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				if got := readAnswer(t, conn); got.code != http.StatusOK {
					t.Errorf("got %d %s", got.code, got.body)
				}
				requests := b.Requests()
				if len(requests) != i+1 {
					t.Fatal("not sent")
				}
				if got := requests[i].URI; got != target {
					t.Errorf("sent as %q", got)
				}
			})
		}
	}
}

func FuzzPathAndQuery(f *testing.F) {
	f.Add("/apis/g/v1/x", "a=b")
	f.Add("/apis/g/v1/a%2Fb\"", "a=%zz;b")
	seen := make(chan string, 1)
	b := &peertest.Peer{ID: "b", Handler: handler(func(_ http.ResponseWriter, r *http.Request) { seen <- r.RequestURI })}
	w := newWorld(f, b)
	var arrived string
	front := httptest.NewServer(handler(func(rw http.ResponseWriter, r *http.Request) {
		arrived = r.RequestURI
		ctx := apirequest.WithRequestInfo(r.Context(), &apirequest.RequestInfo{})
		w.forwarder.Forward(rw, r.WithContext(apirequest.WithUser(ctx, alice)), w.candidates)
	}))
	f.Cleanup(front.Close)
	f.Fuzz(func(t *testing.T, path, query string) {
		target := path + "?" + query
		if strings.ContainsAny(target, " \r\n") || !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") {
			return
		}
		rec := exchangeRaw(t, front.Listener.Addr().String(), "GET "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if rec.StatusCode != http.StatusOK {
			return // not a request that A takes
		}
		if got := <-seen; got != arrived || got != target {
			t.Errorf("%q came to A as %q and to B as %q", target, arrived, got)
		}
	})
}

func TestRequestHeaders(t *testing.T) {
	b := &peertest.Peer{ID: "b"}
	w := newWorld(t, b)
	req := w.request("GET", things, "")
	req.Host = "api.example.com:443"
	req.Header = http.Header{
		"Accept":                    {"application/json", "*/*;q=0.1"},
		"Accept-Encoding":           {"gzip, zstd"},
		"User-Agent":                {"kubectl/v1"},
		"X-Custom":                  {"1", "2"},
		"Forwarded":                 {"for=192.0.2.1"},
		"X-Forwarded-For":           {"192.0.2.1", "192.0.2.2"},
		"X-Forwarded-Host":          {"h"},
		"X-Forwarded-Proto":         {"https"},
		"Traceparent":               {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Audit-Id":                  {"the client's"},
		"Authorization":             {"Bearer secret"},
		"X-Remote-User":             {"root"},
		"X-Remote-Group":            {"system:masters"},
		"X-Corp-User":               {"root"},
		"Impersonate-User":          {"root"},
		"X-Kubernetes-Peer-Proxied": {"false", "0"},
		"Keep-Alive":                {"5"},
		"Proxy-Authorization":       {"Basic x"},
	}
	w.doWith(w.h1(), req)
	got := b.Requests()[0]
	if got.Host != "api.example.com:443" {
		t.Errorf("Host %q", got.Host)
	}
	want := http.Header{
		"Accept":                    {"application/json", "*/*;q=0.1"},
		"Accept-Encoding":           {"gzip, zstd"},
		"User-Agent":                {"kubectl/v1"},
		"X-Custom":                  {"1", "2"},
		"Forwarded":                 {"for=192.0.2.1"},
		"X-Forwarded-For":           {"192.0.2.1, 192.0.2.2, 127.0.0.1"},
		"X-Forwarded-Host":          {"h"},
		"X-Forwarded-Proto":         {"https"},
		"Traceparent":               {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Audit-Id":                  {string(peertest.AuditID)},
		"X-Kubernetes-Peer-Proxied": {"true"},
		"X-Remote-User":             {"alice"},
		"X-Remote-Uid":              {"a1"},
		"X-Remote-Group":            {"devs", "system:authenticated"},
		// The key is example.com/Key.
		"X-Remote-Extra-Example.com%2f%4bey": {"v"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Error(diff)
	}
}

// A client can't have headers removed by naming them hop-by-hop.
func TestConnectionHeaderRemovesNoneOfOurs(t *testing.T) {
	b := &peertest.Peer{ID: "b"}
	w := newWorld(t, b)
	conn := w.dialFront()
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "GET "+things+" HTTP/1.1\r\nHost: a\r\nConnection: close, X-Remote-User, X-Kubernetes-Peer-Proxied, X-Hop\r\nX-Hop: 1\r\n\r\n")
	readAnswer(t, conn)
	h := b.Requests()[0].Header
	if h.Get("X-Remote-User") != "alice" || h.Get("X-Kubernetes-Peer-Proxied") != "true" || h.Get("X-Hop") != "" {
		t.Errorf("sent %v", h)
	}
}

func TestResponseHeadersReplaceTheChains(t *testing.T) {
	b := &peertest.Peer{ID: "b", Handler: readThenAnswer(http.StatusConflict, http.Header{
		"Audit-Id":                       {"the peer's"},
		"Cache-Control":                  {"public"},
		"X-Kubernetes-Pf-Flowschema-Uid": {"the peer's"},
		"Content-Type":                   {"application/x"},
		"X-Custom":                       {"1", "2"},
		"Warning":                        {`299 - "the peer's"`},
		"Retry-After":                    {"7"},
	}, "conflict")}
	w := newWorld(t, b)
	front := peertest.Front(t, peertest.Chain(t, alice, handler(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Warning", `299 - "the chain's"`)
		rw.Header().Set("Strict-Transport-Security", "max-age=1")
		w.forwarder.Forward(rw, r, w.candidates)
	})))
	w.front = front
	got := w.do(w.request("POST", things, "body"))
	if got.code != http.StatusConflict || got.body != "conflict" {
		t.Errorf("got %d %s", got.code, got.body)
	}
	got.header.Del("Date")
	want := http.Header{
		"Audit-Id":                       {"the peer's"},
		"Cache-Control":                  {"public"},
		"X-Kubernetes-Pf-Flowschema-Uid": {"the peer's"},
		"Content-Type":                   {"application/x"},
		"Content-Length":                 {"8"},
		"X-Custom":                       {"1", "2"},
		"Warning":                        {`299 - "the chain's"`, `299 - "the peer's"`},
		"Retry-After":                    {"7"},
		"Strict-Transport-Security":      {"max-age=1"},
	}
	if diff := cmp.Diff(want, got.header); diff != "" {
		t.Error(diff)
	}
}

// Case 36. What comes with the 103 is not part of the answer either.
func TestEarlyHintsAreSwallowed(t *testing.T) {
	b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","details":{"name":"a"},"code":404}`)
	})}
	w := newWorld(t, b)
	var codes []int
	w.front = peertest.Front(t, peertest.Chain(t, alice, handler(func(rw http.ResponseWriter, r *http.Request) {
		w.forwarder.Forward(&codeRecorder{ResponseWriter: rw, codes: &codes}, r, w.candidates)
	})))
	got := w.do(w.request("GET", things, ""))
	if got.code != http.StatusNotFound || len(codes) != 1 {
		t.Errorf("got %d, the chain saw %v", got.code, codes)
	}
	if got.header.Get("Link") != "" || got.header.Get("Audit-Id") != string(peertest.AuditID) {
		t.Errorf("headers %v", got.header)
	}
}

// Interim answers count with the headers of the final one. These peers answer 200
// unless they are cut off.
func TestHeadersWithoutEndAreCutOff(t *testing.T) {
	const most = 8 << 20
	for name, send := range map[string]func(http.ResponseWriter, *http.Request){
		"interim answers": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", strings.Repeat("x", 1<<10))
			for sent := 0; sent < most && r.Context().Err() == nil; sent += 1 << 10 {
				w.WriteHeader(http.StatusEarlyHints)
			}
		},
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 2 << 10 {
				w.Header().Set(fmt.Sprintf("X-Custom-%d", i), strings.Repeat("x", 1<<10))
			}
		},
		"one header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Custom", strings.Repeat("x", 2<<20))
		},
	} {
		for _, http1 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http1=%t", name, http1), func(t *testing.T) {
				w := newWorld(t, &peertest.Peer{ID: "b", HTTP1: http1, Handler: handler(send)})
				got := w.do(w.request("GET", things, ""))
				if got.code != http.StatusServiceUnavailable || !strings.Contains(got.body, `"kind":"Status"`) || len(got.header) > 10 {
					t.Errorf("got %d %.200s, %d headers", got.code, got.body, len(got.header))
				}
			})
		}
	}
}

// A peer that names a header hop-by-hop takes away its own, not the chain's.
func TestHopByHopHeadersOfAnAnswerStayBehind(t *testing.T) {
	b := &peertest.Peer{ID: "b", HTTP1: true, Handler: readThenAnswer(http.StatusOK, http.Header{
		"Connection":         {"Audit-Id, X-Hop"},
		"Audit-Id":           {"the peer's"},
		"X-Hop":              {"1"},
		"Keep-Alive":         {"timeout=5"},
		"Proxy-Authenticate": {"Basic"},
		"Content-Type":       {"application/x"},
		"X-Custom":           {"1"},
	}, "body")}
	w := newWorld(t, b)
	got := w.doWith(w.h1(), w.request("GET", things, ""))
	got.header.Del("Date")
	want := http.Header{
		"Audit-Id":                       {string(peertest.AuditID)},
		"Cache-Control":                  {"no-cache, private"},
		"X-Kubernetes-Pf-Flowschema-Uid": {"local"},
		"Content-Type":                   {"application/x"},
		"Content-Length":                 {"4"},
		"X-Custom":                       {"1"},
	}
	if diff := cmp.Diff(want, got.header); diff != "" {
		t.Error(diff)
	}
}

type codeRecorder struct {
	http.ResponseWriter
	codes *[]int
}

func (w *codeRecorder) WriteHeader(code int) {
	*w.codes = append(*w.codes, code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *codeRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestHead(t *testing.T) {
	b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1234")
		w.Header().Set("Etag", `"e"`)
	})}
	w := newWorld(t, b)
	got := w.do(w.request("HEAD", things, ""))
	if got.code != http.StatusOK || got.header.Get("Content-Length") != "1234" || got.header.Get("Etag") != `"e"` || got.body != "" {
		t.Errorf("got %+v", got)
	}
	if method := b.Requests()[0].Method; method != "HEAD" {
		t.Errorf("sent as %s", method)
	}
}

func TestTrailers(t *testing.T) {
	b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Announced")
		_, _ = io.WriteString(w, "body")
		// With a length HTTP/1.1 has no room for trailers.
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("Announced", "1")
		w.Header().Set(http.TrailerPrefix+"Unannounced", "2")
	})}
	w := newWorld(t, b)
	for name, client := range map[string]*http.Client{"h2": w.front.Client(), "h1": w.h1()} {
		got := w.doWith(client, w.request("GET", things, ""))
		if got.body != "body" || got.trailer.Get("Announced") != "1" || got.trailer.Get("Unannounced") != "2" {
			t.Errorf("%s: got %q, trailer %v", name, got.body, got.trailer)
		}
	}
}

func TestCompressedAnswerPassesUnchanged(t *testing.T) {
	var compressed bytes.Buffer
	zip := gzip.NewWriter(&compressed)
	_, _ = io.WriteString(zip, strings.Repeat("body", 1000))
	_ = zip.Close()
	b := &peertest.Peer{ID: "b", Handler: handler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", r.Header.Get("Accept-Encoding"))
		_, _ = w.Write(compressed.Bytes())
	})}
	w := newWorld(t, b)
	req := w.request("GET", things, "")
	req.Header.Set("Accept-Encoding", "gzip")
	got := w.do(req)
	if got.header.Get("Content-Encoding") != "gzip" || got.body != compressed.String() {
		t.Errorf("got %d bytes, encoding %q", len(got.body), got.header.Get("Content-Encoding"))
	}
}

// Case 18.
func TestPeerAtAnIPv6Address(t *testing.T) {
	w := newWorld(t, &peertest.Peer{ID: "b", Listen: "[::1]:0"})
	if got := w.do(w.request("GET", things, "")); got.body != "b" {
		t.Errorf("got %d %s", got.code, got.body)
	}
}

func TestAuditAnnotationNamesThePeer(t *testing.T) {
	b, c := &peertest.Peer{ID: "apiserver-b"}, &peertest.Peer{ID: "apiserver-c"}
	w := newWorld(t, b, c)
	w.candidates[1].State = snapshot.StateUnreachable
	b.Stop()
	var annotations map[string]string
	w.front = peertest.Front(t, peertest.Chain(t, alice, handler(func(rw http.ResponseWriter, r *http.Request) {
		w.forwarder.Forward(rw, r, w.candidates)
		annotations = audit.AuditContextFrom(r.Context()).GetEventAnnotations()
	})))
	w.do(w.request("GET", things, ""))
	if diff := cmp.Diff(map[string]string{peerAnnotation: "apiserver-c"}, annotations); diff != "" {
		t.Error(diff)
	}
}

func exchangeRaw(t testing.TB, address, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, request)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res
}
