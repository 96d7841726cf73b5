package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"peerproxy.internal/pkg/peerproxy"
)

// event is one step of a script.
type event struct {
	at   time.Duration
	kind kind
	// server is the one that it happens to, other the other end of a way.
	server, other string
	// number and version are those of an incarnation that starts.
	number, version int
	brand           brand
	youth           youth
	lie             lie
	name            string
	ask             ask
}

type kind string

// The kinds of events.
const (
	starts      kind = "starts"
	stops       kind = "stops in good order"
	crashes     kind = "crashes"
	vanishes    kind = "vanishes with its machine"
	freezes     kind = "freezes"
	thaws       kind = "thaws"
	parts       kind = "is cut off from"
	partsOneWay kind = "does not get through to"
	meets       kind = "is connected again with"
	slows       kind = "has a slow way to"
	hurries     kind = "has a quick way again to"
	deceives    kind = "lies:"
	repents     kind = "tells the truth again"
	etcdLeaves  kind = "etcd goes away"
	etcdReturns kind = "etcd comes back"
	losesEtcd   kind = "is cut off from etcd"
	reachesEtcd kind = "reaches etcd again"
	defines     kind = "is defined:"
	undefines   kind = "is deleted:"
	asks        kind = "is asked:"
	agreement   kind = "all agree"
)

const (
	// mostServers is how many servers there are at most: all others can then be
	// asked for one request.
	mostServers = 4
	// slowBytes are the bytes per second of a slow way.
	slowBytes = 2000
)

func (e event) String() string {
	s := fmt.Sprintf("%s %s %s ", e.server, e.kind, e.other)
	switch e.kind {
	case starts:
		s += fmt.Sprintf("with version 1.%d %s, %s", e.version, e.brand, e.youth)
	case deceives:
		s += string(e.lie)
	case defines, undefines:
		s += e.name
	case asks:
		s += e.ask.String()
	}
	return strings.Join(strings.Fields(s), " ")
}

// script is what happens in one run. It depends on the seed alone.
type script struct {
	seed                   uint64
	latency, definitionLag time.Duration
	periods                peerproxy.Periods
	events                 []event
}

// writer writes a script. It keeps what the script has come to.
type writer struct {
	random *rand.Rand
	// brands tells whose servers start, nil if all have the library.
	brands func() brand
	now    time.Duration
	script *script
	nodes  map[string]*node
	ids    []string
	// calm is true where servers only come and go.
	calm bool
	// ways are the pairs of servers whose connection is troubled.
	ways map[way]bool
	// etcdAway is true while no one reaches etcd; defined are the custom resource
	// definitions.
	etcdAway bool
	defined  map[string]bool
	// quiet is true while clients ask little, and well when all servers are to be
	// ready soon.
	quiet, well bool
	// due are events that follow from others.
	due []event
}

// node is a server as the script has it so far.
type node struct {
	up, frozen, cutOff bool
	lie                lie
	number, version    int
	// readies is when it will be ready, or would be.
	readies time.Duration
	// brand is whose server runs.
	brand brand
	// never is true if the next start leads to no readiness, hopeless if the last
	// one did.
	never, hopeless bool
}

// newScript writes the script of a seed.
func newScript(seed uint64) *script {
	random := rand.New(rand.NewPCG(seed, 0))
	w := &writer{
		random: random, script: &script{seed: seed}, nodes: map[string]*node{}, ways: map[way]bool{}, defined: map[string]bool{},
	}
	w.script.latency = pick(random, 0, 0, time.Millisecond, 20*time.Millisecond)
	w.script.definitionLag = pick(random, 0, 10*time.Millisecond, 80*time.Millisecond)
	w.script.periods.Departed = pick(random, 0, time.Minute)
	w.script.periods.Starting = pick(random, 0, 0, 20*time.Second)
	for i := range 2 + random.IntN(mostServers-1) {
		id := fmt.Sprintf("s%d", i+1)
		w.ids = append(w.ids, id)
		w.nodes[id] = &node{version: pick(random, 36, 37, 37)}
	}
	w.mix(seed)
	for i, id := range w.ids {
		if i == 0 || random.IntN(4) > 0 {
			w.pass(w.between(0, 3*time.Second))
			w.start(id)
		}
	}
	w.pass(w.between(0, 30*time.Second))
	w.calm = random.IntN(3) == 0
	// How troubled the times are differs by seed.
	longest := pick(random, 5*time.Second, 20*time.Second, 60*time.Second)
	for range 4 + random.IntN(12) {
		w.step()
		w.pass(w.between(100*time.Millisecond, longest))
	}
	w.settle()
	switch random.IntN(6) {
	case 0:
		w.depart()
	case 1:
		w.outlastExclusion()
	}
	slices.SortStableFunc(w.script.events, func(a, b event) int { return int(a.at - b.at) })
	return w.script
}

func pick[T any](random *rand.Rand, choices ...T) T { return choices[random.IntN(len(choices))] }

func (w *writer) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.random.Int64N(int64(most-least)))
}

func (w *writer) add(e event) {
	e.at = w.now
	w.script.events = append(w.script.events, e)
}

// pass lets time pass, in which clients ask and what is due ends.
func (w *writer) pass(d time.Duration) {
	end := w.now + d
	gap := pick(w.random, 200*time.Millisecond, time.Second)
	if w.quiet {
		gap = 5 * time.Second
	}
	for next := w.now; ; {
		next += w.between(time.Millisecond, 2*gap)
		if next >= end {
			w.until(end)
			return
		}
		w.until(next)
		w.ask()
	}
}

// until moves on to a time, and lets what is due happen before it.
func (w *writer) until(t time.Duration) {
	for {
		i := w.firstDue()
		if i < 0 || w.due[i].at > t {
			break
		}
		e := w.due[i]
		w.due = slices.Delete(w.due, i, i+1)
		w.now = max(w.now, e.at)
		w.finish(e)
	}
	w.now = t
}

func (w *writer) firstDue() int {
	first := -1
	for i := range w.due {
		if first < 0 || w.due[i].at < w.due[first].at {
			first = i
		}
	}
	return first
}

// later has something end after a while.
func (w *writer) later(e event, least, most time.Duration) {
	e.at = w.now + w.between(least, most)
	w.due = append(w.due, e)
}

// finish carries out what was due, if it still makes sense.
func (w *writer) finish(e event) {
	n := w.nodes[e.server]
	switch e.kind {
	case starts:
		if !n.up {
			n.version, n.never = e.version, e.youth.never
			w.start(e.server)
		}
		return
	case asks:
		if !n.up || n.frozen {
			return
		}
	case crashes:
		if n.up && !w.alone(e.server) {
			w.end(e.server, crashes)
		}
		return
	case thaws:
		if !n.frozen {
			return
		}
		n.frozen = false
	case meets, hurries:
		delete(w.ways, pairOf(e.server, e.other))
	case repents:
		n.lie = ""
	case etcdReturns:
		w.etcdAway = false
	case reachesEtcd:
		n.cutOff = false
	}
	w.add(e)
}

// pairOf is the connection of two servers, whichever way.
func pairOf(a, b string) way {
	if b < a {
		a, b = b, a
	}
	return way{a, b}
}

func (w *writer) start(id string) {
	n := w.nodes[id]
	n.up = true
	n.number++
	y := w.youth()
	y.never = n.never
	n.readies, n.never = w.now+y.unready, false
	n.hopeless = y.never
	if n.brand = ""; w.brands != nil {
		n.brand = w.brands()
	}
	w.add(event{kind: starts, server: id, number: n.number, version: n.version, brand: n.brand, youth: y})
	w.follow(id, documents[0], 3, 300*time.Millisecond)
	for _, other := range w.ids {
		if other != id {
			w.follow(other, ask{verb: pick(w.random, "get", "create"), resource: pick(w.random, differing...)}, 6, 2*time.Second)
		}
	}
}

// youth is how a server begins that will be ready some time.
func (w *writer) youth() youth {
	if w.well {
		return youth{}
	}
	return youth{
		hooks:   pick(w.random, 0, 0, 300*time.Millisecond, 2*time.Second),
		unready: pick(w.random, 0, time.Second, 4*time.Second, 10*time.Second, 40*time.Second),
	}
}

// heal ends all trouble, and starts every server again that ever ran.
func (w *writer) heal() {
	for len(w.due) > 0 {
		i := w.firstDue()
		e := w.due[i]
		w.due = slices.Delete(w.due, i, i+1)
		if e.kind != starts {
			w.finish(e)
		}
	}
	w.well = true
	for _, id := range w.ids {
		n := w.nodes[id]
		if n.up && (n.hopeless || n.brand == bare) {
			w.end(id, crashes)
		}
		if !n.up && n.number > 0 {
			w.pass(w.between(0, 2*time.Second))
			w.start(id)
		}
	}
	for _, id := range w.ids {
		if n := w.nodes[id]; n.up && n.readies > w.now {
			w.pass(n.readies - w.now)
		}
	}
}
