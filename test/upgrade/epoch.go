package upgrade

import "sync"

// Epoch tells whether some member that lives serves what only the new version
// has: from when the first of them is ready until the last one is told to stop.
// A run has one at most. It may be used by any number of goroutines.
type Epoch struct {
	begun chan struct{}
	uses  sync.WaitGroup

	mu                    sync.Mutex
	serving, ending, over bool
}

// NewEpoch returns one that has not begun.
func NewEpoch() *Epoch { return &Epoch{begun: make(chan struct{})} }

// Begin tells that the first new server is ready.
func (e *Epoch) Begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.serving = true
	close(e.begun)
}

// Begun is closed at the beginning.
func (e *Epoch) Begun() <-chan struct{} { return e.begun }

// Serving reports whether someone serves what is new. Who finds it so before and
// after a request knows that it was so meanwhile.
func (e *Epoch) Serving() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.serving
}

// Use reports whether objects may be made that only the new version can delete
// again. If so, the epoch does not end before done is called.
func (e *Epoch) Use() (done func(), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.serving || e.ending {
		return func() {}, false
	}
	e.uses.Add(1)
	return e.uses.Done, true
}

// End ends the epoch, once no one uses it any more: before the last new server
// goes.
func (e *Epoch) End() {
	e.mu.Lock()
	e.ending = true
	e.mu.Unlock()
	e.uses.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.serving, e.over = false, true
}

// Over reports whether the epoch has ended.
func (e *Epoch) Over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over
}
