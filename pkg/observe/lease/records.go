package lease

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
)

// records holds the endpoint records that a reflector follows in etcd.
type records struct {
	logger  klog.Logger
	changed dirty.Flag

	mu sync.Mutex
	// synced is true once the records were listed.
	synced bool
	byID   map[string]Record
	// useless is why a record is of no use, by server ID; each reason is logged
	// once, not at each renewal.
	useless map[string]string
}

// run follows the records until ctx ends. While etcd can't be reached what was
// known stays.
func (r *records) run(ctx context.Context, s *Storage, clock clock.Clock) {
	cache.NewReflectorWithOptions(s.listWatch(), &corev1.Endpoints{}, r, cache.ReflectorOptions{
		Name:    "peer-endpoint-records",
		Logger:  &r.logger,
		Clock:   clock,
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 5 * time.Second},
	}).RunWithContext(ctx)
}

// all returns the records by server ID, and whether they were listed once.
func (r *records) all() (map[string]Record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.byID), r.synced
}

// Add implements cache.ReflectorStore.
func (r *records) Add(obj any) error { return r.Update(obj) }

// Update implements cache.ReflectorStore.
func (r *records) Update(obj any) error {
	id, record, err := read(obj)
	if err != nil {
		return r.refuse(id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.useless, id)
	if r.byID == nil {
		r.byID = map[string]Record{}
	}
	old, known := r.byID[id]
	r.byID[id] = record
	if !known || !old.same(record) { // not the usual renewal
		r.changed.Raise()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (r *records) Delete(obj any) error {
	id, _, err := read(obj)
	if id == "" {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, id)
	delete(r.useless, id)
	r.changed.Raise()
	return nil
}

// Replace implements cache.ReflectorStore.
func (r *records) Replace(objs []any, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]Record, len(objs))
	for _, obj := range objs {
		id, record, err := read(obj)
		if err != nil {
			r.complain(id, err)
			continue
		}
		next[id] = record
	}
	news := !r.synced || !maps.EqualFunc(r.byID, next, Record.same)
	r.byID, r.synced = next, true
	if news {
		r.changed.Raise()
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (r *records) Resync() error { return nil }

// refuse drops a record that turned bad: an address that can't be used is no
// better than none.
func (r *records) refuse(id string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complain(id, err)
	if _, known := r.byID[id]; known {
		delete(r.byID, id)
		r.changed.Raise()
	}
	return nil
}

// complain logs why a record is of no use, if that is news. The caller holds mu.
func (r *records) complain(id string, err error) {
	if r.useless[id] == err.Error() {
		return
	}
	if r.useless == nil {
		r.useless = map[string]string{}
	}
	r.useless[id] = err.Error()
	r.logger.Error(err, "An endpoint record is of no use", "serverID", id)
}

func read(obj any) (string, Record, error) {
	stored, ok := obj.(*corev1.Endpoints)
	if !ok {
		return "", Record{}, fmt.Errorf("unexpected object %T among the endpoint records", obj)
	}
	return recordOf(stored)
}
