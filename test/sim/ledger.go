package sim

import (
	"fmt"
	"slices"
	"sync"
)

// theClient is where requests come from that no server sent.
const theClient = "client"

// ledger keeps where each request came by and who executed it.
type ledger struct {
	mu       sync.Mutex
	arrivals map[string][]way
	executed map[string][]string
}

func newLedger() *ledger {
	return &ledger{arrivals: map[string][]way{}, executed: map[string][]string{}}
}

// arrive notes that a request arrived. What servers ask for themselves has no ID.
func (l *ledger) arrive(id, from, at string) {
	if id == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrivals[id] = append(l.arrivals[id], way{from, at})
}

// execute notes that a server executed a request.
func (l *ledger) execute(id, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.executed[id] = append(l.executed[id], server)
}

// executions are the servers that executed a request.
func (l *ledger) executions(id string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.executed[id])
}

// checkHops returns an error if a request went further than from the server that
// its client asked to one more.
func (l *ledger) checkHops(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var entry string
	for _, hop := range l.arrivals[id] {
		switch {
		case hop.from == theClient:
			entry = hop.to
		case hop.from != entry, hop.to == entry:
			return fmt.Errorf("went on from %s to %s: %v", hop.from, hop.to, l.arrivals[id])
		}
	}
	return nil
}
