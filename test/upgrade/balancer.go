package upgrade

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Backend is a server behind a [Balancer].
type Backend struct {
	Name, Address string
	// Ready returns why the server should get no new connections, or nil.
	Ready func(context.Context) error
}

// Balancer spreads TCP connections over those backends that are ready, in turn.
// Connections that are there stay until one of their ends closes them: what a
// network load balancer with health checks does.
type Balancer struct {
	listener net.Listener
	period   time.Duration
	backends []*backend

	mu   sync.Mutex
	next int
}

type backend struct {
	Backend
	in bool // guarded by the balancer's mu
	// agreed is how many checks in a row disagreed with in; the checker's own.
	agreed int
}

// A backend comes in, and is taken out, when so many checks in a row say so.
const checksToChange = 2

// dialTimeout bounds how long a backend is given before the next one is tried.
const dialTimeout = time.Second

// NewBalancer returns a balancer that listens on loopback and checks each
// backend once a period.
func NewBalancer(period time.Duration, backends ...Backend) (*Balancer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("load balancer: %w", err)
	}
	b := &Balancer{listener: listener, period: period}
	for _, config := range backends {
		b.backends = append(b.backends, &backend{Backend: config})
	}
	return b, nil
}

// Address is where it listens.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// URL is where clients find it.
func (b *Balancer) URL() string { return "https://" + b.Address() }

// In reports whether new connections go to the backend.
func (b *Balancer) In(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, backend := range b.backends {
		if backend.Name == name {
			return backend.in
		}
	}
	return false
}

// Run balances until ctx ends, then closes every connection and returns when
// all that it started is gone.
func (b *Balancer) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, backend := range b.backends {
		running.Go(func() { b.check(ctx, backend) })
	}
	stop := context.AfterFunc(ctx, func() { b.listener.Close() })
	defer stop()
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return // the listener was closed
		}
		running.Go(func() { b.serve(ctx, conn) })
	}
}

// check asks a backend whether it is ready, once a period.
func (b *Balancer) check(ctx context.Context, backend *backend) {
	tick := time.NewTicker(b.period)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, max(b.period, dialTimeout))
		err := backend.Ready(asked)
		cancel()
		b.mu.Lock()
		backend.agree(err == nil)
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// agree takes in what a check says.
func (b *backend) agree(ready bool) {
	if ready == b.in {
		b.agreed = 0
		return
	}
	if b.agreed++; b.agreed == checksToChange {
		b.in, b.agreed = ready, 0
	}
}

// serve joins a client's connection to one to a backend.
func (b *Balancer) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server := b.dial(ctx)
	if server == nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() { pass(client, server) })
	pass(server, client)
	back.Wait()
}

// dial connects to the next backend that takes the connection, nil if none does.
func (b *Balancer) dial(ctx context.Context) net.Conn {
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, address := range b.turn() {
		if conn, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			return conn
		}
	}
	return nil
}

// turn returns the addresses of the backends that are in, the next one first.
func (b *Balancer) turn() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var addresses []string
	for i := range b.backends {
		if backend := b.backends[(b.next+i)%len(b.backends)]; backend.in {
			addresses = append(addresses, backend.Address)
		}
	}
	b.next++
	return addresses
}

// pass copies one direction. At its end the other side learns that no more will
// come, and may still answer.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close() // it was not closed in order: nor is the other one
		return
	}
	if half, ok := to.(*net.TCPConn); ok {
		half.CloseWrite()
	}
}
