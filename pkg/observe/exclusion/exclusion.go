// Package exclusion knows what must never be taken from a peer: custom
// resources and aggregated APIs. All servers share those through etcd, so the
// local answer is the right one, and a peer's document may be about to forget
// what was just deleted.
package exclusion

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
	"peerproxy.internal/pkg/snapshot"
)

// Owned is what one custom resource definition or one APIService owns.
type Owned struct {
	// Resources are the custom resources, one for each served version.
	Resources []schema.GroupVersionResource
	// GroupVersions are the aggregated APIs.
	GroupVersions []schema.GroupVersion
}

// Config is what a [Tracker] needs.
type Config struct {
	// Grace is how long after its owner's deletion a resource stays excluded
	// from documents that are fetched anew.
	Grace time.Duration
	// Changed is raised when Set may answer something new, Touched at every
	// event of a followed object.
	Changed, Touched dirty.Flag
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Tracker follows the owners. Its methods may be called by any goroutine.
type Tracker struct {
	config Config

	mu     sync.Mutex
	synced []cache.InformerSynced
	// owned is what each object owns, by its key.
	owned map[string]Owned
	// resources and groupVersions hold what is or was owned.
	resources     claims[schema.GroupVersionResource]
	groupVersions claims[schema.GroupVersion]
}

// NewTracker returns a tracker that follows nothing yet.
func NewTracker(c Config) *Tracker {
	return &Tracker{
		config:        c,
		owned:         map[string]Owned{},
		resources:     claims[schema.GroupVersionResource]{},
		groupVersions: claims[schema.GroupVersion]{},
	}
}

// Follow follows the objects of an informer for as long as it runs. owned
// tells what an object owns; it must not change the object.
func (t *Tracker) Follow(informer cache.SharedIndexInformer, owned func(obj any) Owned) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { t.set(obj, owned(obj)) },
		UpdateFunc: func(_, obj any) { t.set(obj, owned(obj)) },
		DeleteFunc: func(obj any) { t.set(obj, Owned{}) },
	})
	if err != nil {
		return fmt.Errorf("follow the owners of excluded resources: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.synced = append(t.synced, registration.HasSynced)
	return nil
}

// set takes in what an object owns from now on.
func (t *Tracker) set(obj any, next Owned) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return // no object of an informer lacks a name
	}
	key = fmt.Sprintf("%T/%s", plain(obj), key)
	now := t.config.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.owned[key]
	// Claim first: what an object owned and still owns has no gap.
	changed := t.resources.claim(next.Resources)
	changed = t.groupVersions.claim(next.GroupVersions) || changed
	changed = t.resources.release(before.Resources, now) || changed
	changed = t.groupVersions.release(before.GroupVersions, now) || changed
	t.owned[key] = next
	if len(next.Resources)+len(next.GroupVersions) == 0 {
		delete(t.owned, key)
	}
	if changed {
		t.config.Changed.Raise()
	}
	t.config.Touched.Raise()
}

func plain(obj any) any {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}

// Synced reports whether every followed informer delivered its first list.
func (t *Tracker) Synced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, synced := range t.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// Set returns what is excluded now. Deletions that can't matter to a document
// checked at oldest, or later, are forgotten.
func (t *Tracker) Set(oldest time.Time) *snapshot.Exclusions {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := oldest.Add(-t.config.Grace)
	return &snapshot.Exclusions{
		Grace:         t.config.Grace,
		Resources:     t.resources.since(limit),
		GroupVersions: t.groupVersions.since(limit),
	}
}

// claims counts the owners of each key, and keeps when the last one went.
type claims[K comparable] map[K]claim

type claim struct {
	owners int
	gone   time.Time // zero while there are owners
}

// claim adds an owner to each key and reports whether one is owned anew.
func (c claims[K]) claim(keys []K) (changed bool) {
	for _, key := range keys {
		changed = changed || c[key].owners == 0
		c[key] = claim{owners: c[key].owners + 1}
	}
	return changed
}

// release takes an owner from each key and reports whether one has none left.
func (c claims[K]) release(keys []K, now time.Time) (changed bool) {
	for _, key := range keys {
		left := claim{owners: c[key].owners - 1}
		if left.owners == 0 {
			left.gone, changed = now, true
		}
		c[key] = left
	}
	return changed
}

// since forgets what went before the limit and returns the rest: the zero time
// for what is owned, else when the last owner went.
func (c claims[K]) since(limit time.Time) map[K]time.Time {
	maps.DeleteFunc(c, func(_ K, claim claim) bool { return claim.owners == 0 && !claim.gone.After(limit) })
	excluded := make(map[K]time.Time, len(c))
	for key, claim := range c {
		excluded[key] = claim.gone
	}
	return excluded
}
