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
// answer at its address, which is not ready. So the first document under a
// record is believed, and one that differs from it once the record has been
// written again: no one but a ready server writes the record of one. So is any
// document of another server than the one that the record names as its writer.
type served struct {
	// since is when the record of a ready server came, zero without one.
	since time.Time
	// document is the newest one that is believed.
	document *snapshot.Document
	// claim is a newer one that is not believed yet, nil without one; generation
	// is the record's when it came.
	claim      *snapshot.Document
	generation int64
}

const (
	// rewritings are how often a record has to be written for a claim to be
	// believed. One may be the dead server's last, of which the news is late.
	rewritings = 2
	// recheck is how often that is looked for: a writing raises no flag.
	recheck = 5 * time.Second
)

// learn returns what the server serves, given its record, nil without one, and
// the newest document.
func (s served) learn(record *lease.Record, newest *snapshot.Document, now time.Time) served {
	if record == nil || record.Starting {
		return served{document: s.document}
	}
	if s.since.IsZero() {
		s.since = now
	}
	if newest == nil || newest.Checked.Before(s.since) && !s.speaksFor(record, newest) {
		return s
	}
	return s.hear(record, newest)
}

// speaksFor reports whether a document is of the server that wrote the record,
// as far as the record tells.
func (s served) speaksFor(record *lease.Record, newest *snapshot.Document) bool {
	if record.Incarnation != "" {
		return newest.Incarnation == record.Incarnation
	}
	return !newest.Checked.Before(s.since)
}

// says reports whether the newest document is what the server says since it is
// ready. Its incarnation alone does not tell: whoever may write leases could
// change that all the time.
func (s served) says(newest *snapshot.Document, incarnation string) bool {
	return isOf(newest, incarnation) || newest != nil && !newest.Checked.Before(s.since)
}

// hear takes in what the server says under its record.
func (s served) hear(record *lease.Record, newest *snapshot.Document) served {
	switch {
	case s.speaksFor(record, newest) && (s.isFirst(record) || newest.SameContent(s.document)):
		s.document, s.claim = newest, nil
	case s.claim == nil, newest.Incarnation != s.claim.Incarnation && !newest.SameContent(s.claim), record.Generation < s.generation:
		s.claim, s.generation = newest, record.Generation
	case record.Generation >= s.generation+rewritings:
		s.document, s.claim = s.claim, nil
		return s.hear(record, newest)
	}
	return s
}

// isFirst reports whether nothing is believed yet of the server that wrote the
// record, as far as the record tells.
func (s served) isFirst(record *lease.Record) bool {
	if record.Incarnation != "" {
		return !isOf(s.document, record.Incarnation)
	}
	return s.document == nil || s.document.Checked.Before(s.since)
}

// isOf reports whether a document is that of an incarnation.
func isOf(document *snapshot.Document, incarnation string) bool {
	return document != nil && document.Incarnation == incarnation
}
