package cluster

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Wire is a way to a TCP address, by an address of its own, that can be cut and
// mended. Its methods may be called from any number of goroutines.
type Wire struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

// NewWire opens a way to an address. The caller must call [Wire.Close].
func NewWire(to string) (*Wire, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, fmt.Errorf("a way to %s: %w", to, err)
	}
	w := &Wire{listener: listener, to: to, open: map[net.Conn]bool{}}
	w.running.Go(w.accept)
	return w, nil
}

// Address is where the way begins.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Cut ends every connection. New ones end as soon as they are made.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for conn := range w.open {
		conn.Close()
	}
}

// Mend lets new connections through again.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

// Close ends every connection, for good: new ones are refused. It returns when
// all that belongs to the way is gone.
func (w *Wire) Close() {
	w.listener.Close()
	w.Cut()
	w.running.Wait()
}

func (w *Wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return // the listener was closed
		}
		w.running.Go(func() { w.serve(near) })
	}
}

// serve joins a connection to one to the other end, until either ends.
func (w *Wire) serve(near net.Conn) {
	defer near.Close()
	if !w.enter(near) {
		return
	}
	defer w.leave(near)
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer far.Close()
	if !w.enter(far) {
		return
	}
	defer w.leave(far)
	var back sync.WaitGroup
	back.Go(func() { carry(near, far) })
	carry(far, near)
	back.Wait()
}

// carry copies one direction. Its end is that of the other one, too.
func carry(to, from net.Conn) {
	_, _ = io.Copy(to, from) // how it ended does not matter
	to.Close()
	from.Close()
}

// enter has a connection ended when the way is cut. It reports whether that is
// not so already.
func (w *Wire) enter(conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	w.open[conn] = true
	return true
}

func (w *Wire) leave(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, conn)
}
