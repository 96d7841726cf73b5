package peertest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"

	"golang.org/x/net/http2"
)

// Hang is a hook for [Peer.OnConn] under which the peer takes connections and
// never says a word, as a stopped process does.
func Hang(int, *tls.Conn) bool { return true }

// RefuseClient is a check for [Peer.VerifyClient] that refuses every client
// certificate at the handshake.
func RefuseClient([][]byte, [][]*x509.Certificate) error {
	return errors.New("this certificate is refused")
}

// First limits a hook to the peer's first n connections.
func First(n int, hook func(int, *tls.Conn) bool) func(int, *tls.Conn) bool {
	return func(i int, conn *tls.Conn) bool { return i <= n && hook(i, conn) }
}

// GoAway is a hook under which the peer reads a request up to the first of its
// body, says GOAWAY without having processed it, and closes the connection.
func GoAway(_ int, conn *tls.Conn) bool {
	go func() {
		defer func() { _ = conn.Close() }()
		framer, err := newFramer(conn)
		if err != nil || readRequest(framer) == 0 {
			return
		}
		if framer.WriteGoAway(0, http2.ErrCodeNo, nil) == nil {
			// Until the client has hung up: what it still sends must not reset
			// the connection before it has read this.
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	return true
}

// RefuseStreams is a hook under which the peer refuses every request of a
// connection with REFUSED_STREAM.
func RefuseStreams(_ int, conn *tls.Conn) bool {
	go func() {
		defer func() { _ = conn.Close() }()
		framer, err := newFramer(conn)
		for err == nil {
			stream := readRequest(framer)
			if stream == 0 {
				return
			}
			err = framer.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
		}
	}()
	return true
}

// newFramer shakes hands and says the server's first words of HTTP/2.
func newFramer(conn *tls.Conn) (*http2.Framer, error) {
	if err := conn.Handshake(); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return nil, err
	}
	framer := http2.NewFramer(conn, conn)
	return framer, framer.WriteSettings()
}

// readRequest reads a request without a body, or up to the first of its body,
// and returns its stream, or 0.
func readRequest(framer *http2.Framer) uint32 {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return 0
		}
		header := frame.Header()
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() && framer.WriteSettingsAck() != nil {
				return 0
			}
		case *http2.PingFrame:
			if !f.IsAck() && framer.WritePing(true, f.Data) != nil {
				return 0
			}
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				return header.StreamID
			}
		case *http2.DataFrame:
			return header.StreamID
		}
	}
}
