package transport

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"testing"
)

// What breaks before the headers are written is a failure to connect, unless it
// is the request's own fault or its end.
func TestClassifyWhatWasNotWritten(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name                string
		ctx                 context.Context
		wanted, wrote       bool
		err                 error
		notSent, unsendable bool
	}{
		{"connection broke before", t.Context(), true, false, io.ErrUnexpectedEOF, true, false},
		{"connection broke after", t.Context(), true, true, io.ErrUnexpectedEOF, false, false},
		{"request ended", ended, false, false, context.Canceled, false, false},
		{"request refused at once", t.Context(), false, false, errors.New("net/http: odd"), false, true},
		{"request refused on the connection", t.Context(), true, false, errors.New("http2: invalid Host header"), false, true},
		{"the same words after", t.Context(), true, true, errors.New("http2: invalid header"), false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var sent progress
			sent.wanted.Store(test.wanted)
			sent.headers.Store(test.wrote)
			err := classify(test.ctx, &sent, test.err)
			connect, notSent := errors.AsType[*ConnectError](err)
			if notSent != test.notSent || notSent && connect.Reason != ReasonNotSent {
				t.Errorf("got %v", err)
			}
			if _, unsendable := errors.AsType[*UnsendableError](err); unsendable != test.unsendable {
				t.Errorf("got %v", err)
			}
			if !errors.Is(err, test.err) {
				t.Errorf("%v is not its cause", err)
			}
		})
	}
}

// A request may be given a connection that another has asked for.
func TestClassifyOfARequestThatAskedForNoConnection(t *testing.T) {
	var sent progress
	ctx := sent.trace(sent.await(t.Context()), func(error) {})
	httptrace.ContextClientTrace(ctx).GotConn(httptrace.GotConnInfo{})
	err := classify(ctx, &sent, errors.New("http2: client conn could not be established"))
	if connect, ok := errors.AsType[*ConnectError](err); !ok || connect.Reason != ReasonNotSent {
		t.Errorf("got %v", err)
	}
}
