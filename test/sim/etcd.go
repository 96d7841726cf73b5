package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// etcd is the store that all servers share. It keeps every change, so that a
// watch that was held up goes on where it was.
type etcd struct {
	mu       sync.Mutex
	revision int
	objects  map[string]stored
	log      []change
	// away is true while no one reaches it, cut holds those who alone do not.
	away bool
	cut  map[string]bool
	// changed is closed and replaced at every change of any of these.
	changed chan struct{}
}

// stored is an object and its time to live, 0 for ever.
type stored struct {
	object  runtime.Object
	ttl     time.Duration
	expires time.Time
}

type change struct {
	revision int
	key      string
	event    watch.Event
}

func newEtcd() *etcd {
	return &etcd{objects: map[string]stored{}, cut: map[string]bool{}, changed: make(chan struct{})}
}

// wake wakes those who wait. It needs mu.
func (e *etcd) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// setAway takes the store away, or brings it back. Like etcd's own, leases do
// not run out in between, and begin anew.
func (e *etcd) setAway(away bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = away
	if !away {
		for key, s := range e.objects {
			e.expireLater(key, s)
		}
	}
	e.wake()
}

// sever cuts one server off, or reconnects it.
func (e *etcd) sever(id string, cut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut[id] = cut
	e.wake()
}

// expireLater has an object removed when its time is up. It needs mu.
func (e *etcd) expireLater(key string, s stored) {
	if s.ttl == 0 {
		return
	}
	s.expires = time.Now().Add(s.ttl)
	e.objects[key] = s
	time.AfterFunc(s.ttl, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if now, found := e.objects[key]; found && !e.away && !now.expires.After(time.Now()) {
			e.remove(key)
		}
	})
}

// put writes an object. It needs mu.
func (e *etcd) put(key string, object runtime.Object, ttl time.Duration) {
	kind := watch.Added
	if _, found := e.objects[key]; found {
		kind = watch.Modified
	}
	object = e.record(kind, key, object)
	e.objects[key] = stored{object: object}
	e.expireLater(key, stored{object: object, ttl: ttl})
}

// remove deletes an object. It needs mu.
func (e *etcd) remove(key string) {
	s := e.objects[key]
	delete(e.objects, key)
	e.record(watch.Deleted, key, s.object)
}

// record puts a change into the log and returns the object as it was changed.
// It needs mu.
func (e *etcd) record(kind watch.EventType, key string, object runtime.Object) runtime.Object {
	e.revision++
	object = object.DeepCopyObject()
	setVersion(object, e.revision)
	e.log = append(e.log, change{e.revision, key, watch.Event{Type: kind, Object: object}})
	e.wake()
	return object
}

func setVersion(object runtime.Object, revision int) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetResourceVersion(strconv.Itoa(revision))
	}
}

// frozenToo is the suffix under which a server is cut off while it is frozen.
const frozenToo = " (frozen)"

// client is the store as one server reaches it. A call waits while the store is
// out of reach.
type client struct {
	*etcd
	id string
	// gone is closed when the server is.
	gone <-chan struct{}
}

// do calls f with mu held once the store is in reach.
func (c client) do(ctx context.Context, f func() error) error {
	for {
		c.mu.Lock()
		if !c.away && !c.cut[c.id] && !c.cut[c.id+frozenToo] {
			defer c.mu.Unlock()
			return f()
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.gone:
			return errGone
		}
	}
}

var errGone = fmt.Errorf("the server that asked is gone")

// list returns the objects whose keys begin with prefix, by key.
func (c client) list(ctx context.Context, prefix string) (objects []runtime.Object, revision int, err error) {
	err = c.do(ctx, func() error {
		for _, key := range slices.Sorted(maps.Keys(c.objects)) {
			if strings.HasPrefix(key, prefix) {
				objects = append(objects, c.objects[key].object.DeepCopyObject())
			}
		}
		revision = c.revision
		return nil
	})
	return objects, revision, err
}

// watch returns the changes after a revision, below a prefix.
func (c client) watch(ctx context.Context, prefix, after string) (watch.Interface, error) {
	revision, err := strconv.Atoi(after)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{events: make(chan watch.Event), stop: stop}
	go func() {
		defer close(w.events)
		for {
			next, err := c.next(ctx, prefix, revision)
			if err != nil {
				return
			}
			revision = next.revision
			event := watch.Event{Type: next.event.Type, Object: next.event.Object.DeepCopyObject()}
			select {
			case w.events <- event:
			case <-ctx.Done():
				return
			case <-c.gone:
				return
			}
		}
	}()
	return w, nil
}

// next waits for the next change below the prefix after a revision.
func (c client) next(ctx context.Context, prefix string, after int) (change, error) {
	for {
		var found *change
		var changed <-chan struct{}
		err := c.do(ctx, func() error {
			changed = c.changed
			// Revisions count from 1 without a gap.
			for i := after; i < len(c.log); i++ {
				if strings.HasPrefix(c.log[i].key, prefix) {
					found = &c.log[i]
					return nil
				}
			}
			after = len(c.log)
			return nil
		})
		if err != nil {
			return change{}, err
		}
		if found != nil {
			return *found, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return change{}, ctx.Err()
		case <-c.gone:
			return change{}, errGone
		}
	}
}

type watcher struct {
	events chan watch.Event
	stop   context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop() }
