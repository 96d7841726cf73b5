package observe

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/observe/dirty"
	"peerproxy.internal/pkg/observe/discovery"
	"peerproxy.internal/pkg/observe/exclusion"
	"peerproxy.internal/pkg/observe/lease"
	"peerproxy.internal/pkg/snapshot"
)

// readyTimeout bounds how long readiness waits for peers.
const readyTimeout = 10 * time.Second

// Members tells who the members are; lease.Tracker does.
type Members interface {
	Members(ctx context.Context) []lease.Member
	Synced() bool
	Run(ctx context.Context) error
}

// Config is what an [Observer] needs.
type Config struct {
	// ServerID is this server's own ID.
	ServerID string
	// Members tells who the members are. It must raise Changed.
	Members Members
	// Exclusions tells what peers may not bring. It must raise Changed, and
	// Touched when the own document may be about to change.
	Exclusions *exclusion.Tracker
	// Changed is raised whenever there is news.
	Changed, Touched dirty.Flag
	// Local carries requests to this server's own handler, Peers to the host in
	// their URL.
	Local, Peers http.RoundTripper
	// Limits bound what is kept and what is doubted.
	Limits Limits
	// BuiltIn, optional, reports whether a group can be built into an apiserver.
	// Nil stands for [snapshot.BuiltIn].
	BuiltIn func(group string) bool
	// Clock is the source of time.
	Clock clock.Clock
	// Random returns a number from 0 up to but not including n. Any goroutine may
	// call it.
	Random func(n int) int
}

// Observer follows the control plane and publishes snapshots of it.
type Observer struct {
	config Config
	local  discovery.Local
	store  snapshot.Store

	// ready is closed once, by Run.
	ready chan struct{}
	// born is when this server began, incarnation takes the one that it is then.
	born        time.Time
	incarnation chan string

	// The loop's own state: no one else touches it.
	memory   Memory
	pollers  map[string]poller
	excluded *snapshot.Exclusions
	isReady  bool
	states   map[string]snapshot.State
	// self is this server's incarnation, empty until it is known.
	self string

	// running counts the goroutines that Run has to wait for.
	running sync.WaitGroup
	// stopped is closed when no snapshot will be published any more.
	stopped chan struct{}

	mu sync.Mutex
	// documents are the newest documents of peers by server ID.
	documents map[string]*snapshot.Document
	// published is closed and replaced at each publication.
	published chan struct{}
	// expiring is true while some exclusion ends by the passing of time.
	expiring bool
}

// poller is a running poller: whom it asks, and how to stop it.
type poller struct {
	*discovery.Poller
	address, incarnation string
	state                snapshot.State
	stop                 context.CancelFunc
}

// New returns an observer that knows nothing until it runs.
func New(c Config) *Observer {
	return &Observer{
		config: c,
		local: discovery.Local{
			Server:  discovery.Server{ID: c.ServerID, Host: "local", Transport: c.Local},
			Touched: c.Touched,
			Changed: c.Changed,
			Clock:   c.Clock,
		},
		ready:       make(chan struct{}),
		born:        c.Clock.Now(),
		incarnation: make(chan string, 1),
		stopped:     make(chan struct{}),
		memory:      Memory{},
		pollers:     map[string]poller{},
		documents:   map[string]*snapshot.Document{},
		published:   make(chan struct{}),
	}
}

// Load returns the current snapshot, never nil.
func (o *Observer) Load() *snapshot.Snapshot { return o.store.Load() }

// Ready is closed when merged documents can be served, or 10 s after the start
// of Run: neither a peer nor an own handler that does not answer keeps this
// server from serving.
func (o *Observer) Ready() <-chan struct{} { return o.ready }

// Incarnation takes this server's own incarnation, once, as soon as peers may
// ask it what it serves: its handler answers discovery, and its identity lease
// is no longer that of the process before.
func (o *Observer) Incarnation() <-chan string { return o.incarnation }

// Run observes until ctx ends, then returns when all it started is gone. The
// error is that of following the members.
func (o *Observer) Run(ctx context.Context) error {
	var err error
	o.running.Go(func() { o.local.Run(ctx) })
	o.running.Go(func() {
		if err = o.config.Members.Run(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The members of the control plane can't be followed")
		}
	})
	o.loop(ctx)
	close(o.stopped)
	o.running.Wait()
	return err
}

// loop looks whenever something changed, or may have by the passing of time.
func (o *Observer) loop(ctx context.Context) {
	started := o.config.Clock.Now()
	for {
		next := o.look(ctx, started)
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = o.config.Clock.After(next.Sub(o.config.Clock.Now()))
		}
		select {
		case <-ctx.Done():
			return
		case <-o.config.Changed:
		case <-timer:
		}
	}
}

// look reads the whole state, publishes the snapshot that it makes, and returns
// when to look again at the latest.
func (o *Observer) look(ctx context.Context, started time.Time) time.Time {
	facts := o.facts(ctx)
	deadline := started.Add(readyTimeout)
	late := !facts.Now.Before(deadline)
	facts.Blind = late && facts.Local == nil
	content, memory, next := Build(facts, o.memory, o.config.Limits)
	o.memory = memory
	if !o.isReady {
		o.isReady = facts.Listed && facts.Local != nil && o.config.Exclusions.Synced() && (late || complete(content))
		if !o.isReady && !late && (next.IsZero() || deadline.Before(next)) {
			next = deadline
		}
	}
	content.Ready = o.isReady
	content.BuiltIn = o.config.BuiltIn
	o.publish(snapshot.New(content))
	if o.isReady || late {
		o.tellReady(ctx, facts)
	}
	o.tellStates(ctx, content.Peers)
	o.follow(ctx, content.Peers)
	o.touch(facts.Excluded)
	o.tellIncarnation(ctx, facts)
	return next
}

// tellStates tells of peers that have come, changed their state, or gone.
func (o *Observer) tellStates(ctx context.Context, peers []*snapshot.Peer) {
	logger := klog.FromContext(ctx)
	states := map[string]snapshot.State{}
	count := map[snapshot.State]int{}
	for _, peer := range peers {
		states[peer.ServerID] = peer.State
		count[peer.State]++
		if before, known := o.states[peer.ServerID]; !known || before != peer.State {
			logger.Info("A peer's state has changed", "peer", peer.ServerID, "state", peer.State, "address", peer.Address)
		}
	}
	for id := range o.states {
		if _, known := states[id]; !known {
			logger.Info("A peer takes no part any more", "peer", id)
		}
	}
	o.states = states
	for state := snapshot.StateServing; state <= snapshot.StateDeparted; state++ {
		metrics.SetPeers(strings.ToLower(state.String()), count[state])
	}
}

// tellIncarnation tells the own incarnation once it is known. That it changes
// afterwards is another server's doing: a server has one for life.
func (o *Observer) tellIncarnation(ctx context.Context, facts Facts) {
	now := ""
	for _, member := range facts.Members {
		if member.ServerID == o.config.ServerID && member.Identity != nil && !member.Identity.Renewed.Before(o.born) {
			now = member.Identity.Incarnation
		}
	}
	switch {
	case now == "" || now == o.self || facts.Local == nil:
	case o.self == "":
		o.self = now
		o.incarnation <- now
	default:
		o.self = now
		klog.FromContext(ctx).Error(nil, "Another server has this server's ID, and takes its identity lease and endpoint record from it: every server needs an ID of its own, by its host name or --peer-server-id", "serverID", o.config.ServerID, "holder", now)
	}
}

// tellReady lets those go on who wait for readiness: the snapshot is there.
func (o *Observer) tellReady(ctx context.Context, facts Facts) {
	select {
	case <-o.ready:
		return
	default:
		close(o.ready)
	}
	if !o.isReady {
		klog.FromContext(ctx).Error(nil, "Merged discovery is refused until this server and its peers are known",
			"ownDiscoveryRead", facts.Local != nil, "leasesListed", facts.Listed, "exclusionsSynced", o.config.Exclusions.Synced())
	}
}

// touch has the peers asked soon when what all servers share has changed.
func (o *Observer) touch(excluded *snapshot.Exclusions) {
	if excluded.Equal(o.excluded) {
		return
	}
	o.excluded = excluded
	for _, running := range o.pollers {
		running.Touched.Raise()
	}
}

func (o *Observer) facts(ctx context.Context) Facts {
	facts := Facts{
		ServerID: o.config.ServerID,
		Now:      o.config.Clock.Now(),
		Listed:   o.config.Members.Synced(),
		Members:  o.config.Members.Members(ctx),
		Local:    o.local.Document(),
	}
	o.mu.Lock()
	facts.Documents = maps.Clone(o.documents)
	o.mu.Unlock()
	facts.Excluded = o.config.Exclusions.Set(oldest(facts, o.memory))
	o.mu.Lock()
	o.expiring = facts.Excluded.Expiring()
	o.mu.Unlock()
	return facts
}

// oldest is when the oldest document that may come into force was checked.
func oldest(facts Facts, memory Memory) time.Time {
	oldest := facts.Now
	for _, document := range facts.Documents {
		oldest = earlier(oldest, document)
	}
	for _, m := range memory {
		oldest = earlier(oldest, m.served.document)
	}
	return oldest
}

func earlier(t time.Time, document *snapshot.Document) time.Time {
	if document != nil && document.Checked.Before(t) {
		return document.Checked
	}
	return t
}

// complete reports whether every member with a record has a document.
func complete(content snapshot.Content) bool {
	return !slices.ContainsFunc(content.Peers, func(p *snapshot.Peer) bool { return p.State.Reachable() && p.Document == nil })
}

func (o *Observer) publish(next *snapshot.Snapshot) {
	o.store.Publish(next)
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.published)
	o.published = make(chan struct{})
}

// follow runs one poller for each peer with a record, as it is now, and forgets
// the documents of servers that are no longer peers.
func (o *Observer) follow(ctx context.Context, peers []*snapshot.Peer) {
	wanted := map[string]*snapshot.Peer{}
	known := map[string]bool{}
	for _, peer := range peers {
		known[peer.ServerID] = true
		if peer.State.Reachable() {
			wanted[peer.ServerID] = peer
		}
	}
	for id, running := range o.pollers {
		peer := wanted[id]
		switch {
		case peer == nil || peer.Address != running.address:
			running.stop()
			delete(o.pollers, id)
		case peer.Incarnation != running.incarnation:
			running.incarnation = peer.Incarnation
			o.pollers[id] = running
			running.Renew(peer.Incarnation)
		case peer.State != running.state:
			// It is ready now: what it said before may have been less than all.
			running.state = peer.State
			o.pollers[id] = running
			running.Touched.Raise()
		}
	}
	for id, peer := range wanted {
		if _, running := o.pollers[id]; !running {
			o.pollers[id] = o.poll(ctx, peer)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.documents, func(id string, _ *snapshot.Document) bool { return !known[id] })
}

// poll starts a poller for the peer.
func (o *Observer) poll(ctx context.Context, peer *snapshot.Peer) poller {
	ctx, stop := context.WithCancel(ctx)
	began := o.config.Clock.Now()
	p := &discovery.Poller{
		Server: discovery.Server{ID: peer.ServerID, Incarnation: peer.Incarnation, Host: peer.Address, Transport: o.config.Peers},
		Last:   peer.Document,
		Deliver: func(document *snapshot.Document) {
			o.deliver(ctx, document, began)
		},
		Touched: dirty.New(),
		Renewed: dirty.New(),
		Clock:   o.config.Clock,
		Random:  o.config.Random,
	}
	klog.FromContext(ctx).V(2).Info("Following a peer's discovery", "peer", peer.ServerID, "address", peer.Address)
	o.running.Go(func() { p.Run(ctx) })
	return poller{Poller: p, address: peer.Address, incarnation: peer.Incarnation, state: peer.State, stop: stop}
}

// deliver takes in a document from a poller that began then, unless that was
// stopped meanwhile: the address may by now be another server's.
func (o *Observer) deliver(ctx context.Context, document *snapshot.Document, began time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	before := o.documents[document.ServerID]
	o.documents[document.ServerID] = document
	first := before == nil || before.Checked.Before(began)
	if first || o.expiring || before.Incarnation != document.Incarnation || !before.SameContent(document) {
		o.config.Changed.Raise()
	}
}
