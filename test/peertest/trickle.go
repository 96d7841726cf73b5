package peertest

import (
	"context"
	"time"
)

// Trickle is the body of an answer that gives a byte a second, until Context
// ends, the request's: net/http ends a body then.
type Trickle struct{ Context context.Context }

// Read implements io.Reader.
func (b Trickle) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		p[0] = ' '
		return 1, nil
	case <-b.Context.Done():
		return 0, b.Context.Err()
	}
}

// Close implements io.Closer.
func (Trickle) Close() error { return nil }
