package integration

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The path and the query come to the peer byte for byte.
func TestPathAndQueryPassUnchanged(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.actor("b", answering("from b"), ours("status"))
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	alice, path := a.as("alice"), ours().path("default")
	for _, target := range []string{
		"/one?a=1;b=2",
		"/one?a=%zz&b=%",
		"/one?a=b+c%20d&e==f&&g",
		"/one?limit=5&fieldSelector=a%3Db%2Cc%21%3Dd",
		"/one?",
		"?watch=0&x=1;y",
		"/o%6Ee",
		"/o%2De%3A%41",
		"/one%20two",
		"/one%25",
		"/%E2%82%AC/status",
		"/a:b@c!$&'()*,=",
		"/a{b}%7Cc|d",
		`/"a"<b>%3E?c="d"`,
		"/one/status?x=%2F",
	} {
		alice.want(http.StatusOK, http.MethodGet, path+target, "")
		got := under(b, "/apis/ours.k8s.io/")
		if uri := got[len(got)-1].URI; uri != path+target {
			t.Errorf("sent    %s\narrived %s", path+target, uri)
		}
	}
}

func TestWhatTheChainSetsIsNotDoubled(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.ready(spec{id: "b", serves: []resource{ours()}, seats: 10})
	a := c.ready(spec{id: "a", seats: 10})
	a.learns(ours())
	alice := a.as("alice")
	for _, target := range []string{"", "/missing", "?watch=true&timeoutSeconds=1"} {
		res := alice.open(http.MethodGet, ours().path("default")+target, nil)
		for _, name := range []string{"Audit-Id", "Cache-Control", "Content-Type", "Date", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"} {
			if values := res.Header[name]; len(values) != 1 {
				t.Errorf("%q: %s is %q, want one value", target, name, values)
			}
		}
		for _, name := range []string{loopHeader, "X-Kubernetes-Peer-Not-Served"} {
			if values, set := res.Header[name]; set {
				t.Errorf("%q: %s is %q, want none", target, name, values)
			}
		}
	}
}

func TestTheHeadersOfAPeersAnswerPass(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.actor("b", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1234567")
		w.Header().Set("Cache-Control", "max-age=5")
		w.Header().Set("Etag", `W/"x"`)
		w.Header()["X-Two"] = []string{"one", "two"}
		w.Header().Add("Warning", `299 - "from b"`)
		w.WriteHeader(http.StatusAccepted)
		if r.Method != http.MethodHead {
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 1234567))
		}
	}, ours())
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		got := a.as("alice").want(http.StatusAccepted, method, ours().path("default")+"/one", "", "Range", "bytes=0-", "X-Own", "one", "X-Own", "two")
		for name, want := range map[string]string{"Content-Length": "[1234567]", "Cache-Control": "[max-age=5]", "Etag": `[W/"x"]`, "X-Two": "[one two]", "Warning": `[299 - "from b"]`} {
			if values := fmt.Sprint(got.header[name]); values != want {
				t.Errorf("%s: %s is %s, want %s", method, name, values, want)
			}
		}
		if want := map[string]int{http.MethodHead: 0, http.MethodGet: 1234567}[method]; len(got.body) != want {
			t.Errorf("%s: a body of %d bytes, want %d", method, len(got.body), want)
		}
	}
	for _, request := range under(b, ours().path("default")) {
		if own := fmt.Sprint(request.Header["X-Own"], request.Header["Range"]); own != "[one two] [bytes=0-]" {
			t.Errorf("%s: the client's headers arrive as %s", request.Method, own)
		}
		if got := request.Header.Get("X-Forwarded-For"); got != "127.0.0.1" {
			t.Errorf("%s: X-Forwarded-For is %q, want the client's address", request.Method, got)
		}
		if want := strings.TrimPrefix(a.as("alice").base, "https://"); request.Host != want {
			t.Errorf("%s: the host arrives as %q, want %q", request.Method, request.Host, want)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// More than is kept for a second attempt, both ways.
func TestBigBodiesPass(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.actor("b", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Sum", fmt.Sprintf("%x", sha256.Sum256(body)))
		_, _ = w.Write(body)
		_, _ = w.Write(body)
	}, ours())
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	body := make([]byte, 10<<20)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ i>>16)
	}
	got := a.as("alice").want(http.StatusOK, http.MethodPost, ours().path("default"), string(body))
	if sum := fmt.Sprintf("%x", sha256.Sum256(body)); got.header.Get("X-Sum") != sum {
		t.Errorf("a body of sum %s arrived, want %s", got.header.Get("X-Sum"), sum)
	}
	if !bytes.Equal(got.body, append(bytes.Clone(body), body...)) {
		t.Errorf("%d bytes came back, not the right %d", len(got.body), 2*len(body))
	}
}

// The timeout filter drops trailers; a watch does not come through it.
func TestTrailersOfAWatchPass(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.actor("b", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Last")
		_, _ = io.WriteString(w, "{}\n")
		w.Header().Set("X-Last", "word")
	}, ours())
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	got := a.as("alice").want(http.StatusOK, http.MethodGet, ours().path("default")+"?watch=true", "")
	if got.trailer.Get("X-Last") != "word" {
		t.Errorf("got the trailers %v, want X-Last", got.trailer)
	}
}
