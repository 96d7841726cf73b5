package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

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
}

// NewTracker returns a tracker that knows no one until it runs.
func NewTracker(c Config) *Tracker {
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0,
		informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = identitySelector }))
	return &Tracker{
		config:     c,
		records:    records{changed: c.Changed},
		informers:  factory,
		identities: factory.Coordination().V1().Leases().Informer(),
	}
}

// Run follows the leases until ctx ends, then returns when all it started is
// gone.
func (t *Tracker) Run(ctx context.Context) error {
	t.records.logger = klog.FromContext(ctx)
	registration, err := t.identities.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { t.config.Changed.Raise() },
		UpdateFunc: func(old, new any) { t.renewed(old, new) },
		DeleteFunc: func(any) { t.config.Changed.Raise() },
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

// renewed raises the flag for an update that tells more than that the holder
// lives: leases are renewed every 10 s, and all of them at each server.
func (t *Tracker) renewed(old, new any) {
	before, after := old.(*coordinationv1.Lease), new.(*coordinationv1.Lease)
	if holder(before) != holder(after) {
		t.config.Changed.Raise()
	}
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
	for _, obj := range t.identities.GetStore().List() {
		lease := obj.(*coordinationv1.Lease)
		identity, err := identityOf(lease)
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
