package transport_test

import (
	"context"
	"net"
	"sync"

	"peerproxy.internal/pkg/transport"
)

// dialNoticingClose dials and closes the channel when the first connection is
// closed.
func dialNoticingClose(closed chan struct{}) transport.DialFunc {
	var first sync.Once
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		first.Do(func() { conn = &noticingConn{Conn: conn, closed: closed} })
		return conn, nil
	}
}

type noticingConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *noticingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
