package snapshot

// State is how far a member of the cluster can be relied on.
type State int

// The states of a member, best candidate first.
const (
	// StateServing: its endpoint record is live.
	StateServing State = iota
	// StateStarting: it published an early record and is not ready yet.
	StateStarting
	// StateUnreachable: its record expired while its identity lease lives.
	StateUnreachable
	// StateDeparted: its identity lease is gone too; its documents are kept for
	// a grace period.
	StateDeparted
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case StateServing:
		return "Serving"
	case StateStarting:
		return "Starting"
	case StateUnreachable:
		return "Unreachable"
	case StateDeparted:
		return "Departed"
	}
	return "Invalid"
}

// Reachable reports whether a member in this state has a live endpoint record.
func (s State) Reachable() bool { return s == StateServing || s == StateStarting }

// Peer is another member of the cluster.
type Peer struct {
	// ServerID names the peer: the name of its identity lease and the label of
	// its endpoint record.
	ServerID string
	// Incarnation is the holder identity of its identity lease, new at each
	// start; empty while it has no lease.
	Incarnation string
	// State tells how far to rely on it.
	State State
	// Address is the host:port of its endpoint record; of the last one known
	// for a peer without a live record.
	Address string
	// Unready is whether it has no record of a ready server, nor is the one that
	// had: what it refuses or does not find says nothing.
	Unready bool
	// Document is what it serves, nil while unknown.
	Document *Document
}
