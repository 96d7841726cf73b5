package forward

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/serve/health"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

var alice = &user.DefaultInfo{
	Name: "alice", UID: "a1", Groups: []string{"devs", "system:authenticated"},
	Extra: map[string][]string{"example.com/Key": {"v"}},
}

// world is server A, which forwards everything to its candidates.
type world struct {
	t         testing.TB
	pki       *peertest.PKI
	health    *health.Tracker
	forwarder *Forwarder
	front     *httptest.Server
	log       ktesting.Buffer

	// Set these before the first request.
	candidates []*snapshot.Peer
	user       user.Info
	// redial dials a suspect; by default until the test ends, so that peers see
	// the test's requests alone.
	redial    func(ctx context.Context, address string) error
	inContext func(context.Context) context.Context

	mu    sync.Mutex
	dials []string
}

// newWorld starts the peers and makes A forward to all of them, in state
// Serving.
func newWorld(t testing.TB, peers ...*peertest.Peer) *world {
	t.Helper()
	return newWorldOf(t, peertest.NewPKI(t), peers...)
}

func newWorldOf(t testing.TB, pki *peertest.PKI, peers ...*peertest.Peer) *world {
	t.Helper()
	w := &world{t: t, pki: pki, user: alice, redial: func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	for _, peer := range peers {
		w.candidates = append(w.candidates, peer.Start(t, pki).Peer(snapshot.StateServing))
	}
	own := pki.ProxyClient(t)
	tr, err := transport.New(transport.Config{
		CAFile:          peertest.WriteFile(t, "ca.crt", pki.Cluster.PEM),
		CertFile:        peertest.WriteFile(t, "proxy.crt", own.Cert),
		KeyFile:         peertest.WriteFile(t, "proxy.key", own.Key),
		IdentityHeaders: []string{"X-Corp-User"},
		Dial:            w.dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.health = health.New(health.Config{
		Redial: func(ctx context.Context, address string) error { return w.redial(ctx, address) },
		Known:  func(health.Peer) bool { return true },
		Clock:  clock.RealClock{},
	})
	go func() {
		defer close(done)
		var running sync.WaitGroup
		running.Go(func() { _ = tr.Run(ctx) })
		running.Go(func() { w.health.Run(ctx) })
		running.Wait()
	}()
	t.Cleanup(func() { cancel(); <-done })
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	w.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	w.forwarder = &Forwarder{Transport: tr, Serializer: peertest.Codecs(), Health: w.health}
	w.front = peertest.Front(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx := klog.NewContext(r.Context(), logger)
		if w.inContext != nil {
			ctx = w.inContext(ctx)
		}
		peertest.Chain(t, w.user, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.forwarder.Forward(rw, r, w.candidates)
		})).ServeHTTP(rw, r.WithContext(ctx))
	}))
	return w
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, address)
	w.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, address)
}

// dialled returns the addresses dialled so far.
func (w *world) dialled() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.dials...)
}

// h1 is a client of the front that speaks HTTP/1.1; [httptest.Server.Client]
// speaks HTTP/2.
func (w *world) h1() *http.Client {
	tr := w.front.Client().Transport.(*http.Transport).Clone()
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetHTTP1(true)
	tr.ForceAttemptHTTP2 = false
	tr.TLSClientConfig.NextProtos = []string{"http/1.1"}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

const things = "/apis/g.example.com/v1/namespaces/ns/things"

func (w *world) request(method, path, body string) *http.Request {
	w.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.front.URL+path, reader)
	if err != nil {
		w.t.Fatal(err)
	}
	return req
}

// answer is what a client sees.
type answer struct {
	code    int
	header  http.Header
	body    string
	err     error // what ended the body, nil if its end did
	trailer http.Header
}

func (w *world) do(req *http.Request) answer {
	w.t.Helper()
	return w.doWith(w.front.Client(), req)
}

func (w *world) doWith(client *http.Client, req *http.Request) answer {
	w.t.Helper()
	res, err := client.Do(req)
	if err != nil {
		w.t.Errorf("%s %s: %v", req.Method, req.URL.Path, err)
		return answer{}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return answer{code: res.StatusCode, header: res.Header, body: string(body), err: err, trailer: res.Trailer}
}

// handler makes an http.Handler of a function.
func handler(f func(w http.ResponseWriter, r *http.Request)) http.Handler { return http.HandlerFunc(f) }

// lose reads a request and cuts its answer off before it has begun.
var lose = handler(func(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
})

// readThenAnswer reads a request and answers it with a status and a header.
func readThenAnswer(code int, header http.Header, body string) http.Handler {
	return handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		maps.Copy(w.Header(), header)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
}
