package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
)

// progress is how far net/http has come with a request.
type progress struct {
	// wanted is whether a connection was asked for: net/http looks at most of the
	// request before.
	wanted atomic.Bool
	// waiting is whether it waits for a connection now.
	waiting atomic.Bool
	// connections is how many it was given to, one after another.
	connections atomic.Int32
	// headers is whether its headers were written to one of them.
	headers atomic.Bool
	// link is the one it was given to last.
	link atomic.Pointer[link]
}

// errResent ends a request that a peer keeps giving back.
var errResent = errors.New("given back unprocessed twice")

// trace returns a context under which net/http tells of its progress, and ends
// the request by cancel when it is to be sent a third time.
//
// net/http sends what an HTTP/2 peer has not processed (GOAWAY, REFUSED_STREAM)
// again: once at once, then after seconds that double, where another peer may be
// free. The hook runs before the headers are written, so that nothing of the
// request is sent the third time. HTTP/1.1 is left alone: there they might be.
func (p *progress) trace(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { p.wanted.Store(true) },
		GotConn: func(info httptrace.GotConnInfo) {
			conn, ok := info.Conn.(*tls.Conn)
			if !ok {
				return
			}
			if l, ok := conn.NetConn().(*link); ok {
				p.link.Store(l)
			}
			if p.connections.Add(1) > 2 && conn.ConnectionState().NegotiatedProtocol == "h2" {
				cancel(errResent)
			}
		},
		WroteHeaders: func() { p.headers.Store(true) },
	})
}
