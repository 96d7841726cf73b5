package forward

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

const (
	// maxKept is how much of one body is kept to be sent a second time,
	// maxKeptInAll how much of all bodies.
	maxKept      = 3 << 20
	maxKeptInAll = 64 << 20
	// firstKept is what is set aside at first. It doubles with what was read: a
	// length that is only announced would take the room from other bodies.
	firstKept = 4 << 10
)

var (
	// errNotKept: the body was read and is too long to be kept.
	errNotKept = errors.New("the request's body can't be sent a second time")
	// errBodyTaken: another reader has taken the body over, or a part of it that
	// was not kept, or its request is over.
	errBodyTaken = errors.New("the request's body is read elsewhere")
)

// replay is a request's body that can be read again from its start, as long as
// what was read could be kept. One reader at a time reads it; opening another
// takes it from the one before, whose transport may not have noticed yet that
// its attempt is over.
//
// The nil replay is no body.
type replay struct {
	source io.Reader
	length int64         // as announced, or -1
	budget *atomic.Int64 // bytes kept of all bodies

	// pull is held while the source is read, which may take as long as the client
	// takes.
	pull sync.Mutex

	mu     sync.Mutex
	pulled int    // bytes read from the source
	kept   []byte // those from base on
	base   int
	err    error // the source's last word
	reader *replayReader
	// settled is whether the body is not sent again. What is kept is then of use
	// to the reader alone, and only while it is behind.
	settled bool
}

// newReplay returns the body with the announced length, -1 if unknown.
func newReplay(source io.ReadCloser, length int64, budget *atomic.Int64) *replay {
	if source == nil || source == http.NoBody {
		return nil
	}
	return &replay{source: source, length: length, budget: budget}
}

// open returns a reader of the whole body, nil for no body. Its Close does not
// close the source: net/http closes bodies that it has not touched, too.
func (b *replay) open() (io.ReadCloser, error) {
	if b == nil {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.base > 0 || b.settled {
		return nil, errNotKept
	}
	b.reader = &replayReader{body: b}
	return b.reader, nil
}

// failed reports whether the client's side of the body broke.
func (b *replay) failed() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil && !errors.Is(b.err, io.EOF)
}

// settle frees what was kept: a peer has answered, and the body is not sent
// again. A reader that has not come to the end of what is kept may go on.
func (b *replay) settle() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = true
	b.dropUnneeded()
}

// close frees what was kept, and leaves nothing to a reader. It does not wait
// for one.
func (b *replay) close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled, b.reader = true, nil
	b.drop()
}

// drop forgets what was kept. It needs mu.
func (b *replay) drop() {
	b.budget.Add(-int64(cap(b.kept)))
	b.kept, b.base = nil, b.pulled
}

// needed reports whether anyone may still read what is kept. It needs mu.
func (b *replay) needed() bool {
	return !b.settled || b.reader != nil && b.reader.at < b.pulled
}

func (b *replay) dropUnneeded() {
	if !b.needed() {
		b.drop()
	}
}

// keep keeps what was read from the source if the limits allow it and all
// before it was kept. It needs mu.
func (b *replay) keep(p []byte) {
	if !b.settled && b.base > 0 || !b.grow(len(b.kept)+len(p)) {
		b.drop()
		return
	}
	b.kept = append(b.kept, p...)
}

// grow makes room for n bytes if the limits allow it. It needs mu.
func (b *replay) grow(n int) bool {
	if n > maxKept || b.length > maxKept {
		return false
	}
	if n <= cap(b.kept) {
		return true
	}
	size := min(max(n, 2*cap(b.kept), firstKept), maxKept)
	if b.length >= int64(n) {
		size = min(size, int(b.length))
	}
	more := int64(size - cap(b.kept))
	if b.budget.Add(more) > maxKeptInAll {
		b.budget.Add(-more)
		return false
	}
	b.kept = append(make([]byte, 0, size), b.kept...)
	return true
}

// replayReader reads a replay from its start.
type replayReader struct {
	body *replay
	at   int
}

func (r *replayReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if n, ok, err := r.readKept(p); ok {
		return n, err
	}
	r.body.pull.Lock()
	defer r.body.pull.Unlock()
	// The reader before may have read on while this one waited.
	if n, ok, err := r.readKept(p); ok {
		return n, err
	}
	n, err := r.body.source.Read(p)
	return r.took(p[:n], err)
}

// readKept reads what needs no look at the source; ok is whether there was any.
func (r *replayReader) readKept(p []byte) (n int, ok bool, err error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.reader != r:
		return 0, true, errBodyTaken
	case r.at < b.base:
		// The reader before has read what could not be kept.
		return 0, true, errBodyTaken
	case r.at < b.pulled:
		n = copy(p, b.kept[r.at-b.base:])
		r.at += n
		b.dropUnneeded()
		return n, true, nil
	case b.err != nil:
		return 0, true, b.err
	}
	return 0, false, nil
}

// took records what was read from the source, and gives it to the reader unless
// another has taken over meanwhile: that one finds it in what is kept.
func (r *replayReader) took(p []byte, err error) (int, error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	b.pulled += len(p)
	mine := b.reader == r
	if mine {
		r.at = b.pulled
	}
	if b.needed() {
		b.keep(p)
	} else {
		b.drop()
	}
	if !mine {
		return 0, errBodyTaken
	}
	return len(p), err
}

func (r *replayReader) Close() error {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reader == r {
		b.reader = nil
		b.dropUnneeded()
	}
	return nil
}
