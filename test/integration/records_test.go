package integration

import (
	"encoding/base64"
	"maps"
	"net/http"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/reconcilers"
	"k8s.io/client-go/kubernetes/scheme"

	"peerproxy.internal/test/cluster"
)

// recordTTL is how long a record outlives its last writing.
const recordTTL = 15 * time.Second

// record reads a server's record, nil if there is none, and returns the etcd
// lease that it lives by and what is left of that.
func (c *cell) record(id string) (found *corev1.Endpoints, lease clientv3.LeaseID, left time.Duration) {
	c.t.Helper()
	got, err := c.etcd.Get(c.t.Context(), c.recordKey(id))
	if err != nil {
		c.t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return nil, 0, 0
	}
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), got.Kvs[0].Value)
	if err != nil {
		c.t.Fatal(err)
	}
	lease = clientv3.LeaseID(got.Kvs[0].Lease)
	alive, err := c.etcd.TimeToLive(c.t.Context(), lease)
	if err != nil {
		c.t.Fatal(err)
	}
	return object.(*corev1.Endpoints), lease, time.Duration(alive.TTL) * time.Second
}

// sees waits until the server knows the address of another.
func (s *server) sees(id, address string) {
	s.t.Helper()
	eventually(s.t, s.spec.id+" sees "+id+" at "+address, func() bool {
		got, err := s.proxy.EndpointLeaseReconciler().GetEndpoint(id)
		return err == nil && got == address
	})
}

// misses waits until the server knows of no address of another.
func (s *server) misses(id string) {
	s.t.Helper()
	eventually(s.t, s.spec.id+" misses "+id, func() bool {
		_, err := s.proxy.EndpointLeaseReconciler().GetEndpoint(id)
		return err != nil
	})
}

// upstream is how a stock server reads and writes the cell's records, but for
// the codec, which is not within reach here and writes the same.
func (c *cell) upstream() reconcilers.PeerEndpointLeaseReconciler {
	c.t.Helper()
	config := c.backend()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	config.Codec = scheme.Codecs.CodecForVersions(info.Serializer, scheme.Codecs.UniversalDeserializer(), corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
	config.EncodeVersioner = corev1.SchemeGroupVersion
	r, err := reconcilers.NewPeerEndpointLeaseReconciler(config.ForResource(recordsResource), "/peerserverleases/", recordTTL)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(r.Destroy)
	return r
}

func httpsPort(port int32) []corev1.EndpointPort {
	return []corev1.EndpointPort{{Name: "https", Port: port, Protocol: corev1.ProtocolTCP}}
}

// It is not run beside others, which may keep etcd busy for longer than a removal
// may take.
func TestTheOwnRecordIsPublishedRenewedAndRemoved(t *testing.T) {
	c := newCell(t)
	a := c.ready(spec{id: "a"})
	before, lease, left := c.record("a")
	if want := record(t, "a", a.address); !reflect.DeepEqual(before.Subsets, want.Subsets) || !maps.Equal(before.Labels, want.Labels) {
		t.Errorf("the record is %v, want %v", before, want)
	}
	if left <= 0 || left > recordTTL {
		t.Errorf("the record is to live for %v, want %v at most", left, recordTTL)
	}
	// As the server does it every 10 s.
	if err := a.proxy.EndpointLeaseReconciler().UpdateLease("a", "127.0.0.1", before.Subsets[0].Ports); err != nil {
		t.Fatal(err)
	}
	var after *corev1.Endpoints
	var next clientv3.LeaseID
	eventually(t, "the record is renewed", func() bool {
		after, next, left = c.record("a")
		return after.Generation == before.Generation+1
	})
	if next == lease || left < recordTTL-5*time.Second || left > recordTTL {
		t.Errorf("the renewed record is to live for %v, by the lease %x after %x", left, next, lease)
	}
	began := time.Now()
	a.stop()
	eventually(t, "the record is gone", func() bool { return c.get(c.recordKey("a")) == nil })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it went after %v", took)
	}
	a.end(patience)
	if c.get(c.recordKey("a")) != nil {
		t.Error("the record is back after the server's end")
	}
}

// A shutdown must not wait for an etcd that is gone, not even if a renewal of
// the record is under way.
func TestTheEndDoesNotWaitForEtcd(t *testing.T) {
	t.Parallel()
	for name, renewing := range map[string]bool{"between two renewals": false, "during a renewal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, err := cluster.Start(t.Context(), cluster.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := own.Stop(); err != nil {
					t.Error(err)
				}
			})
			c := newCellIn(t, own)
			records := &gatedRecords{gate: make(chan struct{}), renewing: make(chan struct{}, 1)}
			interval := time.Hour
			if renewing {
				interval = 10 * time.Millisecond
			}
			a := c.ready(spec{id: "a", renewal: interval, records: records.wrap})
			if err := own.Stop(); err != nil {
				t.Fatal(err)
			}
			close(records.gate)
			if renewing {
				<-records.renewing
			}
			if took := a.end(patience); took > 5*time.Second {
				t.Errorf("the end took %v, want no more than 2 s for the record and 3 s for the connections", took)
			}
			if took := records.removal.Load(); took == 0 || took >= int64(2*time.Second) {
				t.Errorf("the end has waited for the record for %v, want less than 2 s", time.Duration(took))
			}
		})
	}
}

// gatedRecords writes the record once, and renews it when the gate is open.
type gatedRecords struct {
	reconcilers.PeerEndpointLeaseReconciler
	gate, renewing chan struct{}
	written        atomic.Bool
	// removal is how long its removal has kept the server, in nanoseconds.
	removal atomic.Int64
}

func (r *gatedRecords) wrap(inner reconcilers.PeerEndpointLeaseReconciler) reconcilers.PeerEndpointLeaseReconciler {
	r.PeerEndpointLeaseReconciler = inner
	return r
}

func (r *gatedRecords) UpdateLease(id, ip string, ports []corev1.EndpointPort) error {
	if r.written.Swap(true) {
		<-r.gate
		select {
		case r.renewing <- struct{}{}:
		default:
		}
	}
	return r.PeerEndpointLeaseReconciler.UpdateLease(id, ip, ports)
}

// RemoveLease implements reconcilers.PeerEndpointLeaseReconciler.
func (r *gatedRecords) RemoveLease(id string) error {
	began := time.Now()
	defer func() { r.removal.Store(int64(time.Since(began))) }()
	return r.PeerEndpointLeaseReconciler.RemoveLease(id)
}

func TestARecordThatExpiresIsGone(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	a := c.ready(spec{id: "a"})
	c.put(c.recordKey("b"), stored(t, record(t, "b", "127.0.0.1:1")), 2)
	a.sees("b", "127.0.0.1:1")
	a.misses("b")
	if c.get(c.recordKey("b")) != nil {
		t.Error("a misses b while its record lives")
	}
}

// What a stock kube-apiserver v1.37.2 has written to etcd, 127.0.0.1:30546.
const (
	stockID     = "apiserver-77sczqljntss2lyy5w2zefe6wy"
	stockRecord = "azhzAAoPCgJ2MRIJRW5kcG9pbnRzEnAKSwoAEgAaACIAKgAyADgCQgBaOQoRYXBpc2VydmVySWRlbnRpdHkSJGFwaXNlcnZlci03N3NjenFsam50c3MybHl5NXcyemVmZTZ3eRIhCg0KCTEyNy4wLjAuMRoAGhAKBWh0dHBzENLuARoDVENQGgAiAA=="
)

func TestRecordsOfStockServersAndOursAreAlike(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	a := c.ready(spec{id: "a"})

	raw, err := base64.StdEncoding.DecodeString(stockRecord)
	if err != nil {
		t.Fatal(err)
	}
	c.put(c.recordKey(stockID), raw, 0)
	a.sees(stockID, "127.0.0.1:30546")
	same := record(t, stockID, "127.0.0.1:30546")
	same.Generation = 2
	if got := stored(t, same); string(got) != string(raw) {
		t.Errorf("these tests write\n%q, a stock server\n%q", got, raw)
	}

	stock := c.upstream()
	if err := stock.UpdateLease("stock", "127.0.0.2", httpsPort(6443)); err != nil {
		t.Fatal(err)
	}
	a.sees("stock", "127.0.0.2:6443")
	if got, err := stock.GetEndpoint("a"); err != nil || got != a.address {
		t.Errorf("a stock server sees a at %q, %v; want %s", got, err, a.address)
	}
	// A server that moves is found where it is.
	if err := stock.UpdateLease("stock", "::1", httpsPort(7443)); err != nil {
		t.Fatal(err)
	}
	a.sees("stock", "[::1]:7443")
	if err := stock.RemoveLease("stock"); err != nil {
		t.Fatal(err)
	}
	a.misses("stock")
}

func TestRecordsOfAnotherEtcdPrefixAreNotSeen(t *testing.T) {
	t.Parallel()
	one, other := newCell(t), newCell(t)
	a := one.ready(spec{id: "a"})
	other.ready(spec{id: "b"})
	// Whatever news there is has come once this has.
	one.publish("x", "127.0.0.1:1")
	a.sees("x", "127.0.0.1:1")
	if _, err := a.proxy.EndpointLeaseReconciler().GetEndpoint("b"); err == nil {
		t.Error("a sees b, which has another prefix")
	}
}

// A record that is of no use must keep no one from the others, whether it is
// there from the start or comes later, and no request from its 404.
func TestABadRecordIsIgnored(t *testing.T) {
	t.Parallel()
	noLabel := record(t, "bad", "127.0.0.1:1")
	noLabel.Labels = nil
	noSubset := record(t, "bad", "127.0.0.1:1")
	noSubset.Subsets = nil
	noAddress := record(t, "bad", "127.0.0.1:1")
	noAddress.Subsets[0].Addresses = nil
	noPort := record(t, "bad", "127.0.0.1:1")
	noPort.Subsets[0].Ports = nil
	hostName := record(t, "bad", "127.0.0.1:1")
	hostName.Subsets[0].Addresses[0].IP = "evil.example.com"
	for name, bad := range map[string][]byte{
		"without a label":            stored(t, noLabel),
		"without a subset":           stored(t, noSubset),
		"without an address":         stored(t, noAddress),
		"without a port":             stored(t, noPort),
		"with a name for address":    stored(t, hostName),
		"with every address":         stored(t, record(t, "bad", "0.0.0.0:1")),
		"with port 0":                stored(t, record(t, "bad", "127.0.0.1:0")),
		"of another kind":            stored(t, &corev1.ConfigMap{}),
		"that is not even an object": []byte("\x00garbage"),
		"that is empty":              {},
	} {
		for _, early := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", from the start", false: ", later"}[early], func(t *testing.T) {
				t.Parallel()
				checkBadRecord(t, bad, early)
			})
		}
	}
}

func checkBadRecord(t *testing.T, bad []byte, early bool) {
	t.Helper()
	c := newCell(t)
	if early {
		c.put(c.recordKey("bad"), bad, 0)
	}
	a := c.start(spec{id: "a"})
	if !early {
		first := c.actor("first", http.NotFound)
		a.sees("first", first.Address())
		c.put(c.recordKey("bad"), bad, 0)
	}
	b := c.actor("b", answering("from b"), ours())
	alice := a.as("alice")
	alice.until(http.StatusOK, http.MethodGet, ours().path("default"))
	alice.until(http.StatusNotFound, http.MethodGet, "/apis/nobody.k8s.io/v1/things")
	a.sees("b", b.Address())
	if _, err := a.proxy.EndpointLeaseReconciler().GetEndpoint("bad"); err == nil {
		t.Error("the bad record has an address")
	}
	// News still comes.
	c.remove(c.recordKey("b"))
	a.misses("b")
}
