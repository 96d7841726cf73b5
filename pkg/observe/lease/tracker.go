package lease

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
)

// identitySelector selects the identity leases of kube-apiservers.
var identitySelector = labels.Set{"apiserver.kubernetes.io/identity": "kube-apiserver"}.String()

// Config is what a [Tracker] needs.
type Config struct {
	// Client lists and watches the identity leases; it should reach this very
	// server, so that its answers do not depend on a peer.
	Client kubernetes.Interface
	// Storage holds the endpoint records.
	Storage *Storage
	// Changed is raised whenever Members may answer something new.
	Changed dirty.Flag
	// Clock is the source of time.
	Clock clock.Clock
}

// Tracker follows the identity leases and the endpoint records. Its methods
// may be called by any goroutine.
type Tracker struct {
	config  Config
	records records

	informers  informers.SharedInformerFactory
	identities cache.SharedIndexInformer
	// identitiesSynced is true once the handlers saw the first list.
	identitiesSynced atomic.Bool

	mu sync.Mutex
	// seen is when this server saw the last renewal of a lease, by its name.
	seen map[string]sighting
}

// sighting is a renewal of a lease and when this server saw it.
type sighting struct {
	renewal metav1.MicroTime
	at      time.Time
}

// NewTracker returns a tracker that knows no one until it runs.
func NewTracker(c Config) *Tracker {
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0,
		informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = identitySelector }))
	return &Tracker{
		config:     c,
		records:    records{changed: c.Changed},
		seen:       map[string]sighting{},
		informers:  factory,
		identities: factory.Coordination().V1().Leases().Informer(),
	}
}

// Run follows the leases until ctx ends, then returns when all it started is
// gone.
func (t *Tracker) Run(ctx context.Context) error {
	t.records.logger = klog.FromContext(ctx)
	registration, err := t.identities.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(added any) { t.see(nil, added.(*coordinationv1.Lease)) },
		UpdateFunc: func(old, updated any) { t.see(old.(*coordinationv1.Lease), updated.(*coordinationv1.Lease)) },
		DeleteFunc: t.lose,
	})
	if err != nil {
		return fmt.Errorf("follow the identity leases: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { t.records.run(ctx, t.config.Storage, t.config.Clock) })
	t.informers.StartWithContext(ctx)
	defer t.informers.Shutdown()
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		t.identitiesSynced.Store(true)
		t.config.Changed.Raise()
	}
	<-ctx.Done()
	return nil
}

// see takes in a lease that is new, or was updated. It raises the flag for what
// tells more than that the holder lives: leases are renewed every 10 s, and all
// of them at each server.
func (t *Tracker) see(before, lease *coordinationv1.Lease) {
	t.mu.Lock()
	last, known := t.seen[lease.Name]
	if renewal := lease.Spec.RenewTime; renewal != nil && (!known || !last.renewal.Equal(renewal)) {
		t.seen[lease.Name] = sighting{renewal: *renewal, at: t.config.Clock.Now()}
	}
	t.mu.Unlock()
	if before == nil || holder(before) != holder(lease) {
		t.config.Changed.Raise()
	}
}

// lose takes in that a lease is gone.
func (t *Tracker) lose(deleted any) {
	if key, err := cache.DeletionHandlingObjectToName(deleted); err == nil {
		t.mu.Lock()
		delete(t.seen, key.Name)
		t.mu.Unlock()
	}
	t.config.Changed.Raise()
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// Synced reports whether both the leases and the records were listed once.
func (t *Tracker) Synced() bool {
	_, listed := t.records.all()
	return listed && t.identitiesSynced.Load()
}

// Members returns all that is known of the members, this server included, by
// server ID.
func (t *Tracker) Members(ctx context.Context) []Member {
	byID := map[string]*Member{}
	member := func(id string) *Member {
		if byID[id] == nil {
			byID[id] = &Member{ServerID: id}
		}
		return byID[id]
	}
	records, _ := t.records.all()
	for id, record := range records {
		member(id).Record = &record
	}
	t.mu.Lock()
	seen := maps.Clone(t.seen)
	t.mu.Unlock()
	for _, obj := range t.identities.GetStore().List() {
		lease := obj.(*coordinationv1.Lease)
		last, known := seen[lease.Name]
		if !known {
			continue // its handler is about to be called, or it has no renewTime
		}
		identity, err := identityOf(lease, last.at)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("An identity lease is of no use", "serverID", lease.Name, "reason", err.Error())
			continue
		}
		member(lease.Name).Identity = &identity
	}
	members := make([]Member, 0, len(byID))
	for _, m := range byID {
		members = append(members, *m)
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ServerID, b.ServerID) })
	return members
}
