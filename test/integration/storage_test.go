package integration

import (
	"context"
	"io"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
)

// kind makes new objects and lists.
type kind struct{ object, list func() runtime.Object }

// store serves a namespaced resource out of etcd, with no more ado than that:
// the strategies of a generic registry's store differ between minor versions.
type store struct {
	rest.TableConvertor
	resource resource
	kind     kind
	backend  storage.Interface
	destroy  func()
}

func newStore(config storagebackend.Config, r resource, k kind) (*store, error) {
	group := r.gv().WithResource(r.name).GroupResource()
	backend, destroy, err := factory.Create(*config.ForResource(group), k.object, k.list, r.prefix())
	if err != nil {
		return nil, err
	}
	return &store{TableConvertor: rest.NewDefaultTableConvertor(group), resource: r, kind: k, backend: backend, destroy: sync.OnceFunc(destroy)}, nil
}

// prefix is where the resource is in etcd, below the server's own prefix.
func (r resource) prefix() string { return "/" + r.group + "/" + r.name + "/" }

func (s *store) New() runtime.Object     { return s.kind.object() }
func (s *store) NewList() runtime.Object { return s.kind.list() }
func (s *store) Destroy()                { s.destroy() }
func (s *store) NamespaceScoped() bool   { return true }
func (s *store) GetSingularName() string { return s.resource.name }

func (s *store) key(ctx context.Context, name string) string {
	key := s.resource.prefix()
	if namespace := apirequest.NamespaceValue(ctx); namespace != "" {
		key += namespace + "/"
	}
	return key + name
}

func (s *store) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	out := s.New()
	err := s.backend.Get(ctx, s.key(ctx, name), storage.GetOptions{ResourceVersion: options.ResourceVersion}, out)
	return out, storageerrors.InterpretGetError(err, s.resource.gv().WithResource(s.resource.name).GroupResource(), name)
}

func (s *store) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	out := s.NewList()
	return out, s.backend.GetList(ctx, s.key(ctx, ""), listOptions(options), out)
}

func (s *store) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	return s.backend.Watch(ctx, s.key(ctx, ""), listOptions(options))
}

func listOptions(options *internalversion.ListOptions) storage.ListOptions {
	predicate := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: storage.DefaultNamespaceScopedAttr}
	if options.LabelSelector != nil {
		predicate.Label = options.LabelSelector
	}
	if options.FieldSelector != nil {
		predicate.Field = options.FieldSelector
	}
	predicate.AllowWatchBookmarks = options.AllowWatchBookmarks
	return storage.ListOptions{
		ResourceVersion:      options.ResourceVersion,
		ResourceVersionMatch: options.ResourceVersionMatch,
		SendInitialEvents:    options.SendInitialEvents,
		Predicate:            predicate,
		Recursive:            true,
	}
}

func (s *store) Create(ctx context.Context, object runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	rest.FillObjectMetaSystemFields(m)
	m.SetNamespace(apirequest.NamespaceValue(ctx))
	out := s.New()
	err = s.backend.Create(ctx, s.key(ctx, m.GetName()), object, out, 0)
	return out, storageerrors.InterpretCreateError(err, s.resource.gv().WithResource(s.resource.name).GroupResource(), m.GetName())
}

func (s *store) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions) (runtime.Object, bool, error) {
	update := func(old runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		updated, err := info.UpdatedObject(ctx, old)
		if err != nil {
			return nil, nil, err
		}
		return updated, nil, keepIdentity(updated, old)
	}
	out := s.New()
	err := s.backend.GuaranteedUpdate(ctx, s.key(ctx, name), out, false, nil, update, nil)
	return out, false, storageerrors.InterpretUpdateError(err, s.resource.gv().WithResource(s.resource.name).GroupResource(), name)
}

// keepIdentity keeps what no update may change.
func keepIdentity(updated, old runtime.Object) error {
	to, err := meta.Accessor(updated)
	if err != nil {
		return err
	}
	from, err := meta.Accessor(old)
	if err != nil {
		return err
	}
	to.SetUID(from.GetUID())
	to.SetCreationTimestamp(from.GetCreationTimestamp())
	to.SetNamespace(from.GetNamespace())
	return nil
}

func (s *store) Delete(ctx context.Context, name string, _ rest.ValidateObjectFunc, _ *metav1.DeleteOptions) (runtime.Object, bool, error) {
	out := s.New()
	err := s.backend.Delete(ctx, s.key(ctx, name), out, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	return out, true, storageerrors.InterpretDeleteError(err, s.resource.gv().WithResource(s.resource.name).GroupResource(), name)
}

// statusStorage is a subresource that reads and writes the whole object.
type statusStorage struct{ store *store }

func (s statusStorage) New() runtime.Object { return s.store.New() }
func (s statusStorage) Destroy()            {}

func (s statusStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

func (s statusStorage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, create, update, force, options)
}

// execStorage is a subresource that takes the connection over and sends back
// whatever it hears.
type execStorage struct{}

func (execStorage) New() runtime.Object      { return &Thing{} }
func (execStorage) Destroy()                 {}
func (execStorage) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

func (execStorage) NewConnectOptions() (options runtime.Object, withPath bool, pathName string) {
	return nil, false, ""
}

func (execStorage) Connect(context.Context, string, runtime.Object, rest.Responder) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, buffered)
	}), nil
}
