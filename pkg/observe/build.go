package observe

import (
	"time"

	"peerproxy.internal/pkg/observe/lease"
	"peerproxy.internal/pkg/snapshot"
)

// Limits are the periods that bound what is kept, doubted and believed.
type Limits struct {
	// DepartureGrace is how long a member's documents are kept after its
	// identity lease is gone.
	DepartureGrace time.Duration
	// Doubt bounds how long an unknown document keeps requests from an
	// ordinary 404.
	Doubt Allowance
	// Starting bounds how long a server that is not ready takes part.
	Starting Allowance
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
	// Blind is true if Local could not be read in time.
	Blind bool
}

// Memory is what has to be remembered from one Build to the next, by server
// ID. A server that is of no more interest is forgotten.
type Memory map[string]memory

type memory struct {
	// address is where the server was last reachable.
	address string
	// incarnation is the one that runs, told since that moment: the last that its
	// identity lease or its record named. Those named holder and writer last.
	incarnation    string
	told           time.Time
	holder, writer string
	// served is what it said while it was ready.
	served served
	// lost is when it was first found without a record, zero while it has one.
	lost time.Time
	// departed is when the server was first found without record and identity.
	departed time.Time
	// doubt is for how long requests waited for its document, starting for how
	// long it took part before it was ready.
	doubt, starting Account
}

// longestUnreachable is how long a server without a record counts for all that
// its identity lease tells: whoever may write leases could renew it for ever, and
// a server that starts again and again does. It is how long a lease lives that
// no one renews.
const longestUnreachable = time.Hour

// Build makes the content of a snapshot from the facts. It is pure: equal
// arguments give equal results, and none is changed. next is when the result
// changes by the passing of time alone, zero if it does not.
func Build(f Facts, before Memory, limits Limits) (content snapshot.Content, after Memory, next time.Time) {
	content = snapshot.Content{Local: f.Local, Excluded: f.Excluded, Blind: f.Blind, Unsure: !f.Listed || f.Local == nil && !f.Blind}
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
		known, newest := before[member.ServerID], f.Documents[member.ServerID]
		m, member, until := known.admit(member, f.Now, limits)
		soonest(until)
		m = m.learn(member, newest, f.Now, limits)
		if m.served.claim != nil {
			soonest(f.Now.Add(recheck))
		}
		unsure, until := m.doubt.use(member.Record != nil && !isOf(newest, m.incarnation), m.incarnation, f.Now, limits.Doubt)
		content.Unsure = content.Unsure || unsure
		soonest(until)
		state, takesPart, until := m.state(member, f.Now, limits)
		soonest(until)
		if !takesPart {
			m.served.document = nil
			if m.doubt.open(f.Now, limits.Doubt) || m.starting.open(f.Now, limits.Starting) {
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
			Unready:     state != snapshot.StateServing && !isOf(m.served.document, m.incarnation),
			Document:    m.inForce(state, newest),
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

// admit returns the memory with the incarnation that the leases tell now, and
// the member without the record that a server which starts for too long has.
// until is when that time ends, zero for a server that does not start.
func (m memory) admit(member lease.Member, now time.Time, limits Limits) (_ memory, admitted lease.Member, until time.Time) {
	starts := member.Starts()
	m = m.identify(member, now)
	granted, until := m.starting.use(starts, m.incarnation, now, limits.Starting)
	if starts && !granted {
		member.Record = nil
	}
	return m, member, until
}

// identify returns the memory with the incarnation that runs now. Of lease and
// record the one that has changed tells it: the other is still the earlier one's.
func (m memory) identify(member lease.Member, now time.Time) memory {
	was, holder, writer := m.incarnation, m.holder, m.writer
	if member.Record != nil {
		m.writer = member.Record.Incarnation
	}
	if member.Identity != nil {
		m.holder = member.Identity.Incarnation
	}
	if m.writer != "" && m.writer != writer {
		m.incarnation = m.writer
	}
	if m.holder != holder {
		m.incarnation = m.holder
	}
	if m.incarnation != was {
		m.told = now
	}
	return m
}

// learn returns the memory with what the leases and the newest document tell
// now.
func (m memory) learn(member lease.Member, newest *snapshot.Document, now time.Time, limits Limits) memory {
	switch {
	case member.Record != nil:
		m.address, m.lost = member.Record.Address, time.Time{}
	case m.lost.IsZero():
		m.lost = now
	}
	m.served = m.served.learn(member.Record, newest, now)
	alive := member.Identity != nil && now.Before(m.unreachableUntil(member.Identity, limits))
	switch {
	case alive || member.Record != nil:
		m.departed = time.Time{}
	case m.departed.IsZero():
		m.departed = now
	}
	return m
}

// unreachableUntil is when the server has departed if no record shows. One that
// is another than the one whose document is kept has until then to be ready: it
// may never publish a record, with the feature off or of an older release.
func (m memory) unreachableUntil(identity *lease.Identity, limits Limits) time.Time {
	until := identity.Expires
	bounds := []time.Time{m.lost.Add(longestUnreachable)}
	if !isOf(m.served.document, m.incarnation) {
		bounds = append(bounds, m.told.Add(limits.Starting.Longest))
	}
	for _, bound := range bounds {
		if bound.Before(until) {
			until = bound
		}
	}
	return until
}

// inForce is the document that counts: while the server has a record what it
// says now, if that is known, else the last that it said when it was ready.
func (m memory) inForce(state snapshot.State, newest *snapshot.Document) *snapshot.Document {
	if state == snapshot.StateStarting && isOf(newest, m.incarnation) || state == snapshot.StateServing && m.served.says(newest, m.incarnation) {
		return newest
	}
	return m.served.document
}

// state tells how far the member can be relied on and whether it takes part at
// all. until is when that changes by the passing of time alone, zero if it
// does not.
func (m memory) state(member lease.Member, now time.Time, limits Limits) (state snapshot.State, takesPart bool, until time.Time) {
	switch {
	case member.Starts():
		return snapshot.StateStarting, true, time.Time{}
	case member.Record != nil:
		return snapshot.StateServing, true, time.Time{}
	case m.served.document == nil:
		// Featureless, or gone before it could be asked or was ready.
		return 0, false, time.Time{}
	case m.departed.IsZero():
		return snapshot.StateUnreachable, true, m.unreachableUntil(member.Identity, limits)
	}
	until = m.departed.Add(limits.DepartureGrace)
	return snapshot.StateDeparted, now.Before(until), until
}
