package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/observe/dirty"
)

const (
	// publishTimeout bounds one writing of the record: it is asked for again every
	// 10 s.
	publishTimeout = 10 * time.Second
	// renewInterval is how often an early record is written; who asks for the
	// record of a ready server asks as often by itself.
	renewInterval = 10 * time.Second
	// removeTimeout bounds the removal of the record; one that stays is gone with
	// its TTL.
	removeTimeout = 2 * time.Second
	// removePatience is how long who stops a server is kept waiting for that. The
	// server's hooks run one after another, and while one waits for a dead etcd the
	// identity lease may begin to be renewed, which holds up its own hook for half
	// a minute.
	removePatience = 250 * time.Millisecond
)

var errSlow = errors.New("the endpoint record is not removed yet: etcd is slow; it ends with its TTL at the latest")

// Publisher is the one writer of this server's record.
type Publisher struct {
	// Storage holds the records.
	Storage *Storage
	// ServerID is this server's.
	ServerID string
	// Clock is the source of time.
	Clock clock.Clock

	once, removeOnce sync.Once
	// removed is closed when the record is to be removed, ended when no one writes
	// it any more, gone when the removal is over. failed is read after that.
	removed, ended, gone chan struct{}
	failed               error
	// changed is raised when the record is to be written.
	changed dirty.Flag

	mu     sync.Mutex
	record entry
}

// entry is a record that is to be written, an early one until the server is
// ready. It is none without an address.
type entry struct {
	ip          string
	port        int32
	incarnation string
	ready       bool
}

func (p *Publisher) init() {
	p.once.Do(func() {
		p.removed = make(chan struct{})
		p.ended = make(chan struct{})
		p.gone = make(chan struct{})
		p.changed = dirty.New()
	})
}

// Publish asks for the record of a ready server to be written, or renewed, by
// Run. It returns at once: who asks may hold what a shutdown waits for.
func (p *Publisher) Publish(ip string, port int32) {
	p.change(func(e *entry) { e.ip, e.port, e.ready = ip, port, true })
}

// PublishStarting tells the incarnation, which every record names from then on,
// and asks for an early record to be written and renewed until Publish is called.
// Without an address there is no early record.
func (p *Publisher) PublishStarting(ip string, port int32, incarnation string) {
	p.change(func(e *entry) {
		e.incarnation = incarnation
		if !e.ready {
			e.ip, e.port = ip, port
		}
	})
}

func (p *Publisher) change(change func(*entry)) {
	p.init()
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.record)
	p.changed.Raise()
}

// Run writes the record whenever that is asked for, until ctx ends or the
// record is removed. It returns when a removal that was asked for is over, too.
// To be called once.
func (p *Publisher) Run(ctx context.Context) {
	p.init()
	p.write(ctx)
	close(p.ended)
	select {
	case <-p.removed:
		<-p.gone
	default:
	}
}

func (p *Publisher) write(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.removed:
			cancel()
		case <-ctx.Done():
		}
	}()
	var renew <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-renew:
		}
		p.mu.Lock()
		record := p.record
		p.mu.Unlock()
		if record.ip == "" {
			continue
		}
		p.publish(ctx, record)
		renew = nil
		if !record.ready {
			renew = p.Clock.After(renewInterval)
		}
	}
}

func (p *Publisher) publish(ctx context.Context, e entry) {
	bounded, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var err error
	if e.ready {
		err = p.Storage.Publish(bounded, p.ServerID, e.ip, e.port, e.incarnation)
	} else {
		err = p.Storage.PublishStarting(bounded, p.ServerID, e.ip, e.port, e.incarnation)
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Peers will not find this server when its endpoint record expires")
	}
}

// Remove ends the writing of the record and deletes it. It does not wait for
// long: what a slow etcd has left is done after that, within 2 s in all, whether
// ctx has ended or not. A server that stops ends its context right after. To be
// called while Run runs.
func (p *Publisher) Remove(ctx context.Context) error {
	p.init()
	p.removeOnce.Do(func() {
		close(p.removed)
		go p.remove(context.WithoutCancel(ctx))
	})
	select {
	case <-p.gone:
		return p.failed
	case <-p.Clock.After(removePatience):
		return errSlow
	}
}

func (p *Publisher) remove(ctx context.Context) {
	defer close(p.gone)
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	select {
	case <-p.ended:
		p.failed = p.Storage.Remove(ctx, p.ServerID)
	case <-ctx.Done():
		p.failed = context.Cause(ctx)
	}
}
