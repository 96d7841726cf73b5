package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

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
	things := 20
	if w.calm {
		things = 9
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
		w.crashBeforeReady(id, other)
	case 9, 10:
		w.freeze(id)
	case 11, 12:
		w.part(id, other)
	case 13:
		w.slow(id, other)
	case 14, 15:
		w.lie(id)
	case 16, 17:
		w.etcd(id)
	case 18:
		w.crashAgainAndAgain(id, other)
	case 19:
		w.loseCustom(id)
	}
}

// mix has some servers of some scripts start without the library.
func (w *writer) mix(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	if random.IntN(4) > 0 {
		return
	}
	w.brands = func() brand {
		if w.well {
			return pick(random, "", "", stock)
		}
		return pick(random, "", "", stock, bare)
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
		w.later(event{kind: starts, server: id, version: pick(w.random, n.version, n.version, 36, 37, 38)}, time.Second, pick(w.random, 5*time.Second, 40*time.Second))
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
	w.add(event{kind: deceives, server: id, lie: n.lie})
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

// crashBeforeReady restarts a server, often with another version, which crashes
// before it is ready, and again, while clients ask another for what it has.
func (w *writer) crashBeforeReady(id, other string) {
	if w.alone(id) || id == other {
		return
	}
	before := w.nodes[id].version
	w.end(id, crashes)
	version := pick(w.random, before, 37, 38, 38)
	var at time.Duration
	for range 1 + w.random.IntN(3) {
		at += w.between(500*time.Millisecond, pick(w.random, 3*time.Second, 20*time.Second))
		w.due = append(w.due, event{at: w.now + at, kind: starts, server: id, version: version, youth: youth{never: true}})
		at += w.between(time.Second, pick(w.random, 5*time.Second, 30*time.Second))
		w.due = append(w.due, event{at: w.now + at, kind: crashes, server: id})
	}
	w.follow(other, ask{verb: "get", resource: pick(w.random, differing...)}, int(at/time.Second)+30, time.Second)
	if w.random.IntN(2) == 0 {
		w.due = append(w.due, event{at: w.now + at + 25*time.Second, kind: starts, server: id, version: pick(w.random, before, version)})
	}
}

// settle ends all trouble and has all servers agree.
func (w *writer) settle() {
	w.heal()
	w.pass(learning + 10*time.Second)
	w.add(event{kind: agreement})
	w.well = false
}

// depart has a server leave for good, and all agree when its time is up.
func (w *writer) depart() {
	id := pick(w.random, w.ids...)
	if w.nodes[id].up && !w.alone(id) {
		w.leave(id)
		w.nodes[id].number = 0 // heal leaves it alone
		w.quiet = true
		w.pass(w.script.periods.WithDefaults().Departed + recordTTL + learning)
		w.quiet = false
		w.settle()
	}
}

// outlastExclusion has a server die that knew a custom resource, which is then
// deleted for so long that this alone does not keep it out of documents.
func (w *writer) outlastExclusion() {
	id := pick(w.random, w.ids...)
	if !w.nodes[id].up || w.alone(id) {
		return
	}
	w.loseCustom(id)
	w.quiet = true
	w.pass(6 * time.Minute)
	for _, other := range w.ids {
		w.follow(other, ask{verb: "list", resource: customResource(definitions[0])}, 3, time.Second)
	}
	w.pass(5 * time.Second)
	w.quiet = false
	w.settle()
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
	w.add(event{kind: deceives, server: id, lie: n.lie})
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
