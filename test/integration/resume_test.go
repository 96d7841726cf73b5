package integration

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/reconcilers"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"peerproxy.internal/test/cluster"
)

// wired has peers reach a server by a way that can be cut.
type wired struct {
	reconcilers.PeerEndpointLeaseReconciler
	way *cluster.Wire
}

// wired starts a server, and returns with it the way by which peers reach it.
func (c *cell) wired(s spec) (*server, *cluster.Wire) {
	c.t.Helper()
	w := &wired{}
	s.records = func(inner reconcilers.PeerEndpointLeaseReconciler) reconcilers.PeerEndpointLeaseReconciler {
		w.PeerEndpointLeaseReconciler = inner
		return w
	}
	server := c.ready(s)
	c.t.Cleanup(w.way.Close)
	return server, w.way
}

// UpdateLease publishes where the way begins. It is called by one goroutine, first
// before the record is there.
func (w *wired) UpdateLease(id, ip string, ports []corev1.EndpointPort) (err error) {
	if w.way == nil {
		if w.way, err = cluster.NewWire(net.JoinHostPort(ip, strconv.Itoa(int(ports[0].Port)))); err != nil {
			return err
		}
	}
	host, text, err := net.SplitHostPort(w.way.Address())
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	return w.PeerEndpointLeaseReconciler.UpdateLease(id, host, httpsPort(int32(port)))
}

// sightings are the names that an informer has told of, and how often.
type sightings struct {
	mu    sync.Mutex
	added map[string]int
}

func (s *sightings) add(object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.added[object.(*unstructured.Unstructured).GetName()]++
}

func (s *sightings) of(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.added[name]
}

// informs runs an informer of client-go at a server.
func informs(t *testing.T, c *client, r resource) *sightings {
	t.Helper()
	access, err := dynamic.NewForConfigAndClient(&rest.Config{Host: c.base}, c.http)
	if err != nil {
		t.Fatal(err)
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(access, r.gv().WithResource(r.name), metav1.NamespaceDefault, 0, cache.Indexers{}, nil).Informer()
	seen := &sightings{added: map[string]int{}}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen.add}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	running.Go(func() { informer.RunWithContext(t.Context()) })
	eventually(t, "the informer has listed", informer.HasSynced)
	return seen
}

// lists are the requests below a path for what is there, and not only for what
// happens from now on.
func (s *server) lists(path string) []seen {
	return slices.DeleteFunc(s.arrived.under(path), func(request seen) bool {
		return strings.Contains(request.uri, "watch=true") && !strings.Contains(request.uri, "sendInitialEvents=true")
	})
}

// An informer whose peer dies goes on where it was, at the other peer: it lists
// nothing anew.
func TestAnInformerGoesOnAtAnotherPeerWithoutAList(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b, toB := c.wired(spec{id: "b", serves: []resource{ours()}})
	other, toOther := c.wired(spec{id: "c", serves: []resource{ours()}})
	a := c.ready(spec{id: "a"})
	a.sees("b", toB.Address())
	a.sees("c", toOther.Address())
	a.learns(ours())
	a.settles() // no document is missing
	path := ours().path("default")

	seen := informs(t, a.as("alice"), ours())
	other.admin().want(http.StatusCreated, http.MethodPost, path, ours().thing(t, "before", ""))
	eventually(t, "the informer has seen what was made", func() bool { return seen.of("before") == 1 })
	lists := a.lists(path)

	way, left := toB, other
	if len(b.arrived.under(path+"?")) == 0 {
		way, left = toOther, b
	}
	way.Close()
	left.admin().want(http.StatusCreated, http.MethodPost, path, ours().thing(t, "after", ""))
	eventually(t, "the informer has seen what was made after its peer's death", func() bool { return seen.of("after") == 1 })
	if len(left.arrived.under(path+"?")) == 0 {
		t.Error("no watch has come to the peer that is left: this test shows nothing")
	}
	if again := a.lists(path)[len(lists):]; len(again) > 0 {
		t.Errorf("it has listed again: %v", again)
	}
	if n := seen.of("before"); n != 1 {
		t.Errorf("what was there before its peer's death was added %d times", n)
	}
}
