package observe

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"peerproxy.internal/pkg/observe/lease"
	"peerproxy.internal/pkg/snapshot"
)

// incarnation is a moment in the life of server b: its incarnation, whether it
// has an early record, and the resource that the newest document names, made by
// the incarnation given.
type incarnation struct {
	id               string
	record, starting bool
	newest, by       string
	// writer is the incarnation that a record names; an early one names that of the
	// lease if this is empty.
	writer string
	// written is how often the record was written.
	written int64
	// at is when, a second after the step before if 0; checked is when the newest
	// document was read, then if 0.
	at, checked time.Duration
}

func TestOnlyWhatAReadyServerServedOutlivesItsRecord(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []incarnation
		// want is the document in force after each step, "" for none.
		want []string
	}{
		{"a new version that crashes as it starts", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "2", record: true, starting: true, newest: "old", by: "1"},
			{id: "2", record: true, starting: true, newest: "new", by: "2"},
			{id: "2", newest: "new", by: "2"},
			{id: "3", record: true, starting: true, newest: "new", by: "2"},
		}, []string{"old", "old", "new", "old", "old"}},
		{"a new version that comes to be ready", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "2", record: true, starting: true, newest: "new", by: "2"},
			{id: "2", record: true, newest: "new", by: "2"},
			{id: "2", newest: "new", by: "2"},
		}, []string{"old", "new", "new", "new"}},
		{"a record left over from a crash makes no one ready", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "2", record: true, newest: "new", by: "2", at: time.Minute},
			{id: "2", record: true, starting: true, newest: "new", by: "2", at: time.Minute + time.Second},
			{id: "2", newest: "new", by: "2", at: time.Minute + 2*time.Second},
		}, []string{"old", "new", "new", "old"}},
		{"a record left over from a crash, of a server that says nothing early", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "2", record: true, newest: "new", by: "2", at: time.Minute},
			{id: "2", newest: "new", by: "2", at: time.Minute + time.Second},
			{id: "3", record: true, newest: "new", by: "2", checked: time.Minute, at: time.Minute + 2*time.Second},
			{id: "3", newest: "new", by: "2", checked: time.Minute, at: time.Minute + 3*time.Second},
		}, []string{"old", "new", "old", "old", "old"}},
		{"a record that is written again is not left over", []incarnation{
			{id: "1", record: true, written: 1, newest: "old", by: "1"},
			{id: "2", record: true, written: 7, newest: "new", by: "2", at: time.Minute},
			{id: "2", record: true, written: 9, newest: "new", by: "2", at: time.Minute + time.Second},
			{id: "2", newest: "new", by: "2", at: time.Minute + 2*time.Second},
		}, []string{"old", "new", "new", "new"}},
		{"a record of which the dead server's last writing shows late", []incarnation{
			{id: "1", record: true, written: 6, newest: "old", by: "1"},
			{id: "1", record: true, written: 6, newest: "new", by: "1"},
			{id: "1", record: true, written: 7, newest: "new", by: "1"},
			{id: "2", newest: "new", by: "1"},
		}, []string{"old", "new", "new", "old"}},
		{"a record left over from a crash, and no lease yet", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "1", record: true, newest: "new", by: "1"},
			{id: "2", record: true, starting: true, newest: "new", by: "1"},
			{id: "2", newest: "new", by: "1"},
		}, []string{"old", "new", "old", "old"}},
		{"the same, and no lease ever", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "1", record: true, newest: "new", by: "1"},
			{id: "1", newest: "new", by: "1"},
		}, []string{"old", "new", "old"}},
		{"the same, at a server that was back from a freeze", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "1", newest: "old", by: "1"},
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "1", record: true, newest: "new", by: "1"},
			{id: "1", newest: "new", by: "1"},
		}, []string{"old", "old", "old", "new", "old"}},
		{"one that serves something else as it lives", []incarnation{
			{id: "1", record: true, written: 1, newest: "old", by: "1"},
			{id: "1", record: true, written: 1, newest: "new", by: "1"},
			{id: "1", record: true, written: 3, newest: "new", by: "1"},
			{id: "1", newest: "new", by: "1"},
		}, []string{"old", "new", "new", "new"}},
		{"one that serves something else all the time", []incarnation{
			{id: "1", record: true, written: 1, newest: "old", by: "1"},
			{id: "1", record: true, written: 1, newest: "second", by: "1"},
			{id: "1", record: true, written: 3, newest: "third", by: "1"},
			{id: "1", record: true, written: 5, newest: "fourth", by: "1"},
			{id: "1", newest: "fourth", by: "1"},
		}, []string{"old", "second", "third", "fourth", "third"}},
		{"one whose record begins anew, and counts from one again", []incarnation{
			{id: "1", record: true, written: 57, newest: "old", by: "1"},
			{id: "1", record: true, written: 57, newest: "new", by: "1"},
			{id: "1", record: true, written: 1, newest: "new", by: "1"},
			{id: "1", record: true, written: 3, newest: "new", by: "1"},
			{id: "1", newest: "new", by: "1"},
		}, []string{"old", "new", "new", "new", "new"}},
		{"one whose lease is given to someone else all the time", []incarnation{
			{id: "1", record: true, written: 1, newest: "old", by: "1"},
			{id: "1", record: true, written: 1, newest: "new", by: "1"},
			{id: "2", record: true, written: 2, newest: "new", by: "2"},
			{id: "3", record: true, written: 3, newest: "new", by: "3"},
			{id: "3", newest: "new", by: "3"},
		}, []string{"old", "new", "new", "new", "new"}},
		{"one whose record names it, and whose lease names someone else", []incarnation{
			{id: "2", record: true, writer: "1", written: 1, newest: "old", by: "2"},
			{id: "2", record: true, writer: "1", written: 3, newest: "old", by: "2"},
			{id: "2", newest: "old", by: "2"},
		}, []string{"old", "old", "old"}},
		{"a claim of an incarnation that the next one does not make", []incarnation{
			{id: "1", record: true, written: 1, newest: "old", by: "1"},
			{id: "2", record: true, written: 1, newest: "lost", by: "2"},
			{id: "3", record: true, written: 3, newest: "new", by: "3"},
			{id: "3", record: true, written: 3, starting: true, newest: "new", by: "3"},
			{id: "3", newest: "new", by: "3"},
		}, []string{"old", "lost", "new", "new", "old"}},
		{"one that is ready for a moment", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "2", record: true, starting: true, newest: "new", by: "2"},
			{id: "2", record: true, writer: "2", newest: "new", by: "2", checked: time.Second},
			{id: "2", record: true, writer: "2", newest: "lost", by: "2"},
			{id: "3", record: true, starting: true, newest: "lost", by: "2"},
			{id: "3", newest: "lost", by: "2"},
		}, []string{"old", "new", "new", "lost", "new", "new"}},
		{"one whose record names it, over a record left over from a crash", []incarnation{
			{id: "1", record: true, writer: "1", written: 1, newest: "old", by: "1"},
			{id: "2", record: true, writer: "1", written: 1, newest: "new", by: "2"},
			{id: "2", record: true, writer: "2", written: 2, newest: "new", by: "2"},
			{id: "2", newest: "new", by: "2"},
		}, []string{"old", "new", "new", "new"}},
		{"one whose record names it before its document is known", []incarnation{
			{id: "1", record: true, writer: "1", written: 1, newest: "old", by: "1"},
			{id: "2", record: true, writer: "2", written: 2, newest: "old", by: "1", checked: time.Millisecond},
			{id: "2", record: true, writer: "2", written: 2, newest: "new", by: "2"},
			{id: "2", newest: "new", by: "2"},
		}, []string{"old", "old", "new", "new"}},
		{"one whose record names it, crashed and not back", []incarnation{
			{id: "1", record: true, writer: "1", written: 1, newest: "old", by: "1"},
			{id: "1", record: true, writer: "1", written: 1, newest: "new", by: "1"},
			{id: "1", newest: "new", by: "1"},
		}, []string{"old", "new", "old"}},
		{"one whose record names it, and that is found as another answers", []incarnation{
			{id: "2", record: true, writer: "1", newest: "new", by: "2"},
			{id: "2", newest: "new", by: "2"},
		}, []string{"new", ""}},
		{"one whose record names it before its lease does, after one that was not ready", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "2", record: true, starting: true, newest: "new", by: "2"},
			{id: "2", record: true, writer: "3", newest: "new", by: "2", checked: time.Second},
			{id: "2", record: true, writer: "3", newest: "third", by: "3"},
			{id: "2", newest: "third", by: "3"},
		}, []string{"old", "new", "old", "third", "third"}},
		{"an early record, and then that of a server which names no one", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "2", record: true, starting: true, newest: "new", by: "2"},
			{id: "2", record: true, newest: "new", by: "2", checked: time.Second},
			{id: "2", newest: "new", by: "2", checked: time.Second},
		}, []string{"old", "new", "new", "old"}},
		{"a record that shows before its identity lease", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "1", newest: "old", by: "1", at: time.Minute},
			{id: "1", record: true, newest: "old", by: "1", checked: time.Second, at: time.Minute + time.Second},
			{id: "2", record: true, newest: "new", by: "2", at: time.Minute + 2*time.Second},
			{id: "2", newest: "new", by: "2", at: time.Minute + 3*time.Second},
		}, []string{"old", "old", "old", "new", "new"}},
		{"an early record that shows before its identity lease", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "1", record: true, starting: true, writer: "2", newest: "old", by: "1"},
			{id: "2", record: true, starting: true, newest: "old", by: "1"},
			{id: "2", newest: "old", by: "1"},
		}, []string{"old", "old", "old", "old"}},
		{"a document of one that never was ready is not the next one's", []incarnation{
			{id: "1", record: true, starting: true, newest: "new", by: "1"},
			{id: "2", record: true, newest: "new", by: "1", checked: time.Millisecond},
		}, []string{"new", ""}},
		{"whoever renews the lease of a dead server keeps it for an hour", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "1", newest: "old", by: "1", at: time.Hour},
			{id: "1", newest: "old", by: "1", at: 2*time.Hour - time.Second},
			{id: "1", newest: "old", by: "1", at: 2 * time.Hour},
			{id: "1", newest: "old", by: "1", at: 2*time.Hour + 10*time.Minute},
		}, []string{"old", "old", "old", "old", ""}},
		{"a new server that crashes as it starts", []incarnation{
			{id: "1", record: true, starting: true, newest: "new", by: "1"},
			{id: "1", newest: "new", by: "1"},
		}, []string{"new", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			memory := Memory{}
			for i, step := range tc.steps {
				content, after := step.build(i, memory)
				memory = after
				got := ""
				if len(content.Peers) > 0 && content.Peers[0].Document != nil {
					got = content.Peers[0].Document.Groups.ETag
				}
				if got != tc.want[i] {
					t.Errorf("step %d: the document in force is %q, want %q", i, got, tc.want[i])
				}
			}
		})
	}
}

// build takes the step of that number.
func (i incarnation) build(number int, memory Memory) (snapshot.Content, Memory) {
	now := start.Add(cmp.Or(i.at, time.Duration(number)*time.Second))
	content, after, _ := Build(Facts{
		ServerID: "a", Now: now, Listed: true, Local: documentOf("a"),
		Members: []lease.Member{i.member(now)}, Documents: map[string]*snapshot.Document{"b": i.document(now)},
	}, memory, limits)
	return content, after
}

func (i incarnation) member(now time.Time) lease.Member {
	b := lease.Member{ServerID: "b", Identity: &lease.Identity{Incarnation: i.id, Expires: now.Add(time.Hour)}}
	if i.record {
		b.Record = &lease.Record{Address: "b:1", Incarnation: i.writer, Generation: i.written}
	}
	if i.starting {
		b.Record.Incarnation, b.Record.Starting = cmp.Or(i.writer, i.id), true
	}
	return b
}

func (i incarnation) document(now time.Time) *snapshot.Document {
	if i.checked != 0 {
		now = start.Add(i.checked)
	}
	return &snapshot.Document{ServerID: "b", Incarnation: i.by, Checked: now, Groups: snapshot.List{ETag: i.newest}}
}

// What is excluded is asked for as of the oldest document that may come into
// force: a resource that was deleted since must not come back with it.
func TestTheOldestDocumentMayBeOneThatIsOnlyRemembered(t *testing.T) {
	facts := Facts{Now: start.Add(time.Hour), Documents: map[string]*snapshot.Document{"b": {Checked: start.Add(time.Minute)}}}
	memory := Memory{"b": {served: served{document: &snapshot.Document{Checked: start}}}}
	if got := oldest(facts, memory); !got.Equal(start) {
		t.Errorf("got %v, want %v", got, start)
	}
}

func TestADoubtEndsWithTheRecord(t *testing.T) {
	facts := Facts{ServerID: "a", Now: start, Listed: true, Local: documentOf("a"), Members: []lease.Member{member("b", "ir")}}
	_, memory, _ := Build(facts, Memory{}, limits)
	facts.Now, facts.Members = start.Add(2*time.Second), []lease.Member{member("b", "i")}
	_, memory, _ = Build(facts, memory, limits)
	facts.Now, facts.Members = start.Add(time.Minute), []lease.Member{member("b", "ir")}
	if content, _, next := Build(facts, memory, limits); !content.Unsure || !next.Equal(start.Add(time.Minute+28*time.Second)) {
		t.Errorf("when it is back: unsure %t, until %v; want the rest of 30 s", content.Unsure, next)
	}
	facts.Now, facts.Members = start.Add(time.Hour), nil
	if _, memory, _ = Build(facts, memory, limits); len(memory) != 0 {
		t.Errorf("after an hour it is still remembered: %v", memory)
	}
}

// early makes the record of a member that of a server which starts.
func early(m lease.Member) lease.Member {
	m.Record = &lease.Record{Address: m.Record.Address, Incarnation: m.Identity.Incarnation, Starting: true}
	return m
}

func TestAStartingPeerIsRoutableUntilItsRecordEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours", "b:1": "old"}, members: []lease.Member{at("b", "b:1", "b_1")}}
		o := observed(t, c)
		synctest.Wait()
		c.set(func() {
			c.serves["b:1"] = "new"
			c.members = []lease.Member{early(at("b", "b:1", "b_2"))}
		})
		time.Sleep(time.Second)
		if kind(o, "new") != snapshot.Peers || kind(o, "old") != snapshot.Absent {
			t.Errorf("while it starts: new is %v, old is %v", kind(o, "new"), kind(o, "old"))
		}
		c.set(func() {
			gone := at("b", "b:1", "b_2")
			gone.Record = nil
			c.members = []lease.Member{gone}
		})
		synctest.Wait()
		if kind(o, "new") != snapshot.Absent || kind(o, "old") != snapshot.Unreachable {
			t.Errorf("after its crash: new is %v, old is %v", kind(o, "new"), kind(o, "old"))
		}
	})
}

func TestWhatAPeerThatIsNotReadyRefusesSaysNothing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []incarnation
		want  []bool
	}{
		{"one that starts, for too long, and is ready", []incarnation{
			{id: "1", record: true, writer: "1", newest: "old", by: "1"},
			{id: "2", record: true, starting: true, newest: "new", by: "2"},
			{id: "2", record: true, starting: true, newest: "new", by: "2", at: limits.Starting.Longest + time.Second},
			{id: "2", record: true, writer: "2", newest: "new", by: "2", at: limits.Starting.Longest + 2*time.Second},
		}, []bool{false, true, true, false}},
		{"one that is out of reach, and starts again without a record", []incarnation{
			{id: "1", record: true, newest: "old", by: "1"},
			{id: "1", newest: "old", by: "1"},
			{id: "2", newest: "old", by: "1"},
			{id: "2", record: true, newest: "old", by: "2"},
		}, []bool{false, false, true, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			memory := Memory{}
			for i, step := range tc.steps {
				content, after := step.build(i, memory)
				memory = after
				if len(content.Peers) != 1 || content.Peers[0].Unready != tc.want[i] {
					t.Errorf("step %d: got %+v, want unready %t", i, content.Peers, tc.want[i])
				}
			}
		})
	}
}

func TestAPeerThatBecameReadyIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours", "b:1": "half"}, members: []lease.Member{early(at("b", "b:1", "b_1"))}}
		o := observed(t, c)
		synctest.Wait()
		c.set(func() {
			c.serves["b:1"] = "whole"
			c.members = []lease.Member{at("b", "b:1", "b_1")}
		})
		time.Sleep(time.Second)
		if got := kind(o, "whole"); got != snapshot.Peers {
			t.Errorf("got %v, want Peers", got)
		}
	})
}

func TestTheOwnIncarnationIsToldOnceItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, self := at("a", "a:1", "a_1"), at("a", "a:1", "a_2")
		before.Identity.Renewed = time.Now().Add(-time.Second)
		c := &cluster{listed: true, serves: map[string]string{}, members: []lease.Member{before}}
		o := observed(t, c)
		told := func() string {
			synctest.Wait()
			select {
			case incarnation := <-o.Incarnation():
				return incarnation
			default:
				return ""
			}
		}
		self.Identity.Renewed = time.Now().Add(time.Second)
		c.set(func() { c.members = []lease.Member{self} })
		if got := told(); got != "" {
			t.Errorf("told %q before the own handler answers", got)
		}
		c.set(func() { c.members, c.serves["local"] = []lease.Member{before}, "ours" })
		time.Sleep(time.Minute)
		if got := told(); got != "" {
			t.Errorf("told %q, of the process before", got)
		}
		c.set(func() { c.members = []lease.Member{self} })
		if got := told(); got != "a_2" {
			t.Errorf("told %q, want a_2", got)
		}
		c.set(func() {})
		if got := told(); got != "" {
			t.Errorf("told %q again", got)
		}
	})
}

func TestAnotherServerOfTheSameIDIsNamedInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{listed: true, serves: map[string]string{"local": "ours"}, members: []lease.Member{at("a", "a:1", "a_1")}}
		c.members[0].Identity.Renewed = time.Now()
		o := newObserver(c)
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		done := make(chan error)
		go func() { done <- o.Run(ctx) }()
		synctest.Wait()
		other := at("a", "a:1", "a_2")
		other.Identity.Renewed = time.Now()
		c.set(func() { c.members = []lease.Member{other} })
		synctest.Wait()
		c.set(func() {})
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if strings.Count(log, "needs an ID of its own") != 1 || !strings.Contains(log, "a_2") {
			t.Errorf("the log has %q, want one line that names the other", log)
		}
	})
}
