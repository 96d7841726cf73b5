package discovery

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// body is a list with one group that holds one resource.
func body(group, resource string) string {
	return fmt.Sprintf(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":%q},"versions":[{"version":"v1","resources":[{"resource":%q,"verbs":["get"]}]}]}]}`, group, resource)
}

// peer answers requests with a function.
type peer func(*http.Request) *http.Response

func (p peer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if response := p(r); response != nil {
		return response, nil
	}
	return nil, errors.New("connection refused")
}

func answerWith(status int, contentType, etag, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}, "Etag": {etag}}, Body: io.NopCloser(strings.NewReader(body))}
}

// good answers both paths.
func good(r *http.Request) *http.Response {
	if r.URL.Path == "/api" {
		return answerWith(200, v2, `"core"`, body("", "pods"))
	}
	return answerWith(200, v2, `"groups"`, body("apps", "deployments"))
}

func server(p peer) Server {
	return Server{ID: "b", Incarnation: "b_1", Host: "192.0.2.1:6443", Transport: p}
}

func TestFetchTakesADocument(t *testing.T) {
	document, err := server(good).fetch(t.Context(), nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if document.ServerID != "b" || document.Incarnation != "b_1" || document.Core.ServerETag != "core" || document.Groups.ServerETag != "groups" ||
		document.Core.Items[0].Versions[0].Resources[0].Resource != "pods" || document.Groups.Items[0].Name != "apps" {
		t.Errorf("got %+v", document)
	}
}

func TestFetchAsksAsStockServersDo(t *testing.T) {
	var asked []*http.Request
	_, err := server(func(r *http.Request) *http.Response { asked = append(asked, r); return good(r) }).fetch(t.Context(), nil, clock.RealClock{})
	if err != nil || len(asked) != 2 {
		t.Fatal(err, asked)
	}
	for i, path := range []string{"/api", "/apis"} {
		if got := asked[i].URL.String(); got != "https://192.0.2.1:6443"+path {
			t.Errorf("asked %s", got)
		}
		if got := strings.Split(asked[i].Header.Get("Accept"), ","); len(got) != 3 || got[0] != v2+";profile=nopeer" || got[1] != v2 {
			t.Errorf("accepts %q", got)
		}
		if got := asked[i].Header.Get(transport.ServerHeader); got != "b" {
			t.Errorf("asks %q, want b", got)
		}
	}
}

func TestFetchKeepsWhatHasNotChanged(t *testing.T) {
	last, err := server(good).fetch(t.Context(), nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	next, err := server(func(r *http.Request) *http.Response {
		if r.Header.Get("If-None-Match") == `"core"` {
			return answerWith(304, "", "", "")
		}
		return answerWith(200, v2, `"newer"`, body("apps", "daemonsets"))
	}).fetch(t.Context(), last, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if &next.Core.Items[0] != &last.Core.Items[0] || next.Groups.ServerETag != "newer" || next.SameContent(last) || next.Checked.Before(last.Checked) {
		t.Errorf("got %+v", next)
	}
}

// What is no document leaves the last good one in force: the fetch is an error.
func TestFetchRefusesWhatIsNoDocument(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer func(*http.Request) *http.Response
		want   string
	}{
		{"refused", func(*http.Request) *http.Response { return nil }, "connection refused"},
		{"an error", func(*http.Request) *http.Response { return answerWith(500, v2, "", body("", "pods")) }, "status 500"},
		{"404", func(*http.Request) *http.Response { return answerWith(404, "text/plain", "", "404 page not found") }, "status 404"},
		{"a redirect", func(*http.Request) *http.Response { return answerWith(302, v2, "", "") }, "status 302"},
		{"304 without a question", func(*http.Request) *http.Response { return answerWith(304, v2, "", "") }, "status 304"},
		{"a legacy list", func(*http.Request) *http.Response {
			return answerWith(200, "application/json", "", `{"kind":"APIGroupList"}`)
		}, "content type"},
		{"protobuf", func(*http.Request) *http.Response {
			return answerWith(200, strings.Replace(v2, "json", "vnd.kubernetes.protobuf", 1), "", "k8s")
		}, "content type"},
		{"no content type", func(*http.Request) *http.Response { return answerWith(200, "", "", body("", "pods")) }, "content type"},
		{"cut short", func(*http.Request) *http.Response { return answerWith(200, v2, "", body("", "pods")[:40]) }, "decode"},
		{"a later version of the API", func(*http.Request) *http.Response {
			return answerWith(200, strings.Replace(v2, "v=v2", "v=v3", 1), "", body("", "pods"))
		}, "content type"},
		{"more objects than a server can have", func(*http.Request) *http.Response {
			return answerWith(200, v2, "", `{"kind":"APIGroupDiscoveryList","items":[`+strings.Repeat("{},", maxObjects)+"{}]}")
		}, "more than"},
		{"a named group at /api", func(*http.Request) *http.Response { return answerWith(200, v2, "", body("apps", "deployments")) }, "does not belong"},
		{"an unnamed group at /apis", func(*http.Request) *http.Response { return answerWith(200, v2, "", body("", "pods")) }, "/apis"},
		{"a group that is there twice", func(*http.Request) *http.Response {
			return answerWith(200, v2, "", `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{}},{"metadata":{}}]}`)
		}, "twice"},
		{"another kind", func(*http.Request) *http.Response { return answerWith(200, v2, "", `{"kind":"Status"}`) }, "kind"},
		{"too large", func(*http.Request) *http.Response {
			r := answerWith(200, v2, "", "")
			r.Body = io.NopCloser(endless{})
			return r
		}, "larger than"},
		{"slow", func(r *http.Request) *http.Response {
			response := answerWith(200, v2, "", "")
			response.Body = peertest.Trickle{Context: r.Context()}
			return response
		}, "no complete answer in 5s"},
		{"nested deep", func(*http.Request) *http.Response {
			return answerWith(200, v2, "", `{"kind":"APIGroupDiscoveryList","x":`+strings.Repeat("[", maxElements)+strings.Repeat("]", maxElements)+"}")
		}, "decode"},
		{"compressed, which no one asked for", func(*http.Request) *http.Response {
			response := answerWith(200, v2, "", compressed(body("", "pods")))
			response.Header.Set("Content-Encoding", "gzip")
			return response
		}, "decode"},
		{"the second list is bad", func(r *http.Request) *http.Response {
			if r.URL.Path == "/apis" {
				return nil
			}
			return good(r)
		}, "/apis"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				document, err := server(tc.answer).fetch(t.Context(), nil, clock.RealClock{})
				if err == nil || !strings.Contains(err.Error(), tc.want) || document != nil {
					t.Errorf("got %v, %v; want an error with %q", document, err, tc.want)
				}
				if took := time.Since(began); took > fetchTimeout {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func compressed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

// A server that sends one tag for two contents fools no one.
func TestAListIsKnownByItsContent(t *testing.T) {
	header := http.Header{"Content-Type": {v2}, "Etag": {`"always"`}}
	one, err := decode(snapshot.PathAPI, header, []byte(body("", "pods")))
	if err != nil {
		t.Fatal(err)
	}
	other, err := decode(snapshot.PathAPI, header, []byte(body("", "nodes")))
	if err != nil || one.ETag == "" || one.ETag == other.ETag {
		t.Errorf("got tags %q and %q, %v", one.ETag, other.ETag, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(v2, `"x"`, []byte(body("", "pods")))
	f.Add("application/json", "", []byte("{}"))
	f.Add(v2, "W/", []byte(`{"kind":"APIGroupDiscoveryList","items":[{}]}`))
	f.Fuzz(func(t *testing.T, contentType, etag string, body []byte) {
		list, err := decode(snapshot.PathAPI, http.Header{"Content-Type": {contentType}, "Etag": {etag}}, body)
		if (list == nil) == (err == nil) {
			t.Errorf("got %v and %v", list, err)
		}
		if list != nil && list.ETag == "" {
			t.Error("a list without tag")
		}
	})
}

func TestPause(t *testing.T) {
	for _, tc := range []struct {
		failures int
		want     time.Duration
	}{{0, 10 * time.Second}, {1, 250 * time.Millisecond}, {2, 500 * time.Millisecond}, {6, 8 * time.Second}, {7, 10 * time.Second}, {1000, 10 * time.Second}} {
		if got := pause(tc.failures); got != tc.want {
			t.Errorf("after %d failures: %v, want %v", tc.failures, got, tc.want)
		}
	}
}

func TestPollsAreSpreadByATenth(t *testing.T) {
	least := Poller{Random: func(int) int { return 0 }}
	most := Poller{Random: func(n int) int { return n - 1 }}
	if low, high := least.spread(10*time.Second), most.spread(10*time.Second); low != 9*time.Second || high != 11*time.Second-1 {
		t.Errorf("they go from %v to %v", low, high)
	}
}

func TestPollerKeepsAskingAndKeepsTheLastGoodDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var broken atomic.Bool
		var fetches, delivered atomic.Int32
		p := Poller{
			Server: server(func(r *http.Request) *http.Response {
				fetches.Add(1)
				if broken.Load() {
					return nil
				}
				return good(r)
			}),
			Deliver: func(*snapshot.Document) { delivered.Add(1) },
			Clock:   clock.RealClock{},
			Random:  rand.IntN,
		}
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		synctest.Wait()
		if delivered.Load() != 1 {
			t.Fatal("the first document did not come at once")
		}
		time.Sleep(12 * time.Second)
		if delivered.Load() != 2 {
			t.Errorf("%d documents in 12 s, want 2", delivered.Load())
		}
		broken.Store(true)
		fetches.Store(0)
		time.Sleep(time.Hour)
		if got := fetches.Load(); got < 300 || got > 420 {
			t.Errorf("%d fetches in an hour of failures, want about 360", got)
		}
		if delivered.Load() != 2 {
			t.Error("a failure delivered a document")
		}
		broken.Store(false)
		time.Sleep(12 * time.Second)
		if delivered.Load() < 3 {
			t.Error("no document after the peer's return")
		}
		stop()
		<-done
	})
}

func TestPollerAsksAgainSoonAfterAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var asked []time.Duration
		began := time.Now()
		p := Poller{
			Server:  server(good),
			Deliver: func(*snapshot.Document) { asked = append(asked, time.Since(began)) },
			Touched: dirty.New(),
			Clock:   clock.RealClock{},
			Random:  rand.IntN,
		}
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		time.Sleep(2 * time.Second)
		p.Touched.Raise()
		time.Sleep(2 * time.Second)
		stop()
		<-done
		if len(asked) != 3 || asked[1] != 2300*time.Millisecond || asked[2] != 3*time.Second {
			t.Errorf("asked at %v, want 0, 2.3 s and 3 s", asked)
		}
	})
}

// A peer that takes the connection and never answers costs its own poller the
// deadline, and no one else anything.
func TestPollerGivesUpOnASilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var asked []time.Duration
		began := time.Now()
		silent := roundTripper(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, time.Since(began))
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		p := Poller{Server: Server{ID: "b", Host: "b", Transport: silent}, Deliver: func(*snapshot.Document) { t.Error("a document") }, Clock: clock.RealClock{}, Random: rand.IntN}
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		time.Sleep(6 * time.Second)
		stop()
		<-done
		if len(asked) != 2 || asked[1] < 5*time.Second || asked[1] > 6*time.Second {
			t.Errorf("asked at %v, want again soon after the deadline of 5 s", asked)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// local is a server whose document a test changes.
type localServer struct {
	resource atomic.Pointer[string]
	reads    atomic.Int32
}

func (s *localServer) serves(resource string) { s.resource.Store(&resource) }

func (s *localServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := *s.resource.Load()
	if r.URL.Path == "/apis" {
		s.reads.Add(1)
	}
	w.Header().Set("Etag", `"`+resource+`"`)
	if r.Header.Get("If-None-Match") == `"`+resource+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", v2)
	group := ""
	if r.URL.Path == "/apis" {
		group = "apps"
	}
	io.WriteString(w, body(group, resource))
}

func newLocal() (*Local, *localServer) {
	s := &localServer{}
	s.serves("one")
	return &Local{Server: Server{ID: "a", Host: "local", Transport: InProcess(s)}, Touched: dirty.New(), Changed: dirty.New(), Clock: clock.RealClock{}}, s
}

func TestLocalIsReadAgainAfterAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		local, handler := newLocal()
		done := make(chan struct{})
		go func() { local.Run(ctx); close(done) }()
		<-local.Changed
		handler.reads.Store(0)
		local.Touched.Raise()
		time.Sleep(20 * time.Millisecond)
		if got := handler.reads.Load(); got != 1 {
			t.Errorf("%d reads within 20 ms, want 1", got)
		}
		handler.serves("two")
		time.Sleep(15 * time.Millisecond)
		if got := local.Document().Groups.ServerETag; got != "two" {
			t.Errorf("35 ms after the event the document is %q", got)
		}
		<-local.Changed
		time.Sleep(time.Second)
		if got := handler.reads.Load(); got != 4 {
			t.Errorf("%d reads in all, want 4", got)
		}
		stop()
		<-done
	})
}

func TestAStreamOfEventsDoesNotPutOffReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		local, handler := newLocal()
		done := make(chan struct{})
		go func() { local.Run(ctx); close(done) }()
		synctest.Wait()
		handler.reads.Store(0)
		for range 200 {
			local.Touched.Raise()
			time.Sleep(5 * time.Millisecond)
		}
		if got := handler.reads.Load(); got < 50 || got > 101 {
			t.Errorf("%d reads in a second of events, want one in 10 ms or so", got)
		}
		stop()
		<-done
	})
}

func TestRefreshReadsOnlyWhatIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, handler := newLocal()
		for range 3 {
			if err := local.Refresh(t.Context(), 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		if got := handler.reads.Load(); got != 1 {
			t.Errorf("%d reads, want 1", got)
		}
		handler.serves("two")
		time.Sleep(50 * time.Millisecond)
		if err := local.Refresh(t.Context(), 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if got := local.Document().Groups.ServerETag; got != "two" {
			t.Errorf("got %q, want the new document", got)
		}
	})
}

func TestAHandlerThatHangsOrPanicsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		hanging := InProcess(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1); <-release }))
		local := &Local{Server: Server{ID: "a", Host: "local", Transport: hanging}, Clock: clock.RealClock{}}
		began := time.Now()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := local.Refresh(ctx, 0); err == nil {
				t.Error("a handler that hangs is no error")
			}
			cancel()
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("three reads of a second took %v", took)
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("%d calls were left behind, want 1", got)
		}
		close(release)
		synctest.Wait()

		for _, value := range []any{"a fault", http.ErrAbortHandler} {
			panics := Server{ID: "a", Host: "local", Transport: InProcess(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))}
			if _, err := panics.fetch(t.Context(), nil, clock.RealClock{}); err == nil || !strings.Contains(err.Error(), "panicked") {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestWhatTheServerAsksItselfIsNotTheClientsBusiness(t *testing.T) {
	type key struct{}
	var seen any
	handler := InProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen = r.Context().Value(key{}) }))
	request, err := http.NewRequestWithContext(context.WithValue(t.Context(), key{}, "the client's"), http.MethodGet, "https://local/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := handler.RoundTrip(request)
	if err != nil || seen != nil {
		t.Errorf("the handler saw %v, %v", seen, err)
	}
	response.Body.Close()
}
