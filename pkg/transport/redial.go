package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// redialTimeout is how long a peer has to answer a re-dial: as long as dialling
// and the handshake may take together.
const redialTimeout = dialTimeout + handshakeTimeout

// Redial asks the peer at the address, in this server's own name, whether it
// lives, and returns nil if it answers anything at all within five seconds. A
// connection that this opens is there for the requests to come.
//
// A stopped process does not pass: its kernel takes the TCP connection, but no
// one shakes hands. The path is one for which a kube-apiserver has no limit on
// the requests in flight, so that an overloaded peer passes.
func (t *Transport) Redial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, redialTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/livez", http.NoBody)
	if err != nil {
		return fmt.Errorf("dial a peer again: %w", err)
	}
	res, err := AsServer(t).RoundTrip(req)
	if refused, ok := errors.AsType[*ConnectError](err); ok && refused.Reason == ReasonUnauthorized {
		return nil // an answer too
	}
	if err != nil {
		return fmt.Errorf("dial a peer again: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	// The connection of a peer that speaks HTTP/1.1 is kept only once all is read.
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	return nil
}

// ConnectionFailed reports whether an error of [Transport.RoundTrip], or of
// reading an answer, tells that the peer's connection could not be made or
// broke. It does not if it is about the one request alone: a stream that the peer
// has reset, a request that can't be sent, or whose context has ended.
func ConnectionFailed(err error) bool {
	var stream streamError
	var refused *RefusedError
	var unsendable *UnsendableError
	switch {
	case err == nil, errors.As(err, &stream), errors.As(err, &refused), errors.As(err, &unsendable):
		return false
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		_, connecting := errors.AsType[*ConnectError](err)
		return connecting
	}
	return true
}

// FellSilent reports whether the error tells that the peer has answered nothing
// on its connection any more, pings neither, in contrast to one that was closed.
func FellSilent(err error) bool { return strings.HasSuffix(err.Error(), lostPing) }

// lostPing is the text of the error for which net/http has no type.
//
// Source: closeForLostPing in net/http.
const lostPing = "http2: client connection lost"
