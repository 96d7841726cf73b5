package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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
	wanted           chan entry
	removed, ended   chan struct{}
}

// entry is a record that is to be written: an early one if it has an
// incarnation.
type entry struct {
	ip          string
	port        int32
	incarnation string
}

func (p *Publisher) init() {
	p.once.Do(func() {
		p.wanted = make(chan entry, 1)
		p.removed = make(chan struct{})
		p.ended = make(chan struct{})
	})
}

// Publish asks for the record to be written, or renewed, by Run. It returns at
// once: who asks may hold what a shutdown waits for.
func (p *Publisher) Publish(ip string, port int32) {
	p.init()
	select {
	case <-p.wanted:
	default:
	}
	p.offer(entry{ip: ip, port: port})
}

// PublishStarting asks for an early record to be written and renewed until
// Publish is called; after that it does nothing.
func (p *Publisher) PublishStarting(ip string, port int32, incarnation string) {
	p.init()
	p.offer(entry{ip: ip, port: port, incarnation: incarnation})
}

func (p *Publisher) offer(e entry) {
	select {
	case p.wanted <- e:
	default:
		// Another caller was quicker.
	}
}

// Run writes the record whenever that is asked for, until ctx ends or the
// record is removed. To be called once.
func (p *Publisher) Run(ctx context.Context) {
	p.init()
	defer close(p.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.removed:
			cancel()
		case <-ctx.Done():
		}
	}()
	var starting entry
	var renew <-chan time.Time
	ready := false
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-p.wanted:
			if e.incarnation == "" {
				ready, renew = true, nil
				p.publish(ctx, e)
				continue
			}
			starting = e
		case <-renew:
		}
		if !ready {
			p.publish(ctx, starting)
			renew = p.Clock.After(renewInterval)
		}
	}
}

func (p *Publisher) publish(ctx context.Context, e entry) {
	bounded, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var err error
	if e.incarnation == "" {
		err = p.Storage.Publish(bounded, p.ServerID, e.ip, e.port)
	} else {
		err = p.Storage.PublishStarting(bounded, p.ServerID, e.ip, e.port, e.incarnation)
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Peers will not find this server when its endpoint record expires")
	}
}

// Remove ends the writing of the record and deletes it. It does not wait for
// long: what a slow etcd has left is done after that, until ctx ends. To be
// called while Run runs.
func (p *Publisher) Remove(ctx context.Context) error {
	p.init()
	p.removeOnce.Do(func() { close(p.removed) })
	done := make(chan error, 1)
	go func() { done <- p.remove(ctx) }()
	select {
	case err := <-done:
		return err
	case <-p.Clock.After(removePatience):
		return errSlow
	}
}

func (p *Publisher) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return p.Storage.Remove(ctx, p.ServerID)
}
