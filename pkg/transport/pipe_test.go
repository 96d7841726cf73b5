package transport_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"peerproxy.internal/test/peertest"
)

// pipeListener accepts in-memory connections, whose time testing/synctest can
// turn, and can stop them as a stopped process stops its own.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}

	mu     sync.Mutex
	frozen chan struct{} // nil, or closed when thawed
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- &freezingConn{Conn: theirs, listener: l}:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = make(chan struct{})
}

func (l *pipeListener) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.frozen)
	l.frozen = nil
}

func (l *pipeListener) wait() {
	l.mu.Lock()
	frozen := l.frozen
	l.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// freezingConn takes what it is sent while frozen, as a kernel does, and says
// nothing.
type freezingConn struct {
	net.Conn
	listener *pipeListener
}

func (c *freezingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.listener.wait()
	return n, err
}

func (c *freezingConn) Write(p []byte) (int, error) {
	c.listener.wait()
	return c.Conn.Write(p)
}

// pipeNetwork is listeners by their addresses.
type pipeNetwork map[string]*pipeListener

func (n pipeNetwork) serve(t *testing.T, address string, peer *peertest.Peer) {
	t.Helper()
	n[address] = newPipeListener()
	peer.ServeAlso(n[address])
	t.Cleanup(peer.Stop)
}

func (n pipeNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n[address].dial(ctx, network, address)
}

func (n pipeNetwork) close() {
	for _, l := range n {
		_ = l.Close()
	}
}
