package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
)

// etcd is a storage with a fixed list and a watch that a test feeds.
type etcd struct {
	storage.Interface
	list  []corev1.Endpoints
	watch *watch.FakeWatcher
}

func (e *etcd) GetList(_ context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	list.(*corev1.EndpointsList).Items = e.list
	list.(*corev1.EndpointsList).ResourceVersion = "1"
	return nil
}

func (e *etcd) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return e.watch, nil
}

func identityLease(name, holder string, labels map[string]string) *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Now())
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(holder), RenewTime: &now, LeaseDurationSeconds: new(int32(3600))},
	}
}

var apiserver = map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"}

func TestTrackerJoinsLeasesAndRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		client := fake.NewClientset(identityLease("a", "a_1", apiserver), identityLease("b", "b_1", apiserver))
		backend := &etcd{list: []corev1.Endpoints{*stored("a", "192.0.2.1", 1), *stored("c", "192.0.2.3", 3)}, watch: watch.NewFake()}
		changed := dirty.New()
		tracker := NewTracker(Config{Client: client, Storage: &Storage{backend: backend, destroy: func() {}}, Changed: changed, Clock: clock.RealClock{}})
		if tracker.Synced() {
			t.Error("synced before it runs")
		}
		done := make(chan error)
		go func() { done <- tracker.Run(ctx) }()
		time.Sleep(time.Second)
		if !tracker.Synced() {
			t.Error("not synced")
		}
		lastRenewal := time.Now().Add(-time.Second)
		expires := lastRenewal.Add(time.Hour)
		want := []Member{
			{ServerID: "a", Identity: &Identity{"a_1", lastRenewal, expires}, Record: &Record{Address: "192.0.2.1:1"}},
			{ServerID: "b", Identity: &Identity{"b_1", lastRenewal, expires}},
			{ServerID: "c", Record: &Record{Address: "192.0.2.3:3"}},
		}
		if diff := cmp.Diff(want, tracker.Members(ctx)); diff != "" {
			t.Error(diff)
		}

		<-changed
		renewed := identityLease("a", "a_1", apiserver)
		if _, err := client.CoordinationV1().Leases("kube-system").Update(ctx, renewed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-changed:
			t.Error("a renewal is news")
		default:
		}
		restarted := identityLease("a", "a_2", apiserver)
		if _, err := client.CoordinationV1().Leases("kube-system").Update(ctx, restarted, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-changed
		backend.watch.Delete(stored("c", "192.0.2.3", 3))
		<-changed
		members := tracker.Members(ctx)
		if len(members) != 2 || members[0].Identity.Incarnation != "a_2" {
			t.Errorf("got %v, want a restarted and b", members)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
