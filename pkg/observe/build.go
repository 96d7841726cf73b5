package observe

import (
	"time"

	"peerproxy.internal/pkg/observe/lease"
	"peerproxy.internal/pkg/snapshot"
)

// Limits are the periods that bound what is kept and what is doubted.
type Limits struct {
	// DepartureGrace is how long a member's documents are kept after its
	// identity lease is gone.
	DepartureGrace time.Duration
	// Doubt bounds how long an unknown document keeps requests from an
	// ordinary 404.
	Doubt DoubtLimits
}

// Facts are all that is known at one moment.
type Facts struct {
	// ServerID is this server's own ID.
	ServerID string
	// Now is the moment.
	Now time.Time
	// Members are what the leases tell, in any order.
	Members []lease.Member
	// Listed is true once the leases and records were listed.
	Listed bool
	// Local is this server's document, nil until it was read.
	Local *snapshot.Document
	// Documents are the newest documents of other servers by server ID.
	Documents map[string]*snapshot.Document
	// Excluded is what no peer's document may bring.
	Excluded *snapshot.Exclusions
}

// Memory is what has to be remembered from one Build to the next, by server
// ID. A server that is of no more interest is forgotten.
type Memory map[string]memory

type memory struct {
	// address is where the server was last reachable.
	address string
	// incarnation is the last one that its identity lease told.
	incarnation string
	// departed is when the server was first found without record and identity.
	departed time.Time
	// doubt is how long requests waited for its document.
	doubt Doubt
}

// Build makes the content of a snapshot from the facts. It is pure: equal
// arguments give equal results, and none is changed. next is when the result
// changes by the passing of time alone, zero if it does not.
func Build(f Facts, before Memory, limits Limits) (content snapshot.Content, after Memory, next time.Time) {
	content = snapshot.Content{Local: f.Local, Excluded: f.Excluded, Unsure: !f.Listed || f.Local == nil}
	after = Memory{}
	soonest := func(t time.Time) {
		if t.After(f.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, member := range everyone(f.Members, before) {
		if member.ServerID == f.ServerID {
			continue
		}
		m := before[member.ServerID].learn(member, f.Now)
		document := f.Documents[member.ServerID]
		state, takesPart, until := m.state(member, document, f.Now, limits)
		soonest(until)
		if member.Record != nil {
			missing := document == nil || document.Incarnation != m.incarnation
			unsure, until := m.doubt.about(missing, m.incarnation, f.Now, limits.Doubt)
			content.Unsure = content.Unsure || unsure
			soonest(until)
		}
		if !takesPart {
			if m.doubt.recent(f.Now, limits.Doubt) {
				after[member.ServerID] = m
			}
			continue
		}
		after[member.ServerID] = m
		content.Peers = append(content.Peers, &snapshot.Peer{
			ServerID:    member.ServerID,
			Incarnation: m.incarnation,
			State:       state,
			Address:     m.address,
			Document:    document,
		})
	}
	return content, after, next
}

// everyone returns the members and, without lease or record, the servers that
// are only remembered.
func everyone(members []lease.Member, remembered Memory) []lease.Member {
	all := make([]lease.Member, 0, len(members)+len(remembered))
	present := make(map[string]bool, len(members))
	for _, member := range members {
		present[member.ServerID] = true
		all = append(all, member)
	}
	for id := range remembered {
		if !present[id] {
			all = append(all, lease.Member{ServerID: id})
		}
	}
	return all
}

// learn returns the memory with what the leases tell now.
func (m memory) learn(member lease.Member, now time.Time) memory {
	alive := member.Identity != nil && now.Before(member.Identity.Expires)
	if member.Identity != nil {
		m.incarnation = member.Identity.Incarnation
	}
	if member.Record != nil {
		m.address = member.Record.Address
	}
	switch {
	case alive || member.Record != nil:
		m.departed = time.Time{}
	case m.departed.IsZero():
		m.departed = now
	}
	return m
}

// state tells how far the member can be relied on and whether it takes part at
// all. until is when that changes by the passing of time alone, zero if it
// does not.
func (m memory) state(member lease.Member, document *snapshot.Document, now time.Time, limits Limits) (state snapshot.State, takesPart bool, until time.Time) {
	switch {
	case member.Record != nil:
		return snapshot.StateServing, true, time.Time{}
	case document == nil:
		// Featureless, or gone before it could be asked.
		return 0, false, time.Time{}
	case m.departed.IsZero():
		return snapshot.StateUnreachable, true, member.Identity.Expires
	}
	until = m.departed.Add(limits.DepartureGrace)
	return snapshot.StateDeparted, now.Before(until), until
}
