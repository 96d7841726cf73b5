package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
)

// dialQueue lets connections to one address be made one after another. Of a
// thousand requests that want one at the same time net/http would make a
// thousand, to use the first alone if it speaks HTTP/2.
type dialQueue struct {
	dial DialFunc

	mu      sync.Mutex
	leading map[string]*leader // by address
}

// leader is a dial in progress. The result is there once done is closed.
type leader struct {
	done   chan struct{}
	err    error
	shared bool
}

// errNotNeeded ends a dial for which no request waits any more. No request
// sees it.
var errNotNeeded = errors.New("no request waits for the connection")

func newDialQueue(dial DialFunc) *dialQueue {
	return &dialQueue{dial: dial, leading: map[string]*leader{}}
}

// dialContext dials the address unless another dial to it is in progress. In that
// case it waits, and then fails as that did, or dials if there is still need: the
// connection can't be shared, or is full already.
func (q *dialQueue) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	for {
		ahead, own := q.line(address)
		if ahead == nil {
			return q.lead(ctx, own, network, address)
		}
		select {
		case <-ahead.done:
		case <-ctx.Done():
			return nil, &ConnectError{Reason: dialReason(ctx.Err()), Err: context.Cause(ctx)}
		}
		switch {
		case errors.Is(ahead.err, context.Canceled):
			// No one waited for that one any more, which says nothing of the peer.
		case ahead.err != nil:
			return nil, ahead.err
		case !waitsForConnection(ctx):
			return nil, errNotNeeded
		case !ahead.shared:
			return q.dial(ctx, network, address)
		}
	}
}

// line returns who dials the address, or the caller's own place if no one does.
func (q *dialQueue) line(address string) (ahead, own *leader) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ahead := q.leading[address]; ahead != nil {
		return ahead, nil
	}
	own = &leader{done: make(chan struct{})}
	q.leading[address] = own
	return nil, own
}

func (q *dialQueue) lead(ctx context.Context, own *leader, network, address string) (net.Conn, error) {
	conn, err := q.dial(ctx, network, address)
	own.err = err
	if secure, ok := conn.(*tls.Conn); ok {
		own.shared = secure.ConnectionState().NegotiatedProtocol == "h2"
	}
	q.mu.Lock()
	delete(q.leading, address)
	q.mu.Unlock()
	close(own.done)
	return conn, err
}

type progressKey struct{}

// await returns a context under which net/http tells whether the request waits
// for a connection.
func (p *progress) await(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, progressKey{}, p)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { p.waiting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) {
			// Of a new HTTP/2 connection net/http tells once that it was asked for, and
			// another request may take it first.
			p.wanted.Store(true)
			p.waiting.Store(false)
		},
	})
}

// waitsForConnection reports whether the request in whose context net/http dials
// still waits for a connection: another one may have come first, or its end.
func waitsForConnection(ctx context.Context) bool {
	p, ok := ctx.Value(progressKey{}).(*progress)
	return !ok || p.waiting.Load()
}
