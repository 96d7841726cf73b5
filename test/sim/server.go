package sim

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/reconcilers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/peerproxy"
)

// life is one incarnation of a server, from its start to its end.
type life struct {
	id      string
	number  int
	version int
	brand   brand
	youth   youth
	world   *world
	client  client
	proxy   *peerproxy.Proxy
	chain   *chain
	// handler is the whole chain, as clients and peers reach it.
	handler http.Handler
	server  *http.Server
	// stop ends it, leave ends the renewal of its identity lease; gone is closed
	// when its process is no more, stopping when it stops in good order.
	stop, leave    context.CancelFunc
	gone, stopping chan struct{}
	// isReady is closed when it is ready.
	isReady chan struct{}
	// ending is set when its end has begun, by who plays the script.
	ending bool
	// over is closed when nothing of it is left.
	over chan struct{}
	// hooks are its goroutines.
	hooks  sync.WaitGroup
	record reconcilers.PeerEndpointLeaseReconciler
}

// ShuttingDown implements request.ServerShutdownSignal.
func (l *life) ShuttingDown() <-chan struct{} { return l.stopping }

func (l *life) address() string { return l.world.address(l.id) }

// advertised is where peers are told to reach it.
func (l *life) advertised() (ip string, port int32) {
	ip, text, err := net.SplitHostPort(l.address())
	if err != nil {
		panic(err)
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		panic(err)
	}
	return ip, int32(number)
}

func (l *life) holder() string { return fmt.Sprintf("%s_%d", l.id, l.number) }

// random returns the source of the server's random choices.
func (l *life) random() func(int) int {
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("%d %s", l.world.seed, l.holder()))
	source := rand.New(rand.NewChaCha8(seed))
	var mu sync.Mutex
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return source.IntN(n)
	}
}

// youth is how a server begins: how long its hooks take to write the identity
// lease, and how long it is not ready, or that it never is.
type youth struct {
	hooks, unready time.Duration
	never          bool
}

// start starts a server: its socket is open when it returns, its hooks run.
func (w *world) start(e event) *life {
	id := e.server
	l := &life{id: id, number: e.number, version: e.version, brand: e.brand, youth: e.youth, world: w, gone: make(chan struct{}), stopping: make(chan struct{}), isReady: make(chan struct{}), over: make(chan struct{})}
	l.client = client{w.etcd, id, l.gone}
	l.chain = &chain{serverID: id, ledger: w.ledger, gone: l.gone, version: e.version}
	ctx, stop := context.WithCancel(klog.NewContext(w.ctx, klog.LoggerWithValues(klog.FromContext(w.ctx), "server", id)))
	l.stop = stop
	link := l.link
	if l.brand != "" {
		link = l.linkOther
	}
	if err := link(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.history.started(l)
	l.listen()
	if l.proxy != nil {
		l.hooks.Go(func() { l.runProxy(ctx) })
	}
	identity, leave := context.WithCancel(ctx)
	l.leave = leave
	l.hooks.Go(func() { l.identity(identity) })
	l.hooks.Go(func() { l.publish(ctx) })
	return l
}

// link makes the proxy and puts it into the chain.
func (l *life) link(ctx context.Context) error {
	ip, port := l.advertised()
	proxy, err := peerproxy.New(peerproxy.Config{
		ServerID:            l.id,
		CAFile:              l.world.pki.caFile,
		ProxyClientCertFile: l.world.pki.certFile,
		ProxyClientKeyFile:  l.world.pki.keyFile,
		RequestHeader:       l.world.pki.requestHeader,
		Client:              l.client.kubernetes(ctx),
		RecordStorage:       records{client: l.client},
		Serializer:          codecs,
		Dial:                l.world.network.dialer(l.id),
		CustomResources:     owned,
		AdvertiseIP:         ip,
		AdvertisePort:       port,
		Periods:             l.world.periods,
		Random:              l.random(),
	})
	if err != nil {
		return err
	}
	definitions := l.client.definitions()
	if err := proxy.ExcludeCustomResources(definitions, nil); err != nil {
		return err
	}
	if _, err := definitions.AddEventHandler(l.followDefinitions(definitions)); err != nil {
		return err
	}
	l.hooks.Go(func() { definitions.RunWithContext(ctx) })
	l.proxy, l.record = proxy, proxy.EndpointLeaseReconciler()
	l.handler = l.wrap(proxy.WrapHandler(l.chain))
	return nil
}

// followDefinitions has the chain serve what is defined, some time after the
// news.
func (l *life) followDefinitions(informer cache.SharedIndexInformer) cache.ResourceEventHandler {
	later := func(any) {
		time.AfterFunc(l.world.definitionLag, func() { l.chain.define(informer.GetStore().ListKeys()) })
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: later, DeleteFunc: later}
}

// listen opens the socket.
func (l *life) listen() {
	l.server = &http.Server{
		Handler:     http.HandlerFunc(l.serve),
		TLSConfig:   l.world.pki.serving.Clone(),
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return l.world.ctx },
	}
	socket := l.world.network.listen(l.id, l.address())
	l.hooks.Go(func() { _ = l.server.ServeTLS(socket, "", "") })
}

func (l *life) runProxy(ctx context.Context) {
	if err := l.proxy.Run(ctx); err != nil {
		l.world.violate("%s: Run: %v", l.id, err)
	}
}

// identity keeps the identity lease, as the server's hook does: it deletes that
// of the process before, if it can, and makes a new one. One that it could not
// delete it renews, and leaves its holder as it is.
func (l *life) identity(ctx context.Context) {
	if pause(ctx, l.youth.hooks) != nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, longestDeletion)
	_ = l.client.removeIdentity(bounded)
	cancel()
	for first := true; ; first = false {
		holder, err := l.client.renewIdentity(ctx, l.holder())
		if err != nil {
			return
		}
		if first && holder == l.holder() {
			l.world.history.claimed(l)
		}
		if pause(ctx, renewal) != nil {
			return
		}
	}
}

// publish has the record written once the server is ready, and keeps it.
func (l *life) publish(ctx context.Context) {
	if pause(ctx, l.youth.unready) != nil {
		return
	}
	if l.youth.never || l.waitProxy(ctx) != nil {
		return
	}
	if l.brand != bare {
		l.world.history.ready(l)
	}
	close(l.isReady)
	ip, port := l.advertised()
	for {
		if err := l.record.UpdateLease(l.id, ip, []corev1.EndpointPort{{Name: "https", Port: port}}); err != nil {
			l.world.violate("%s: UpdateLease: %v", l.id, err)
		}
		if pause(ctx, renewal) != nil {
			return
		}
	}
}

// waitProxy waits until the proxy holds up readiness no more.
func (l *life) waitProxy(ctx context.Context) error {
	if l.proxy == nil {
		return nil
	}
	select {
	case <-l.proxy.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// longestDeletion bounds the deletion of the identity lease of the process
// before, as the real controller does.
const longestDeletion = 5 * time.Second

// Bounds of a stop: a second for what the proxy started, two for the own record.
const (
	longestStop    = time.Second
	longestRemoval = 2 * time.Second
)

// shutDown stops the server in good order, as a signal does: leases first, then
// requests, then all the rest.
func (l *life) shutDown() {
	began := time.Now()
	l.leave()
	if err := l.record.RemoveLease(l.id); err != nil {
		klog.FromContext(l.world.ctx).Info("The record stays", "server", l.id, "err", err)
	}
	if spent := time.Since(began); spent > longestRemoval {
		l.world.violate("%s: the removal of the record took %v", l.id, spent)
	}
	ctx, cancel := context.WithTimeout(l.world.ctx, longestRemoval)
	_ = l.client.removeIdentity(ctx)
	cancel()
	close(l.stopping)
	time.Sleep(time.Second) // in which watches end
	ctx, cancel = context.WithTimeout(l.world.ctx, 5*time.Second)
	_ = l.server.Shutdown(ctx)
	cancel()
	l.end()
}

// end ends the process.
func (l *life) end() {
	close(l.gone)
	_ = l.server.Close()
	began := time.Now()
	l.stop()
	l.hooks.Wait()
	if spent := time.Since(began); spent > longestStop {
		l.world.violate("%s: it took %v to stop", l.id, spent)
	}
}
