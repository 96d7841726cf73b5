package observe

import (
	"time"

	"peerproxy.internal/pkg/observe/lease"
	"peerproxy.internal/pkg/snapshot"
)

// served is what a server says while it is ready, which alone outlives its
// record.
//
// A record outlives the server that wrote it, and by then another version may
// answer at its address. So what a server says first under a record is believed,
// or as the one that the record names, but what differs from it only once the
// record is written again: a server that is not ready writes none.
type served struct {
	// since is when the record came, zero without the record of a ready server.
	since time.Time
	// document is the newest one that is believed, heard whether it came under
	// this record.
	document *snapshot.Document
	heard    bool
	// claim is a newer one that is not believed yet, nil without one; generation
	// is what the record had when it came.
	claim      *snapshot.Document
	generation int64
}

// learn returns what is served by a server of that incarnation, given its record,
// nil without one, and the newest document.
func (s served) learn(record *lease.Record, incarnation string, newest *snapshot.Document, now time.Time) served {
	starts := record != nil && record.Starting
	ready := record != nil && !starts
	if ready && s.since.IsZero() {
		s.since = now
	}
	if !s.since.IsZero() && !starts && s.says(newest, incarnation) {
		s = s.hear(newest, record)
	}
	if !ready {
		s = served{document: s.document}
	}
	return s
}

// says reports whether the newest document is what the server says since it is
// ready. Its incarnation alone does not tell: whoever may write leases could
// change that all the time.
func (s served) says(newest *snapshot.Document, incarnation string) bool {
	return isOf(newest, incarnation) || newest != nil && !newest.Checked.Before(s.since)
}

// isOf reports whether a document is that of an incarnation.
func isOf(document *snapshot.Document, incarnation string) bool {
	return document != nil && document.Incarnation == incarnation
}

// hear takes in what the server says; record is nil if it has just ended.
func (s served) hear(newest *snapshot.Document, record *lease.Record) served {
	switch {
	case !s.heard, newest.SameContent(s.document):
		// One that was believed before the record came is not heard under it.
		s.heard = s.heard || !isOf(s.document, newest.Incarnation) || !newest.Checked.Before(s.since)
		s.document, s.claim = newest, nil
	case record == nil:
	case isOf(newest, record.Incarnation) && !isOf(s.document, record.Incarnation):
		s.document, s.claim = newest, nil
	case s.claim == nil, s.claim.Incarnation != newest.Incarnation:
		s.claim, s.generation = newest, record.Generation
	case record.Generation != s.generation:
		s.document, s.claim = s.claim, nil
		return s.hear(newest, record)
	}
	return s
}
