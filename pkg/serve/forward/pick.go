package forward

import (
	"math/rand/v2"
	"slices"
	"sync"

	"peerproxy.internal/pkg/snapshot"
)

// pick takes the candidate to try next out of those that are left, and counts
// the request as in flight there until release. It reports whether there is one.
func (x *exchange) pick() bool {
	if len(x.left) == 0 {
		return false
	}
	f := x.forwarder
	random := f.Random
	if random == nil {
		random = rand.IntN
	}
	i := choose(x.left, f.inFlight.get, random)
	x.peer = x.left[i]
	x.left = slices.Delete(x.left, i, i+1)
	f.inFlight.add(x.peer.ServerID, 1)
	return true
}

// release ends what pick has begun.
func (x *exchange) release() {
	if x.peer != nil {
		x.forwarder.inFlight.add(x.peer.ServerID, -1)
		x.peer = nil
	}
}

// choose returns the index of the candidate to try next: of two random ones in
// the best state, the one with fewer requests in flight. There has to be a
// candidate.
func choose(candidates []*snapshot.Peer, inFlight func(serverID string) int, random func(n int) int) int {
	best := 1
	for best < len(candidates) && rank(candidates[best]) == rank(candidates[0]) {
		best++
	}
	if best == 1 {
		return 0
	}
	one, other := random(best), random(best-1)
	if other >= one {
		other++
	}
	if inFlight(candidates[other].ServerID) < inFlight(candidates[one].ServerID) {
		return other
	}
	return one
}

// rank puts a peer that has departed beside those that can't be reached.
func rank(p *snapshot.Peer) snapshot.State { return min(p.State, snapshot.StateUnreachable) }

// inFlight counts requests by server ID. Servers without any take no room.
type inFlight struct {
	mu       sync.Mutex
	byServer map[string]int
}

func (c *inFlight) get(serverID string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byServer[serverID]
}

func (c *inFlight) add(serverID string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byServer == nil {
		c.byServer = map[string]int{}
	}
	if c.byServer[serverID] += n; c.byServer[serverID] == 0 {
		delete(c.byServer, serverID)
	}
}
