package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// event is one step of a script.
type event struct {
	at   time.Duration
	kind kind
	// server is the one that it happens to, other the other end of a way.
	server, other string
	// number and version are those of an incarnation that starts.
	number, version int
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
	lies_       kind = "lies:"
	repents     kind = "tells the truth again"
	etcdLeaves  kind = "etcd goes away"
	etcdReturns kind = "etcd comes back"
	losesEtcd   kind = "is cut off from etcd"
	reachesEtcd kind = "reaches etcd again"
	defines     kind = "is defined:"
	undefines   kind = "is deleted:"
	asks        kind = "is asked:"
	agreement   kind = "all agree"
	slowBytes        = 2000 // per second
	serverCount      = 4
)

func (e event) String() string {
	s := fmt.Sprintf("%10.4fs  %s %s %s", e.at.Seconds(), e.server, e.kind, e.other)
	switch e.kind {
	case starts:
		s += fmt.Sprintf("with version 1.%d", e.version)
	case lies_:
		s += string(e.lie)
	case defines, undefines:
		s += e.name
	case asks:
		s += e.ask.String()
	}
	return strings.TrimRight(s, " ")
}

// script is what happens in one run. It depends on the seed alone.
type script struct {
	latency, definitionLag time.Duration
	events                 []event
}

// writer writes a script. It keeps what the script has come to.
type writer struct {
	random *rand.Rand
	now    time.Duration
	script *script
	nodes  map[string]*node
	ids    []string
	// calm is true where servers only come and go.
	calm bool
	// ways are the pairs of servers whose connection is troubled.
	ways map[way]bool
	// due are events that end what was begun.
	due      []event
	etcdAway bool
	defined  map[string]bool
}

// node is a server as the script has it so far.
type node struct {
	up, frozen, cutOff bool
	lie                lie
	number, version    int
}

// newScript writes the script of a seed.
func newScript(seed uint64) *script {
	random := rand.New(rand.NewPCG(seed, 0))
	w := &writer{
		random: random, script: &script{}, nodes: map[string]*node{}, ways: map[way]bool{}, defined: map[string]bool{},
	}
	w.script.latency = pick(random, 0, 0, time.Millisecond, 20*time.Millisecond)
	w.script.definitionLag = pick(random, 0, 10*time.Millisecond, 80*time.Millisecond)
	for i := range 2 + random.IntN(serverCount-1) {
		id := fmt.Sprintf("s%d", i+1)
		w.ids = append(w.ids, id)
		w.nodes[id] = &node{version: pick(random, 36, 37, 37)}
	}
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
	w.heal()
	w.pass(learning + 10*time.Second)
	w.add(event{kind: agreement})
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
			n.version = e.version
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
	w.add(event{kind: starts, server: id, number: n.number, version: n.version})
	w.follow(id, documents[0], 3, 300*time.Millisecond)
	for _, other := range w.ids {
		if other != id {
			w.follow(other, ask{verb: pick(w.random, "get", "create"), resource: pick(w.random, some...)}, 4, 3*time.Second)
		}
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
	for _, id := range w.ids {
		if n := w.nodes[id]; !n.up && n.number > 0 {
			w.pass(w.between(0, 2*time.Second))
			w.start(id)
		}
	}
}

// step lets one thing happen to the cluster.
func (w *writer) step() {
	id := pick(w.random, w.ids...)
	n := w.nodes[id]
	if !n.up {
		n.version = pick(w.random, 36, 37, 37, 38)
		w.start(id)
		return
	}
	other := pick(w.random, w.ids...)
	things := 18
	if w.calm {
		things = 7
	}
	switch w.random.IntN(things) {
	case 0, 1:
		w.upgrade(id)
	case 2, 3:
		w.crash(id)
	case 4, 5:
		w.change()
	case 6:
		w.leave(id)
	case 7, 8:
		w.freeze(id)
	case 9, 10:
		w.part(id, other)
	case 11:
		w.slow(id, other)
	case 12, 13:
		w.lie(id)
	case 14, 15:
		w.etcd(id)
	case 16:
		w.crashAgainAndAgain(id, other)
	case 17:
		w.loseCustom(id)
	}
}

// alone reports whether no other server runs.
func (w *writer) alone(id string) bool {
	return !slices.ContainsFunc(w.ids, func(other string) bool {
		return other != id && w.nodes[other].up && !w.nodes[other].frozen
	})
}

// upgrade restarts a server with another version, or the same.
func (w *writer) upgrade(id string) {
	if n := w.nodes[id]; !n.frozen && !w.alone(id) {
		n.up = false
		w.add(event{kind: stops, server: id})
		w.later(event{kind: starts, server: id, version: pick(w.random, 36, 37, 38)}, 6*time.Second, 20*time.Second)
	}
}

// leave stops a server, for longer.
func (w *writer) leave(id string) {
	if n := w.nodes[id]; !n.frozen && !w.alone(id) {
		n.up = false
		w.add(event{kind: stops, server: id})
	}
}

// crash ends a server's process, or its machine; it may be back soon.
func (w *writer) crash(id string) {
	n := w.nodes[id]
	if w.alone(id) {
		return
	}
	w.end(id, pick(w.random, crashes, crashes, vanishes))
	if w.random.IntN(3) > 0 {
		w.later(event{kind: starts, server: id, version: pick(w.random, n.version, n.version, 36, 37, 38)}, time.Second, 40*time.Second)
	}
}

func (w *writer) end(id string, how kind) {
	w.nodes[id].up, w.nodes[id].frozen = false, false
	w.add(event{kind: how, server: id})
}

// crashAgainAndAgain ends a server that no one can ask several times in a row,
// while clients ask another for what no one has.
func (w *writer) crashAgainAndAgain(id, other string) {
	n := w.nodes[id]
	if n.lie != "" || id == other {
		return
	}
	n.lie = pick(w.random, lieFails, lieGarbage)
	w.add(event{kind: lies_, server: id, lie: n.lie})
	var at time.Duration
	for range 3 {
		at += w.between(5*time.Second, 25*time.Second)
		w.due = append(w.due, event{at: w.now + at, kind: crashes, server: id})
		at += w.between(time.Second, 5*time.Second)
		w.due = append(w.due, event{at: w.now + at, kind: starts, server: id, version: n.version})
	}
	w.due = append(w.due, event{at: w.now + at + w.between(time.Second, 40*time.Second), kind: repents, server: id})
	w.follow(other, ask{verb: "get", resource: nothings[0]}, 30, 4*time.Second)
}

// loseCustom deletes a definition that a server still knew when it went.
func (w *writer) loseCustom(id string) {
	if w.alone(id) {
		return
	}
	if name := definitions[0]; !w.defined[name] {
		w.define(name)
	}
	w.pass(w.between(11*time.Second, 20*time.Second))
	if w.nodes[id].up && !w.alone(id) {
		w.end(id, pick(w.random, crashes, vanishes))
	}
	w.pass(w.between(0, 5*time.Second))
	if w.defined[definitions[0]] {
		w.undefine(definitions[0])
	}
}

// follow has clients ask a server the same again and again, from now on.
func (w *writer) follow(id string, a ask, times int, gap time.Duration) {
	for i := range times {
		w.due = append(w.due, event{at: w.now + time.Duration(i)*gap + w.between(0, gap), kind: asks, server: id, ask: a})
	}
}

func (w *writer) freeze(id string) {
	if n := w.nodes[id]; !n.frozen && !w.alone(id) {
		n.frozen = true
		w.add(event{kind: freezes, server: id})
		w.later(event{kind: thaws, server: id}, time.Second, 40*time.Second)
	}
}

func (w *writer) part(id, other string) {
	if id == other || w.ways[pairOf(id, other)] {
		return
	}
	w.ways[pairOf(id, other)] = true
	w.add(event{kind: pick(w.random, parts, partsOneWay), server: id, other: other})
	w.later(event{kind: meets, server: id, other: other}, time.Second, 60*time.Second)
}

func (w *writer) slow(id, other string) {
	if id == other || w.ways[pairOf(id, other)] {
		return
	}
	w.ways[pairOf(id, other)] = true
	w.add(event{kind: slows, server: id, other: other})
	w.later(event{kind: hurries, server: id, other: other}, 5*time.Second, 60*time.Second)
}

func (w *writer) lie(id string) {
	n := w.nodes[id]
	if n.lie != "" {
		return
	}
	n.lie = pick(w.random, lies...)
	w.add(event{kind: lies_, server: id, lie: n.lie})
	w.later(event{kind: repents, server: id}, 5*time.Second, 60*time.Second)
}

// etcd takes etcd away, from all or from one server.
func (w *writer) etcd(id string) {
	switch n := w.nodes[id]; {
	case w.random.IntN(2) == 0 && !w.etcdAway:
		w.etcdAway = true
		w.add(event{kind: etcdLeaves})
		w.later(event{kind: etcdReturns}, 2*time.Second, 60*time.Second)
	case !n.cutOff:
		n.cutOff = true
		w.add(event{kind: losesEtcd, server: id})
		w.later(event{kind: reachesEtcd, server: id}, 2*time.Second, 60*time.Second)
	}
}

func (w *writer) change() {
	name := pick(w.random, definitions...)
	if !w.defined[name] {
		w.define(name)
		return
	}
	w.undefine(name)
}

func (w *writer) define(name string) {
	w.defined[name] = true
	w.add(event{kind: defines, name: name})
	for _, id := range w.ids {
		w.follow(id, ask{verb: "list", resource: customResource(name)}, 3, 150*time.Millisecond)
	}
}

func (w *writer) undefine(name string) {
	w.defined[name] = false
	w.add(event{kind: undefines, name: name})
	for _, id := range w.ids {
		w.follow(id, ask{verb: "list", resource: customResource(name)}, 4, 10*time.Second)
	}
}
