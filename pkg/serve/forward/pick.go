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
	i := choose(x.left, f.suspect, f.inFlight.get, random)
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

// choose returns the index of the candidate to try next: of two random ones of
// the best rank, the one with fewer requests in flight. There has to be a
// candidate.
func choose(candidates []*snapshot.Peer, suspect func(*snapshot.Peer) bool, inFlight func(serverID string) int, random func(n int) int) int {
	var best []int
	highest := rankLast
	for i, candidate := range candidates {
		switch r := rankOf(candidate.State, suspect(candidate)); {
		case r < highest:
			best, highest = []int{i}, r
		case r == highest:
			best = append(best, i)
		}
	}
	if len(best) == 1 {
		return best[0]
	}
	one, other := random(len(best)), random(len(best)-1)
	if other >= one {
		other++
	}
	one, other = best[one], best[other]
	if inFlight(candidates[other].ServerID) < inFlight(candidates[one].ServerID) {
		return other
	}
	return one
}

// rank is the order in which candidates are tried.
type rank int

const (
	rankServing rank = iota
	rankSuspect
	rankStarting
	rankStartingSuspect
	// A peer that has departed stands beside those that can't be reached: nothing
	// is expected of either.
	rankLast
)

func rankOf(state snapshot.State, suspect bool) rank {
	switch {
	case state == snapshot.StateServing && !suspect:
		return rankServing
	case state == snapshot.StateServing:
		return rankSuspect
	case state == snapshot.StateStarting && !suspect:
		return rankStarting
	case state == snapshot.StateStarting:
		return rankStartingSuspect
	}
	return rankLast
}

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
