package sim

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/reconcilers"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"
)

// brand is whose server it is. The empty one has the library.
type brand string

// Servers without the library serve what is their own, to clients and peers
// alike. Stock ones are as those of 1.36 without --peer-ca-file: they publish a
// record once they are ready, say nothing before, and name no incarnation in it.
// Bare ones publish none at all: they have the feature off, or are older.
const (
	stock brand = "as stock"
	bare  brand = "without the feature"
)

// linkOther makes the chain of a server without the library.
func (l *life) linkOther(ctx context.Context) error {
	definitions := l.client.definitions()
	if _, err := definitions.AddEventHandler(l.followDefinitions(definitions)); err != nil {
		return err
	}
	l.hooks.Go(func() { definitions.RunWithContext(ctx) })
	l.record = otherRecord{ctx: ctx, client: l.client, brand: l.brand}
	l.handler = l.wrap(l.chain)
	return nil
}

// otherRecord writes the record of a server without the library. What it is not
// asked for is nil.
type otherRecord struct {
	reconcilers.PeerEndpointLeaseReconciler
	ctx    context.Context // the interface passes none
	client client
	brand  brand
}

// UpdateLease implements reconcilers.PeerEndpointLeaseReconciler. Like the stock
// one it leaves annotations as it finds them.
func (r otherRecord) UpdateLease(serverID, ip string, ports []corev1.EndpointPort) error {
	if r.brand == bare {
		return nil
	}
	update := func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		record := input.(*corev1.Endpoints)
		metav1.SetMetaDataLabel(&record.ObjectMeta, "apiserverIdentity", serverID)
		record.Subsets = []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: ip}}, Ports: ports}}
		record.Generation++
		return record, ptr.To(uint64(recordTTL / time.Second)), nil
	}
	// An error is mended by the next writing.
	_ = records{client: r.client}.GuaranteedUpdate(r.ctx, recordsPrefix+serverID, nil, true, nil, update, nil)
	return nil
}

// RemoveLease implements reconcilers.PeerEndpointLeaseReconciler.
func (r otherRecord) RemoveLease(serverID string) error {
	ctx, cancel := context.WithTimeout(r.ctx, time.Second)
	defer cancel()
	err := records{client: r.client}.Delete(ctx, recordsPrefix+serverID, nil, nil, nil, nil, storage.DeleteOptions{})
	if storage.IsNotFound(err) {
		return nil
	}
	return err
}
