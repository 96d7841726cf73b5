package lease

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

const (
	// prefix is where stock servers keep the records, below --etcd-prefix.
	prefix = "/peerserverleases/"
	// recordTTL is how long a record outlives its last writing, as at stock.
	recordTTL = 15 * time.Second
)

// Storage reads and writes endpoint records in etcd.
type Storage struct {
	backend storage.Interface
	destroy func()
}

// NewStorage opens the storage of the records. The config is that of the
// storage factory for the resource apiServerPeerIPInfo; mediaType is the one
// that the server stores objects in (--storage-media-type). The config's codec
// is not used: it decodes to the internal type, which client-go's reflector
// drops without a word.
func NewStorage(config storagebackend.ConfigForResource, mediaType string) (*Storage, error) {
	info, found := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !found {
		return nil, fmt.Errorf("endpoint records: no serializer for the storage media type %q", mediaType)
	}
	config.Codec = lenient{scheme.Codecs.CodecForVersions(info.Serializer, scheme.Codecs.UniversalDeserializer(), corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)}
	config.EncodeVersioner = corev1.SchemeGroupVersion
	backend, destroy, err := factory.Create(config,
		func() runtime.Object { return &corev1.Endpoints{} },
		func() runtime.Object { return &corev1.EndpointsList{} },
		prefix)
	if err != nil {
		return nil, fmt.Errorf("endpoint records: open the storage: %w", err)
	}
	return &Storage{backend: backend, destroy: sync.OnceFunc(destroy)}, nil
}

// NewStorageOn returns the storage of the records on a backend that is open. Its
// keys begin with a slash. Close leaves it open.
func NewStorageOn(backend storage.Interface) *Storage {
	return &Storage{backend: backend, destroy: func() {}}
}

// lenient decodes what is no record as an empty one, which is of no use to
// anyone. As an error it would end every list, and hide all other records.
type lenient struct{ runtime.Codec }

// Decode implements runtime.Decoder.
func (c lenient) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := c.Codec.Decode(data, defaults, into)
	if err == nil {
		return object, kind, nil
	}
	record, ok := into.(*corev1.Endpoints)
	switch {
	case into == nil:
		record = &corev1.Endpoints{}
	case !ok:
		return object, kind, err
	}
	*record = corev1.Endpoints{}
	return record, kind, nil
}

// Publish writes the record of a ready server, or renews it. It must be called
// again before the TTL of 15 s ends. The incarnation is named if it is known.
func (s *Storage) Publish(ctx context.Context, serverID, ip string, port int32, incarnation string) error {
	return s.write(ctx, serverID, ip, port, func(record *corev1.Endpoints) {
		record.Annotations = nil
		sign(record, incarnation)
		record.Subsets = []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: ip}},
			Ports:     []corev1.EndpointPort{{Name: portName, Port: port, Protocol: corev1.ProtocolTCP}},
		}}
	})
}

// PublishStarting writes the early record of a server that is not ready yet, or
// renews it, like Publish.
func (s *Storage) PublishStarting(ctx context.Context, serverID, ip string, port int32, incarnation string) error {
	return s.write(ctx, serverID, ip, port, func(record *corev1.Endpoints) {
		record.Subsets = nil
		record.Annotations = map[string]string{startingAddressAnnotation: hostPort(ip, port)}
		sign(record, incarnation)
	})
}

// sign names the writer of a record, if that is known.
func sign(record *corev1.Endpoints, incarnation string) {
	if incarnation == "" {
		return
	}
	metav1.SetMetaDataAnnotation(&record.ObjectMeta, incarnationAnnotation, incarnation)
	metav1.SetMetaDataAnnotation(&record.ObjectMeta, generationAnnotation, strconv.FormatInt(record.Generation, 10))
}

func (s *Storage) write(ctx context.Context, serverID, ip string, port int32, fill func(*corev1.Endpoints)) error {
	if err := checkAddress(ip, port); err != nil {
		return fmt.Errorf("publish the endpoint record of %s: %w", serverID, err)
	}
	ttl := uint64(recordTTL / time.Second)
	update := func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		record := input.(*corev1.Endpoints)
		// An update that changes nothing is not written, and the TTL not renewed.
		record.Generation++
		fill(record)
		metav1.SetMetaDataLabel(&record.ObjectMeta, serverIDLabel, serverID)
		return record, &ttl, nil
	}
	if err := s.backend.GuaranteedUpdate(ctx, prefix+serverID, &corev1.Endpoints{}, true, nil, update, nil); err != nil {
		return fmt.Errorf("publish the endpoint record of %s: %w", serverID, err)
	}
	return nil
}

// Remove deletes the record of a server. That it was gone already is no error.
func (s *Storage) Remove(ctx context.Context, serverID string) error {
	valid := func(context.Context, runtime.Object) error { return nil }
	err := s.backend.Delete(ctx, prefix+serverID, &corev1.Endpoints{}, nil, valid, nil, storage.DeleteOptions{})
	if err != nil && !storage.IsNotFound(err) {
		return fmt.Errorf("remove the endpoint record of %s: %w", serverID, err)
	}
	return nil
}

// Close gives back what the storage holds. It may be called more than once;
// the storage must not be used afterwards.
func (s *Storage) Close() { s.destroy() }

// listWatch lets a reflector follow the records.
type listWatch struct{ *cache.ListWatch }

func (s *Storage) listWatch() listWatch {
	return listWatch{&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch, DisableChunking: true}}
}

// IsWatchListSemanticsUnSupported tells the reflector to list, then to watch:
// the records are few, and streaming lists depend on a feature gate here.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// list always reads from etcd: there is no cache in between that could answer
// with less.
func (s *Storage) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	list := &corev1.EndpointsList{}
	err := s.backend.GetList(ctx, prefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, list)
	return list, err
}

func (s *Storage) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	predicate := storage.Everything
	predicate.AllowWatchBookmarks = options.AllowWatchBookmarks
	return s.backend.Watch(ctx, prefix, storage.ListOptions{
		ResourceVersion: options.ResourceVersion,
		Predicate:       predicate,
		Recursive:       true,
		ProgressNotify:  true,
	})
}
