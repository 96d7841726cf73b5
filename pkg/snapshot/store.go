package snapshot

import "sync/atomic"

// Store holds the current snapshot. The zero value holds the empty snapshot,
// with which nothing is known and every resource is [Unknown].
//
// Load may be called by anyone at any time and costs one atomic load. Publish
// belongs to one writer.
type Store struct {
	current atomic.Pointer[Snapshot]
}

var empty = New(Content{Unsure: true})

// Load returns the current snapshot, never nil.
func (s *Store) Load() *Snapshot {
	if current := s.current.Load(); current != nil {
		return current
	}
	return empty
}

// Publish makes next the current snapshot.
func (s *Store) Publish(next *Snapshot) { s.current.Store(next) }
