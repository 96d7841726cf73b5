package sim

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// window is how many bytes may be under way in one direction of a connection,
// firstWindow how many of them while nothing comes back to acknowledge them.
const (
	window      = 256 << 10
	firstWindow = 16 << 10
)

// half is one direction of a connection. The network's mu guards it.
type half struct {
	way way
	// segments are under way, or have arrived and were not read.
	segments []segment
	size     int
	// mute is how many were sent since the way back is held.
	mute int
	// last is when the newest of them arrives.
	last time.Time
	// ended is set when the writer closed its end, deaf when the reader did, reset
	// when the connection broke.
	ended, deaf, reset bool
	// readBy and writeBy are the deadlines of the two ends.
	readBy, writeBy time.Time
	// changed is closed and replaced when any of these changes.
	changed chan struct{}
}

type segment struct {
	data    []byte
	arrives time.Time
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
		n, err, changed, until := c.tryRead(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		await(changed, until)
	}
}

// tryRead reads what has arrived, or returns what to wait for and until when at
// most.
func (c *conn) tryRead(p []byte) (n int, err error, changed <-chan struct{}, until time.Time) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	h, now := c.in, time.Now()
	held := c.network.isHeld(h.way)
	switch {
	case c.closed:
		return 0, net.ErrClosed, nil, until
	case passed(h.readBy, now):
		return 0, os.ErrDeadlineExceeded, nil, until
	case held:
		return 0, nil, h.changed, h.readBy
	case h.reset:
		return 0, syscall.ECONNRESET, nil, until
	case len(h.segments) == 0 && h.ended:
		return 0, io.EOF, nil, until
	case len(h.segments) == 0:
		return 0, nil, h.changed, h.readBy
	case h.segments[0].arrives.After(now):
		return 0, nil, h.changed, earlier(h.segments[0].arrives, h.readBy)
	}
	first := &h.segments[0]
	n = copy(p, first.data)
	h.size -= n
	if first.data = first.data[n:]; len(first.data) == 0 {
		h.segments = h.segments[1:]
	}
	if h.size+n >= window {
		h.wake()
	}
	return n, nil, nil, until
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err, changed := c.tryWrite(p[written:])
		if err != nil {
			return written, err
		}
		if written += n; n == 0 {
			await(changed, c.writeDeadline())
		}
	}
	return written, nil
}

func (c *conn) tryWrite(p []byte) (n int, err error, changed <-chan struct{}) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	h, now := c.out, time.Now()
	held := c.network.isHeld(h.way)
	if !c.network.isHeld(c.in.way) {
		h.mute = 0
	}
	switch {
	case c.closed:
		return 0, net.ErrClosed, nil
	case passed(h.writeBy, now):
		return 0, os.ErrDeadlineExceeded, nil
	case h.reset && !held:
		return 0, syscall.ECONNRESET, nil
	case h.deaf && !held:
		return 0, syscall.EPIPE, nil
	case h.size >= window, h.mute >= firstWindow:
		return 0, nil, h.changed
	}
	n = min(len(p), window-h.size, firstWindow-h.mute)
	if c.network.isHeld(c.in.way) {
		h.mute += n
	}
	arrives := now.Add(c.network.latency)
	if arrives.Before(h.last) {
		arrives = h.last
	}
	if pace := c.network.pace[h.way]; pace > 0 {
		arrives = arrives.Add(time.Duration(n) * time.Second / time.Duration(pace))
	}
	h.last = arrives
	h.size += n
	h.segments = append(h.segments, segment{append([]byte(nil), p[:n]...), arrives})
	h.wake()
	return n, nil, nil
}

func (c *conn) writeDeadline() time.Time {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	return c.out.writeBy
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
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.set(c.in, &c.in.readBy, t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.set(c.out, &c.out.writeBy, t) }

func (c *conn) set(h *half, deadline *time.Time, t time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	*deadline = t
	h.wake()
	return nil
}

// await waits for a change, or until a time unless that is zero.
func await(changed <-chan struct{}, until time.Time) {
	if until.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
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
