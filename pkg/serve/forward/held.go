package forward

import (
	"errors"
	"io"
	"net/http"
)

const (
	// maxHeld is how much of one answer is held back, maxHeldInAll of all answers.
	maxHeld      = 4 << 20
	maxHeldInAll = 64 << 20
)

// mayBeHeld reports whether the answer may be read before the client sees its
// header: if the peer is lost in between, another one can still be asked. That is
// safe for a GET alone (a HEAD has nothing in between), and a stream can't wait
// for its end. An answer that is known to be too long is not worth the wait.
func (x *exchange) mayBeHeld(res *http.Response) bool {
	if x.client.Method != http.MethodGet || res.StatusCode == http.StatusSwitchingProtocols || x.watches() || x.streams() {
		return false
	}
	return res.ContentLength <= maxHeld
}

// streams reports whether the subresource is one whose answer may come bit by
// bit.
func (x *exchange) streams() bool {
	switch x.info.Subresource {
	case "proxy", "log", "exec", "attach", "portforward":
		return true
	}
	return false
}

// hold reads the answer to its end, or as far as the limits allow, and leaves it
// to be read from its start. After an error the answer is closed.
func (f *Forwarder) hold(res *http.Response) error {
	held := &heldBody{forwarder: f, rest: res.Body}
	for held.takeRoom() {
		err := held.readChunk()
		if errors.Is(err, io.EOF) {
			_ = held.rest.Close()
			held.rest = http.NoBody
			break
		}
		if err != nil {
			_ = held.Close()
			return err
		}
	}
	res.Body = held
	return nil
}

// heldBody is the body of an answer of which the first part is there already.
type heldBody struct {
	forwarder *Forwarder
	// chunks are the first part, each in a buffer of the forwarder's pool, the
	// first of them read up to at.
	chunks [][]byte
	at     int
	rest   io.ReadCloser
}

// takeRoom reports whether the limits allow one more chunk, and counts it.
func (b *heldBody) takeRoom() bool {
	if (len(b.chunks)+1)*bufferSize > maxHeld {
		return false
	}
	if b.forwarder.held.Add(bufferSize) > maxHeldInAll {
		b.forwarder.held.Add(-bufferSize)
		return false
	}
	return true
}

// readChunk reads a chunk, for which there has to be room. It returns what has
// ended the body, if anything has.
func (b *heldBody) readChunk() (err error) {
	buffer := b.forwarder.buffers.Get()
	read := 0
	for read < len(buffer) && err == nil {
		var n int
		n, err = b.rest.Read(buffer[read:])
		read += n
	}
	b.chunks = append(b.chunks, buffer[:read])
	return err
}

func (b *heldBody) Read(p []byte) (int, error) {
	for len(b.chunks) > 0 {
		if n := copy(p, b.chunks[0][b.at:]); n > 0 || len(p) == 0 {
			b.at += n
			return n, nil
		}
		b.dropChunk()
	}
	return b.rest.Read(p)
}

// dropChunk gives the first chunk back.
func (b *heldBody) dropChunk() {
	b.forwarder.buffers.Put(b.chunks[0][:bufferSize])
	b.forwarder.held.Add(-bufferSize)
	b.chunks, b.at = b.chunks[1:], 0
}

// Close gives back what no one has read.
func (b *heldBody) Close() error {
	for len(b.chunks) > 0 {
		b.dropChunk()
	}
	return b.rest.Close()
}
