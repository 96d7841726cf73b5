// Package dirty has the one signal of the observe wing: "something changed,
// read the whole state again". Any number of changes between two looks are one.
package dirty

// Flag is raised by those who notice a change and received from by the one who
// acts on it. Make it with [New]; the nil Flag drops what is raised.
type Flag chan struct{}

// New returns a flag that is not raised.
func New() Flag { return make(Flag, 1) }

// Raise raises the flag. It never blocks and may be called by any goroutine.
func (f Flag) Raise() {
	select {
	case f <- struct{}{}:
	default:
	}
}
