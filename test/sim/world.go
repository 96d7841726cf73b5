package sim

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"peerproxy.internal/pkg/peerproxy"
)

// world is a cluster in which a script is played, within a bubble of
// testing/synctest.
type world struct {
	t       *testing.T
	ctx     context.Context
	pki     *pki
	network *network
	etcd    *etcd
	ledger  *ledger
	history *history
	// seed is what the library's random choices come from.
	seed uint64
	// definitionLag is how long after the news of a definition it is served.
	definitionLag time.Duration
	// periods are those of all servers.
	periods peerproxy.Periods

	// lives are the newest incarnations; only who plays the script touches them.
	lives map[string]*life
	// stops are servers that stop, asking requests that are under way.
	stops, asking sync.WaitGroup

	mu       sync.Mutex
	began    time.Time
	lying    map[string]lie
	outcomes []*outcome
	trace    []string
	wrong    int
}

// play plays a script and returns what happened, line by line, and how many
// laws were broken. With verbose it tells every request, and what servers log.
func play(t *testing.T, pki *pki, s *script, verbose io.Writer) (trace []string, wrong int) {
	w := &world{
		t: t, pki: pki, network: newNetwork(s.latency), etcd: newEtcd(), ledger: newLedger(), periods: s.periods,
		history: newHistory(s.periods.WithDefaults().Departed, s.periods.WithDefaults().Starting),
		seed:    s.seed, definitionLag: s.definitionLag, lives: map[string]*life{}, lying: map[string]lie{}, began: time.Now(),
	}
	logger := klog.Logger{}
	if verbose != nil {
		logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(4), textlogger.Output(verbose)))
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer cancel()
	w.ctx = ctx
	for _, e := range s.events {
		time.Sleep(time.Until(w.began.Add(e.at)))
		if e.kind != asks {
			w.note("%s", e)
		}
		w.apply(e)
	}
	for _, l := range w.lives {
		w.stop(l)
	}
	w.stops.Wait()
	w.asking.Wait()
	w.checkExecutions()
	w.checkDoubts()
	return w.trace, w.wrong
}

// note adds a line to the trace.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	klog.FromContext(w.ctx).Info(line)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%10.4f  %s", time.Since(w.began).Seconds(), line))
}

// violate notes that a law is broken.
func (w *world) violate(format string, args ...any) {
	w.note("BROKEN: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong++
}

func (w *world) address(id string) string { return "10.0.0." + id[1:] + ":6443" }

func (w *world) lieOf(id string) lie {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lying[id]
}

func (w *world) setLie(id string, l lie) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lying[id] = l
}

// apply lets an event happen.
func (w *world) apply(e event) {
	switch e.kind {
	case starts:
		w.begin(e)
	case stops:
		w.stop(w.lives[e.server])
	case crashes, vanishes:
		w.crash(e)
	case asks:
		w.ask(e)
	case agreement:
		w.checkAgreement()
		w.checkShares()
	case defines, undefines:
		w.history.define(e.name, e.kind == defines)
		w.etcd.define(e.name, e.kind == defines)
	default:
		w.trouble(e)
	}
}

// trouble begins or ends one. What the servers feel and what the history says
// change at the same moment.
func (w *world) trouble(e event) {
	there, back := way{e.server, e.other}, way{e.other, e.server}
	switch e.kind {
	case freezes:
		w.history.begin("frozen", e.server, "", false)
		w.history.begin("frozen", e.server, "", true)
		w.network.freeze(e.server, true)
		w.etcd.sever(e.server+frozenToo, true)
	case thaws:
		w.thaw(e.server)
	case parts, partsOneWay:
		w.history.begin("parted", e.server, e.other, false)
		w.network.sever(there, true)
		w.network.sever(back, e.kind == parts)
	case meets:
		w.network.sever(there, false)
		w.network.sever(back, false)
		w.history.end("parted", e.server, e.other)
	case slows:
		w.history.begin("slow", e.server, e.other, false)
		w.network.slow(there, slowBytes)
	case hurries:
		w.network.slow(there, 0)
		w.history.end("slow", e.server, e.other)
	case deceives:
		w.history.begin(string(e.lie), e.server, "", false)
		w.setLie(e.server, e.lie)
	case repents:
		w.history.end(string(w.lieOf(e.server)), e.server, "")
		w.setLie(e.server, "")
	case etcdLeaves:
		w.history.begin("away", "", "", true)
		w.etcd.setAway(true)
	case etcdReturns:
		w.etcd.setAway(false)
		w.history.end("away", "", "")
	case losesEtcd:
		w.history.begin("cut off", e.server, "", true)
		w.etcd.sever(e.server, true)
	case reachesEtcd:
		w.etcd.sever(e.server, false)
		w.history.end("cut off", e.server, "")
	}
}

func (w *world) thaw(id string) {
	w.network.freeze(id, false)
	w.etcd.sever(id+frozenToo, false)
	w.history.end("frozen", id, "")
}

// begin starts a server, once the one before is gone.
func (w *world) begin(e event) {
	if last := w.lives[e.server]; last != nil {
		<-last.over
	}
	w.network.vanish(e.server, false)
	l := w.start(e)
	w.lives[e.server] = l
}

func (w *world) stop(l *life) {
	if l.ending {
		return
	}
	l.ending = true
	w.history.stopping(l.id)
	w.stops.Go(func() {
		defer close(l.over)
		l.shutDown()
		w.history.ended(l.id)
	})
}

func (w *world) crash(e event) {
	l := w.lives[e.server]
	l.ending = true
	w.thaw(l.id)
	w.history.ended(l.id)
	if e.kind == vanishes {
		w.network.vanish(l.id, true)
	} else {
		w.network.kill(l.id)
	}
	l.end()
	close(l.over)
}

// ask sends a client's request and judges its answer.
func (w *world) ask(e event) {
	l := w.lives[e.server]
	w.mu.Lock()
	id := fmt.Sprintf("r%d", len(w.outcomes))
	o := &outcome{id: id}
	w.outcomes = append(w.outcomes, o)
	w.mu.Unlock()
	w.asking.Go(func() {
		l.send(e.ask, o)
		if err := w.history.judge(o); err != nil {
			w.violate("%v: %v", o, err)
		} else {
			klog.FromContext(w.ctx).Info("Answered", "outcome", o.String())
		}
		if err := w.ledger.checkHops(o.id); err != nil {
			w.violate("%v: %v", o, err)
		}
	})
}

// checkExecutions checks that no unsafe request was executed twice, and none
// whose client was told that it was not.
func (w *world) checkExecutions() {
	for _, o := range w.outcomes {
		if o.ask.path != "" || !o.ask.unsafe() {
			continue
		}
		by := w.ledger.executions(o.id)
		switch {
		case len(by) > 1:
			w.violate("%v: executed by %v", o, by)
		case len(by) == 1 && !o.lost && o.code == 503:
			w.violate("%v: executed by %v, and may be sent again", o, by)
		case len(by) == 0 && !o.lost && o.code >= 200 && o.code <= 299:
			w.violate("%v: never executed", o)
		}
	}
}
