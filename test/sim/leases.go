package sim

import (
	"context"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// Where things are in etcd.
const (
	recordsPrefix     = "/peerserverleases/"
	leasesPrefix      = "/leases/kube-system/"
	definitionsPrefix = "/customresourcedefinitions/"
)

// renewal is how often a server renews its lease and its record.
const renewal = 10 * time.Second

// records are the endpoint records as the library reads and writes them. What it
// does not call is nil.
type records struct {
	storage.Interface
	client client
}

// GuaranteedUpdate implements storage.Interface.
func (r records) GuaranteedUpdate(ctx context.Context, key string, _ runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	return r.client.do(ctx, func() error {
		var current runtime.Object = &corev1.Endpoints{}
		if s, found := r.client.objects[key]; found {
			current = s.object.DeepCopyObject()
		}
		next, ttl, err := update(current, storage.ResponseMeta{})
		if err != nil {
			return err
		}
		r.client.put(key, next, time.Duration(ptr.Deref(ttl, 0))*time.Second)
		return nil
	})
}

// Delete implements storage.Interface.
func (r records) Delete(ctx context.Context, key string, _ runtime.Object, _ *storage.Preconditions, _ storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	return r.client.do(ctx, func() error {
		if _, found := r.client.objects[key]; !found {
			return storage.NewKeyNotFoundError(key, 0)
		}
		r.client.remove(key)
		return nil
	})
}

// GetList implements storage.Interface.
func (r records) GetList(ctx context.Context, key string, _ storage.ListOptions, into runtime.Object) error {
	return r.client.listInto(ctx, key, into)
}

// Watch implements storage.Interface.
func (r records) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	return r.client.watch(ctx, key, options.ResourceVersion)
}

func (c client) listInto(ctx context.Context, prefix string, into runtime.Object) error {
	objects, revision, err := c.list(ctx, prefix)
	if err != nil {
		return err
	}
	if err := meta.SetList(into, objects); err != nil {
		return err
	}
	accessor, err := meta.ListAccessor(into)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion(strconv.Itoa(revision))
	return nil
}

// kubernetes returns a client of the server's own for identity leases.
func (c client) kubernetes(ctx context.Context) kubernetes.Interface {
	clientset := &fake.Clientset{}
	clientset.AddReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &coordinationv1.LeaseList{}
		return true, list, c.listInto(ctx, leasesPrefix, list)
	})
	clientset.AddWatchReactor("leases", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.watch(ctx, leasesPrefix, action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
		return true, w, err
	})
	return clientset
}

// renewIdentity renews a server's identity lease, or makes it, and returns who
// holds it: that does not change as long as the lease lives.
func (c client) renewIdentity(ctx context.Context, holder string) (string, error) {
	err := c.do(ctx, func() error {
		now := metav1.NowMicro()
		if s, found := c.objects[leasesPrefix+c.id]; found {
			holder = *s.object.(*coordinationv1.Lease).Spec.HolderIdentity
		}
		c.put(leasesPrefix+c.id, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem, Name: c.id,
				Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: ptr.To[int32](3600)},
		}, 0)
		return nil
	})
	return holder, err
}

// removeIdentity deletes a server's identity lease.
func (c client) removeIdentity(ctx context.Context) error {
	return c.do(ctx, func() error {
		if _, found := c.objects[leasesPrefix+c.id]; !found {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, c.id)
		}
		c.remove(leasesPrefix + c.id)
		return nil
	})
}

// definitions returns an informer of custom resource definitions. The name of
// an object is its resource's, <resource>.<group>; the version is v1.
func (c client) definitions() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(listWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			list := &metav1.PartialObjectMetadataList{}
			return list, c.listInto(ctx, definitionsPrefix, list)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.watch(ctx, definitionsPrefix, options.ResourceVersion)
		},
	}}, &metav1.PartialObjectMetadata{}, 0, nil)
}

// define writes a custom resource definition, or deletes it.
func (e *etcd) define(name string, exists bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := definitionsPrefix + name
	if exists {
		e.put(key, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}, 0)
		return
	}
	e.remove(key)
}

// owned is the resource that a definition owns.
func owned(definition any) []schema.GroupVersionResource {
	name := definition.(*metav1.PartialObjectMetadata).Name
	r := customResource(name)
	return []schema.GroupVersionResource{{Group: r.group, Version: r.version, Resource: r.name}}
}

type listWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported tells reflectors to list, then to watch.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }
