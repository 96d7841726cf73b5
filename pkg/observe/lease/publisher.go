package lease

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// publishTimeout bounds one writing of the record: it is asked for again every
// 10 s.
const publishTimeout = 10 * time.Second

// Publisher is the one writer of this server's record.
type Publisher struct {
	// Storage holds the records.
	Storage *Storage
	// ServerID is this server's.
	ServerID string

	once, removeOnce sync.Once
	wanted           chan address
	removed, ended   chan struct{}
}

type address struct {
	ip   string
	port int32
}

func (p *Publisher) init() {
	p.once.Do(func() {
		p.wanted = make(chan address, 1)
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
	select {
	case p.wanted <- address{ip, port}:
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
	for {
		select {
		case <-ctx.Done():
			return
		case where := <-p.wanted:
			p.publish(ctx, where)
		}
	}
}

func (p *Publisher) publish(ctx context.Context, where address) {
	bounded, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := p.Storage.Publish(bounded, p.ServerID, where.ip, where.port)
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
