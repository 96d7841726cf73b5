package lease

import (
	"context"
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
)

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

// Remove ends the writing of the record and deletes it. To be called while Run
// runs.
func (p *Publisher) Remove(ctx context.Context) error {
	p.init()
	p.removeOnce.Do(func() { close(p.removed) })
	select {
	case <-p.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return p.Storage.Remove(ctx, p.ServerID)
}
