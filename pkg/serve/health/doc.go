// Package health knows which peers' connections have failed, and tries them in
// the background until they answer.
//
// A peer is well until a connection to it fails: it can't be dialled, breaks, or
// answers no ping. Then it is a suspect, at once, and is dialled again after half
// a second, then after one, two, four, eight, and from then on ten. Whatever it
// answers, to a dial or to a request, makes it well again. Requests go to a
// suspect only when there is no better candidate, so that none of them has to
// find out whether it is back; but they do go to the last one there is.
//
//	policy.go   the state of a peer after an outcome, as a pure function
//	tracker.go  the state of each suspect, and its re-dialling
package health
