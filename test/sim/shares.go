package sim

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// shares is how many requests are sent to see that all who serve a resource
// take some, all at once: more than are in flight already to the busiest.
const shares = 60

// checkShares checks, when all is well and has been for long enough, that every
// member that serves what another lacks is sent some requests for it.
func (w *world) checkShares() {
	for _, id := range slices.Sorted(maps.Keys(w.lives)) {
		l := w.lives[id]
		for _, r := range differing {
			able := w.whoServes(r)
			if l.ending || l.brand != "" || len(able) < 2 || slices.Contains(able, id) {
				continue
			}
			by := l.share(r)
			for _, other := range able {
				if by[other] == 0 {
					w.violate("%s sends no request for %s to %s: %v", id, r, other, by)
				}
			}
			break
		}
	}
}

// share sends many requests for a resource and returns how many each server
// answered.
func (l *life) share(r resource) map[string]int {
	outcomes := make([]outcome, shares)
	var all sync.WaitGroup
	for i := range outcomes {
		o := &outcomes[i]
		o.id = fmt.Sprintf("share %d of %s at %s", i, r, l.id)
		all.Go(func() { l.send(ask{verb: "get", resource: r}, o) })
	}
	all.Wait()
	by := map[string]int{}
	for i := range outcomes {
		by[outcomes[i].header.Get(serverHeader)]++
	}
	return by
}

// whoServes are the servers that run and serve a resource.
func (w *world) whoServes(r resource) (able []string) {
	for id, l := range w.lives {
		if !l.ending && l.chain.serves().has(r, "get") {
			able = append(able, id)
		}
	}
	return able
}
