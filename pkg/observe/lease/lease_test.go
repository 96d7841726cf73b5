package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/observe/dirty"
)

func TestMain(m *testing.M) {
	// The other handler spreads errors over time: over that of the whole process,
	// which is 27 years ahead of a bubble's.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

// stored is a record as a stock server writes it.
func stored(id, ip string, port int32) *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"apiserverIdentity": id}},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: ip}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: port, Protocol: corev1.ProtocolTCP}},
		}},
	}
}

func TestReadingARecord(t *testing.T) {
	noSubset := stored("a", "192.0.2.1", 6443)
	noSubset.Subsets = nil
	notReady := stored("a", "192.0.2.1", 6443)
	notReady.Subsets[0].NotReadyAddresses, notReady.Subsets[0].Addresses = notReady.Subsets[0].Addresses, nil
	for _, tc := range []struct {
		name    string
		stored  *corev1.Endpoints
		address string
		err     string
	}{
		{"IPv4", stored("a", "192.0.2.1", 6443), "192.0.2.1:6443", ""},
		{"IPv6", stored("a", "2001:db8::1", 6443), "[2001:db8::1]:6443", ""},
		{"no label", stored("", "192.0.2.1", 6443), "", "no label"},
		{"no subset", noSubset, "", "no address"},
		{"only an address that is not ready", notReady, "", "no address"},
		{"a host name", stored("a", "peer.example.com", 6443), "", "no IP address"},
		{"an address with a port in it", stored("a", "192.0.2.1:6443", 6443), "", "no IP address"},
		{"unspecified IPv4", stored("a", "0.0.0.0", 6443), "", "can't be dialled"},
		{"unspecified IPv6", stored("a", "::", 6443), "", "can't be dialled"},
		{"unspecified IPv4 within IPv6", stored("a", "::ffff:0.0.0.0", 6443), "", "can't be dialled"},
		{"unspecified IPv6 of a zone", stored("a", "::%lo", 6443), "", "can't be dialled"},
		{"multicast", stored("a", "::ffff:224.0.0.1", 6443), "", "can't be dialled"},
		{"empty", stored("a", "", 6443), "", "no IP address"},
		{"port 0", stored("a", "192.0.2.1", 0), "", "not in 1-65535"},
		{"a port too large", stored("a", "192.0.2.1", 70000), "", "not in 1-65535"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, record, err := recordOf(tc.stored)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("got error %v, want %q", err, tc.err)
			}
			if record.Address != tc.address {
				t.Errorf("got address %q, want %q", record.Address, tc.address)
			}
		})
	}
}

// early is the record of a server that is not ready yet.
func early(id, address, incarnation string) *corev1.Endpoints {
	return &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"apiserverIdentity": id},
		Annotations: map[string]string{
			"peerproxy.internal/starting-address":       address,
			"peerproxy.internal/incarnation":            incarnation,
			"peerproxy.internal/incarnation-generation": "0",
		},
	}}
}

func TestReadingAnEarlyRecord(t *testing.T) {
	ready := early("a", "192.0.2.9:1", "a_1")
	ready.Subsets = stored("a", "192.0.2.1", 6443).Subsets
	taken := written(ready.DeepCopy(), 1)
	for _, tc := range []struct {
		name   string
		stored *corev1.Endpoints
		want   Record
		err    string
	}{
		{"annotations that a stock server has left there", taken, Record{Address: "192.0.2.1:6443", Generation: 1}, ""},
		{"IPv4", early("a", "192.0.2.1:6443", "a_1"), Record{Address: "192.0.2.1:6443", Incarnation: "a_1", Starting: true}, ""},
		{"IPv6", early("a", "[2001:db8::1]:6443", "a_1"), Record{Address: "[2001:db8::1]:6443", Incarnation: "a_1", Starting: true}, ""},
		{"an early address beside that of a ready server means nothing", ready, Record{Address: "192.0.2.1:6443", Incarnation: "a_1"}, ""},
		{"no incarnation", early("a", "192.0.2.1:6443", ""), Record{}, "no address"},
		{"no address", early("a", "", "a_1"), Record{}, "no address"},
		{"no port", early("a", "192.0.2.1", "a_1"), Record{}, "missing port"},
		{"a port that is no number", early("a", "192.0.2.1:https", "a_1"), Record{}, "invalid syntax"},
		{"a port too large", early("a", "192.0.2.1:70000", "a_1"), Record{}, "not in 1-65535"},
		{"a port larger than any", early("a", "192.0.2.1:4294967297", "a_1"), Record{}, "out of range"},
		{"an unspecified address", early("a", ":6443", "a_1"), Record{}, "no IP address"},
		{"a host name", early("a", "peer.example.com:6443", "a_1"), Record{}, "no IP address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, record, err := recordOf(tc.stored)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("got error %v, want %q", err, tc.err)
			}
			if record != tc.want {
				t.Errorf("got %v, want %v", record, tc.want)
			}
		})
	}
}

func TestReadingAnIdentityLease(t *testing.T) {
	renewed := metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	seen := renewed.Add(time.Minute)
	whole := coordinationv1.LeaseSpec{HolderIdentity: new("a_1"), RenewTime: &renewed, LeaseDurationSeconds: new(int32(3600))}
	identity, err := identityOf(&coordinationv1.Lease{Spec: whole}, seen)
	if err != nil {
		t.Fatal(err)
	}
	want := Identity{Incarnation: "a_1", Renewed: renewed.Time, Expires: seen.Add(time.Hour)}
	if diff := cmp.Diff(want, identity); diff != "" {
		t.Error(diff)
	}
	forged := whole
	future := metav1.NewMicroTime(renewed.AddDate(50, 0, 0))
	forged.RenewTime, forged.LeaseDurationSeconds = &future, new(int32(1<<31-1))
	if identity, err := identityOf(&coordinationv1.Lease{Spec: forged}, seen); err != nil || identity.Expires != seen.Add(time.Hour) {
		t.Errorf("a lease that claims to live for ever ends at %v, %v", identity.Expires, err)
	}
	for name, broken := range map[string]func(*coordinationv1.LeaseSpec){
		"no holder":    func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = nil },
		"empty holder": func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = new("") },
		"no renewTime": func(s *coordinationv1.LeaseSpec) { s.RenewTime = nil },
		"no duration":  func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = nil },
	} {
		spec := whole
		broken(&spec)
		if _, err := identityOf(&coordinationv1.Lease{Spec: spec}, seen); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// followed is a store of records and whether its flag was raised since the
// last question.
func followed(t *testing.T) (*records, func() bool) {
	changed := dirty.New()
	return &records{logger: klog.FromContext(t.Context()), changed: changed}, func() bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
}

func written(record *corev1.Endpoints, generation int64) *corev1.Endpoints {
	record.Generation = generation
	return record
}

func TestRecordsRaiseTheFlagForNewsAlone(t *testing.T) {
	r, raised := followed(t)
	for _, step := range []struct {
		name string
		do   func() error
		news bool
		want map[string]Record
	}{
		{"the first list, even if empty", func() error { return r.Replace(nil, "1") }, true, map[string]Record{}},
		{"a new record", func() error { return r.Add(stored("a", "192.0.2.1", 1)) }, true, map[string]Record{"a": {Address: "192.0.2.1:1"}}},
		{"a renewal", func() error { return r.Update(stored("a", "192.0.2.1", 1)) }, false, map[string]Record{"a": {Address: "192.0.2.1:1"}}},
		{"a renewal that counts", func() error { return r.Update(written(stored("a", "192.0.2.1", 1), 7)) }, false, map[string]Record{"a": {Address: "192.0.2.1:1", Generation: 7}}},
		{"another address", func() error { return r.Update(stored("a", "192.0.2.2", 1)) }, true, map[string]Record{"a": {Address: "192.0.2.2:1"}}},
		{"a list that says the same", func() error { return r.Replace([]any{stored("a", "192.0.2.2", 1)}, "2") }, false, map[string]Record{"a": {Address: "192.0.2.2:1"}}},
		{"an address that turned bad", func() error { return r.Update(stored("a", "0.0.0.0", 1)) }, true, map[string]Record{}},
		{"a list with a bad record among good ones", func() error { return r.Replace([]any{stored("a", "::", 1), stored("b", "::1", 1)}, "3") }, true, map[string]Record{"b": {Address: "[::1]:1"}}},
		{"a server that restarts", func() error { return r.Update(early("b", "[::1]:1", "b_2")) }, true, map[string]Record{"b": {Address: "[::1]:1", Incarnation: "b_2", Starting: true}}},
		{"and is ready", func() error { return r.Update(stored("b", "::1", 1)) }, true, map[string]Record{"b": {Address: "[::1]:1"}}},
		{"an expiry", func() error { return r.Delete(stored("b", "::1", 1)) }, true, map[string]Record{}},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if got := raised(); got != step.news {
			t.Errorf("%s: raised %t, want %t", step.name, got, step.news)
		}
		got, synced := r.all()
		if diff := cmp.Diff(step.want, got); diff != "" || !synced {
			t.Errorf("%s: synced %t, records %s", step.name, synced, diff)
		}
	}
}

func TestAnObjectOfAnotherTypeIsNoRecord(t *testing.T) {
	r, _ := followed(t)
	if err := r.Delete(&corev1.Pod{}); err == nil {
		t.Error("a pod was deleted without an error")
	}
}
