package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"

	"peerproxy.internal/test/cluster"
	"peerproxy.internal/test/peertest"
)

// cell is one test's control plane: a part of etcd, and who is a member there.
type cell struct {
	t       *testing.T
	cluster *cluster.Cluster
	// prefix is the members' --etcd-prefix, etcdURL where they find etcd.
	prefix, etcdURL string
	etcd            *clientv3.Client
	pki             *peertest.PKI
}

var cells atomic.Int64

// newCell makes a control plane in the shared etcd.
func newCell(t *testing.T) *cell {
	t.Helper()
	return newCellIn(t, shared)
}

func newCellIn(t *testing.T, c *cluster.Cluster) *cell {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{c.EtcdURL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	return &cell{t: t, cluster: c, prefix: fmt.Sprintf("/cell-%d", cells.Add(1)), etcdURL: c.EtcdURL(), etcd: etcd, pki: peertest.NewPKI(t)}
}

// backend is how a server reaches the cell's part of etcd.
func (c *cell) backend() *storagebackend.Config {
	config := storagebackend.NewDefaultConfig(c.prefix, nil)
	config.Transport.ServerList = []string{c.etcdURL}
	// Nothing here lives long enough to be compacted or measured.
	config.CompactionInterval, config.DBMetricPollInterval = 0, 0
	return config
}

// recordKey is where the endpoint record of a server is.
func (c *cell) recordKey(id string) string { return c.prefix + "/peerserverleases/" + id }

// put writes raw bytes to etcd, for so many seconds if ttl is not 0.
func (c *cell) put(key string, value []byte, ttl int64) {
	c.t.Helper()
	var options []clientv3.OpOption
	if ttl > 0 {
		lease, err := c.etcd.Grant(c.t.Context(), ttl)
		if err != nil {
			c.t.Fatal(err)
		}
		options = append(options, clientv3.WithLease(lease.ID))
	}
	if _, err := c.etcd.Put(c.t.Context(), key, string(value), options...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cell) remove(key string) {
	c.t.Helper()
	if _, err := c.etcd.Delete(c.t.Context(), key); err != nil {
		c.t.Fatal(err)
	}
}

// get returns what etcd holds under a key, nil if nothing.
func (c *cell) get(key string) []byte {
	c.t.Helper()
	got, err := c.etcd.Get(c.t.Context(), key)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return nil
	}
	return got.Kvs[0].Value
}

// record is the endpoint record of a server as every member writes it.
func record(t *testing.T, id, address string) *corev1.Endpoints {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"apiserverIdentity": id}, Generation: 1},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: host}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: int32(port), Protocol: corev1.ProtocolTCP}},
		}},
	}
}

// stored is an object as etcd holds it by default.
func stored(t *testing.T, object runtime.Object) []byte {
	t.Helper()
	codec := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	var out bytes.Buffer
	if err := codec.Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// publish writes the endpoint record of a server.
func (c *cell) publish(id, address string) {
	c.t.Helper()
	c.put(c.recordKey(id), stored(c.t, record(c.t, id, address)), 0)
}

// identityLease is that of a server that has just started.
func identityLease(id, incarnation string) *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Now())
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      id,
			Namespace: metav1.NamespaceSystem,
			Labels:    map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(id + "_" + incarnation),
			LeaseDurationSeconds: new(int32(3600)),
			AcquireTime:          &now,
			RenewTime:            &now,
		},
	}
}

func (c *cell) leaseKey(id string) string {
	return c.prefix + leases.prefix() + metav1.NamespaceSystem + "/" + id
}

// identify writes the identity lease of a server.
func (c *cell) identify(id, incarnation string) {
	c.t.Helper()
	c.put(c.leaseKey(id), []byte(toJSON(c.t, identityLease(id, incarnation))), 0)
}

// actor starts a member that is not a server of this process: a scripted peer
// with an identity lease and an endpoint record. It says that it serves the
// resources, and answers anything but discovery by the handler.
func (c *cell) actor(id string, handler http.HandlerFunc, resources ...resource) *peertest.Peer {
	c.t.Helper()
	return c.join(&peertest.Peer{ID: id, Handler: discovering(documentOf(resources...), handler)})
}

// join starts a scripted peer and makes it a member.
func (c *cell) join(peer *peertest.Peer) *peertest.Peer {
	c.t.Helper()
	c.listen(peer)
	c.identify(peer.ID, "first")
	c.publish(peer.ID, peer.Address())
	return peer
}

// listen starts a scripted peer with a certificate of the cluster's.
func (c *cell) listen(peer *peertest.Peer) *peertest.Peer {
	c.t.Helper()
	pair, err := c.cluster.CA.Issue(fmt.Sprintf("actor%s-%s", c.prefix[1:], peer.ID), cluster.ServingLeaf())
	if err != nil {
		c.t.Fatal(err)
	}
	peer.Certificate = peertest.Pair{Cert: pair.Cert, Key: pair.Key}
	return peer.Start(c.t, c.pki)
}

// discovering answers discovery with the groups, and anything else by the
// handler.
func discovering(groups []apidiscoveryv2.APIGroupDiscovery, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis":
			writeDocument(w, groups)
		case "/api":
			writeDocument(w, nil)
		default:
			handler(w, r)
		}
	}
}

// answering answers everything with a text.
func answering(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// documentOf is the document of a server that serves the resources, as a server
// of this package would write it.
func documentOf(resources ...resource) []apidiscoveryv2.APIGroupDiscovery {
	byGroup := map[string]int{}
	var groups []apidiscoveryv2.APIGroupDiscovery
	for _, r := range resources {
		i, found := byGroup[r.group]
		if !found {
			i = len(groups)
			byGroup[r.group] = i
			groups = append(groups, apidiscoveryv2.APIGroupDiscovery{
				ObjectMeta: metav1.ObjectMeta{Name: r.group},
				Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}},
			})
		}
		groups[i].Versions[0].Resources = append(groups[i].Versions[0].Resources, r.document())
	}
	return groups
}

func (r resource) document() apidiscoveryv2.APIResourceDiscovery {
	thing := &metav1.GroupVersionKind{Group: r.group, Version: "v1", Kind: "Thing"}
	d := apidiscoveryv2.APIResourceDiscovery{
		Resource:         r.name,
		ResponseKind:     thing,
		Scope:            apidiscoveryv2.ScopeNamespace,
		SingularResource: r.name,
		Verbs:            []string{"create", "delete", "get", "list", "patch", "update", "watch"},
	}
	for _, sub := range r.subresources {
		verbs := map[string][]string{"status": {"get", "patch", "update"}, "exec": {"create", "get"}}[sub]
		d.Subresources = append(d.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: thing, Verbs: verbs})
	}
	return d
}

// aggregated is the content type of a document.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func writeDocument(w http.ResponseWriter, groups []apidiscoveryv2.APIGroupDiscovery) {
	w.Header().Set("Content-Type", aggregated)
	_ = writeJSON(w, &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    groups,
	})
}

// within bounds a wait by a deadline.
func within(ctx context.Context, d time.Duration, done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
