package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// verdictTimeout is how long a new connection waits for the peer's first
	// word, which comes a round trip after the handshake. A peer that has none
	// before it is asked may be used all the same.
	verdictTimeout = 500 * time.Millisecond

	recordHeader = 5
	// alertLength is the length of an encrypted alert: its two bytes, the type
	// of what the record holds, and the tag. Nothing else is as short: neither
	// HTTP/2's settings nor a session ticket.
	//
	// Source: RFC 8446, sections 5.2 and 6.
	alertLength = 2 + 1 + 16
)

var errNoAlert = errors.New("something else in the place of an alert")

// noSessions makes a peer send a session ticket, which is its first word where it
// does not speak HTTP/2, and keeps none: each connection verifies the peer.
type noSessions struct{}

// Get implements tls.ClientSessionCache.
func (noSessions) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

// Put implements tls.ClientSessionCache.
func (noSessions) Put(string, *tls.ClientSessionState) {}

// hearVerdict returns the peer's refusal of our certificate, if that is the
// first that it says after the handshake.
//
// In TLS 1.3 the client's side of the handshake is over before the peer has
// looked at the client's certificate. A request that is written by then is lost
// with the connection, and what the peer has said of the certificate often too:
// its system answers what comes for the closed connection with a reset. So
// nothing is written before the peer has spoken, which it does once it is content,
// with HTTP/2's settings or a session ticket.
func (l *link) hearVerdict(ctx context.Context, conn *tls.Conn) error {
	if conn.ConnectionState().Version < tls.VersionTLS13 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = l.SetReadDeadline(time.Unix(1, 0))
	})
	err := l.hearFirst(conn)
	if !stop() {
		<-interrupted
		_ = l.SetReadDeadline(time.Time{})
		if isTimeout(err) {
			return nil
		}
	}
	return err
}

// hearFirst waits for the first record. It is left to be read unless it is an
// alert.
func (l *link) hearFirst(conn *tls.Conn) error {
	var err error
	if l.heard, err = readRecord(l.Conn); err != nil || len(l.heard) != recordHeader+alertLength {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return err
	}
	return errNoAlert
}

// readRecord reads a record of TLS as a whole: over a connection that holds
// nothing, as one of net.Pipe, the peer hears nothing before it is rid of it. With
// an error it returns what came before.
func readRecord(conn net.Conn) ([]byte, error) {
	var record bytes.Buffer
	if _, err := io.CopyN(&record, conn, recordHeader); err != nil {
		return record.Bytes(), err
	}
	length := binary.BigEndian.Uint16(record.Bytes()[recordHeader-2:])
	_, err := io.CopyN(&record, conn, int64(length))
	return record.Bytes(), err
}
