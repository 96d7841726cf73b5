package sim

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

// way is one direction of a link between two hosts, by their server IDs.
type way struct{ from, to string }

// network carries bytes between hosts, as a kernel and a wire do: a connection
// to a host where no one listens is refused, bytes on a way that is cut wait
// until it heals, and a frozen host's kernel still takes connections.
type network struct {
	// latency is how long bytes take.
	latency time.Duration

	mu    sync.Mutex
	hosts map[string]*host // by address
	// owners are the hosts by address, whether they listen or not.
	owners map[string]string
	frozen map[string]bool
	// vanished are hosts that no longer answer at all.
	vanished map[string]bool
	// cut holds since when a way is cut.
	cut map[way]time.Time
	// pace bounds the bytes per second of a way.
	pace  map[way]int
	conns map[*conn]bool
	// changed is closed and replaced when the condition of a way or host changes.
	changed chan struct{}
}

// host is a host that listens.
type host struct {
	id      string
	backlog chan *conn
	closed  chan struct{}
}

func newNetwork(latency time.Duration) *network {
	return &network{
		latency:  latency,
		hosts:    map[string]*host{},
		owners:   map[string]string{},
		frozen:   map[string]bool{},
		vanished: map[string]bool{},
		cut:      map[way]time.Time{},
		pace:     map[way]int{},
		conns:    map[*conn]bool{},
		changed:  make(chan struct{}),
	}
}

// change changes the condition of the network, and wakes all who wait for it.
func (n *network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
	for c := range n.conns {
		c.in.wake()
	}
}

// isHeld reports whether bytes on a way wait. It needs mu.
func (n *network) isHeld(w way) bool { return n.isCut(w) || n.frozen[w.from] || n.frozen[w.to] }

func (n *network) isCut(w way) bool {
	return !n.cut[w].IsZero() || n.vanished[w.from] || n.vanished[w.to]
}

// isDeaf reports whether the host from which a way leads had heard nothing from
// its other end for so long, when it sent something, that TCP has not sent it on.
// It needs mu.
func (n *network) isDeaf(w way, sent time.Time) bool {
	since := n.cut[way{w.to, w.from}]
	return !since.IsZero() && sent.Sub(since) > unanswered
}

// vanish takes a host off the network, or brings a new one in its place.
func (n *network) vanish(id string, vanished bool) { n.change(func() { n.vanished[id] = vanished }) }

// freeze stops a host, or lets it go on.
func (n *network) freeze(id string, frozen bool) { n.change(func() { n.frozen[id] = frozen }) }

// sever cuts a way, or heals it.
func (n *network) sever(w way, cut bool) {
	n.change(func() {
		delete(n.cut, w)
		if cut {
			n.cut[w] = time.Now()
		}
	})
}

// slow bounds the bytes per second of a way; 0 lifts the bound.
func (n *network) slow(w way, pace int) { n.change(func() { n.pace[w] = pace }) }

// kill resets all connections of a host, as the end of its process does.
func (n *network) kill(id string) {
	n.change(func() {
		for c := range n.conns {
			if c.in.way.from == id || c.in.way.to == id {
				c.in.reset = true
			}
		}
	})
}

// listen makes a host listen at an address.
func (n *network) listen(id, address string) *listener {
	h := &host{id: id, backlog: make(chan *conn, 256), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[address], n.owners[address] = h, id
	return &listener{network: n, host: h, address: address}
}

// dialer dials from a host.
func (n *network) dialer(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := n.dial(ctx, from, address)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: addr(address), Err: err}
		}
		return c, nil
	}
}

func (n *network) dial(ctx context.Context, from, address string) (net.Conn, error) {
	if err := pause(ctx, 2*n.latency); err != nil {
		return nil, err
	}
	for {
		c, changed, err := n.tryDial(from, address)
		if c != nil || err != nil {
			return c, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryDial returns a connection, or why there is none, or what to wait for.
func (n *network) tryDial(from, address string) (net.Conn, <-chan struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, to := n.hosts[address], n.owners[address]
	if n.frozen[from] || n.isCut(way{from, to}) || n.isCut(way{to, from}) {
		return nil, n.changed, nil
	}
	if h == nil {
		return nil, nil, syscall.ECONNREFUSED
	}
	ours, theirs := n.connect(from, h.id, address)
	select {
	case h.backlog <- theirs:
		return ours, nil, nil
	default:
		return nil, n.changed, nil // the backlog is full: the SYN is dropped
	}
}

// connect makes a connection. It needs mu.
func (n *network) connect(from, to, address string) (ours, theirs *conn) {
	there, back := newHalf(way{from, to}), newHalf(way{to, from})
	ours = &conn{network: n, in: back, out: there, local: addr(from + ":50000"), remote: addr(address)}
	theirs = &conn{network: n, in: there, out: back, local: addr(address), remote: addr(from + ":50000")}
	n.conns[ours], n.conns[theirs] = true, true
	return ours, theirs
}

// pause waits unless the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listener is a host's listening socket.
type listener struct {
	network *network
	host    *host
	address string
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.host.backlog:
		return c, nil
	case <-l.host.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.network.change(func() {
		if l.network.hosts[l.address] != l.host {
			return
		}
		delete(l.network.hosts, l.address)
		close(l.host.closed)
		for len(l.host.backlog) > 0 {
			c := <-l.host.backlog
			c.in.reset, c.out.reset = true, true
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return addr(l.address) }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }
