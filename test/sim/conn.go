package sim

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// unanswered is for how long new bytes are sent when nothing comes back: TCP then
// repeats the oldest of them, and sends no others.
const unanswered = time.Second

// half is one direction of a connection. The network's mu guards it.
type half struct {
	way way
	// segments are under way, or have arrived and were not read.
	segments []segment
	// last is when the newest of them arrives.
	last time.Time
	// ended is set when the writer closed its end, deaf when the reader did, reset
	// when the connection broke.
	ended, deaf, reset bool
	// readBy is the reader's deadline.
	readBy time.Time
	// changed is closed and replaced when any of these changes.
	changed chan struct{}
}

type segment struct {
	data          []byte
	sent, arrives time.Time
}

func newHalf(w way) *half { return &half{way: w, changed: make(chan struct{})} }

// wake wakes those who wait. It needs mu.
func (h *half) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// conn is one end of a connection. All waiting in it is on channels and timers,
// as testing/synctest wants.
type conn struct {
	network       *network
	in, out       *half
	local, remote net.Addr
	closed        bool // guarded by the network's mu
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, until, err := c.tryRead(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		until.await()
	}
}

// tryRead reads what has arrived, or returns what to wait for.
func (c *conn) tryRead(p []byte) (int, wait, error) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	h, now := c.in, time.Now()
	change := wait{h.changed, h.readBy}
	switch {
	case c.closed:
		return 0, wait{}, net.ErrClosed
	case passed(h.readBy, now):
		return 0, wait{}, os.ErrDeadlineExceeded
	case c.network.isHeld(h.way):
		return 0, change, nil
	case h.reset:
		return 0, wait{}, syscall.ECONNRESET
	case len(h.segments) == 0 && h.ended:
		return 0, wait{}, io.EOF
	case len(h.segments) == 0:
		return 0, change, nil
	case c.network.isDeaf(h.way, h.segments[0].sent):
		return 0, change, nil
	case h.segments[0].arrives.After(now):
		return 0, wait{h.changed, earlier(h.segments[0].arrives, h.readBy)}, nil
	}
	first := &h.segments[0]
	n := copy(p, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		h.segments = h.segments[1:]
	}
	return n, wait{}, nil
}

// Write implements net.Conn. It never blocks: who writes may hold a mutex, and a
// bubble's time stands still while anyone waits for one.
func (c *conn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	h, held := c.out, c.network.isHeld(c.out.way)
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case h.reset && !held:
		return 0, syscall.ECONNRESET
	case h.deaf && !held:
		return 0, syscall.EPIPE
	}
	now := time.Now()
	arrives := latest(now.Add(c.network.latency), h.last)
	if pace := c.network.pace[h.way]; pace > 0 {
		arrives = arrives.Add(time.Duration(len(p)) * time.Second / time.Duration(pace))
	}
	h.last = arrives
	h.segments = append(h.segments, segment{append([]byte(nil), p...), now, arrives})
	h.wake()
	return len(p), nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.out.ended, c.in.deaf = true, true
	c.out.wake()
	c.in.wake()
	delete(c.network.conns, c)
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.in.readBy = t
	c.in.wake()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// wait is what to wait for: a change, or a time unless that is zero.
type wait struct {
	changed <-chan struct{}
	until   time.Time
}

func (w wait) await() {
	if w.until.IsZero() {
		<-w.changed
		return
	}
	timer := time.NewTimer(time.Until(w.until))
	defer timer.Stop()
	select {
	case <-w.changed:
	case <-timer.C:
	}
}

func passed(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

// earlier returns the earlier of a time and one that may be zero, for never.
func earlier(t, or time.Time) time.Time {
	if or.IsZero() || t.Before(or) {
		return t
	}
	return or
}
