// Package snapshot is the courtyard between the two wings of the peer proxy:
// the immutable answer to "who in this cluster serves what?".
//
// The observe wing makes a [Snapshot] of everything it knows (leases,
// discovery documents, exclusions) and publishes it in a [Store]. The serve
// wing loads the store once per request and asks the snapshot for a [Route].
// Nothing else passes between the wings.
//
// Everything reachable from a published Snapshot is read-only and may be used
// by any number of goroutines. Who needs another content makes another
// Snapshot.
package snapshot
