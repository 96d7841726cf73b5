package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"peerproxy.internal/pkg/observe/lease"
	"peerproxy.internal/pkg/snapshot"
)

var (
	start  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limits = Limits{DepartureGrace: 10 * time.Minute, Doubt: Allowance{Longest: 30 * time.Second, Window: 10 * time.Minute}, Starting: Allowance{Longest: 5 * time.Minute, Window: 10 * time.Minute}}
)

// member is a server with what the letters say: an (i)dentity lease, a
// (r)ecord, or an early record of one that (s)tarts.
func member(id, has string) lease.Member {
	m := lease.Member{ServerID: id}
	for _, letter := range has {
		switch letter {
		case 'i':
			m.Identity = &lease.Identity{Incarnation: id + "_1", Expires: start.Add(time.Hour)}
		case 'r':
			m.Record = &lease.Record{Address: id + ":6443"}
		case 's':
			m.Record = &lease.Record{Address: id + ":6443", Incarnation: id + "_1", Starting: true}
		}
	}
	return m
}

// again is the member after a restart.
func again(m lease.Member) lease.Member {
	m.Identity.Incarnation = m.ServerID + "_2"
	return m
}

func documentOf(id string) *snapshot.Document {
	return &snapshot.Document{ServerID: id, Incarnation: id + "_1", Checked: start}
}

// story is a row of moments, each built upon the memory of the one before.
type moment struct {
	at        time.Duration
	members   []lease.Member
	documents []string

	// state is the peer b's state, "" if it is no peer.
	state  string
	unsure bool
	next   time.Duration
}

func TestBuildFollowsAMemberThroughItsLife(t *testing.T) {
	for _, tc := range []struct {
		name    string
		moments []moment
	}{
		{"a live record makes a serving member", []moment{
			{members: []lease.Member{member("b", "ir")}, documents: []string{"b"}, state: "Serving"},
		}},
		{"so does a record without identity lease", []moment{
			{members: []lease.Member{member("b", "ir")}, documents: []string{"b"}, state: "Serving"},
			{at: time.Second, members: []lease.Member{member("b", "r")}, documents: []string{"b"}, state: "Serving"},
		}},
		{"without a record from the start it takes no part", []moment{
			{members: []lease.Member{member("b", "i")}},
		}},
		{"a document that is missing is doubted", []moment{
			{members: []lease.Member{member("b", "ir")}, state: "Serving", unsure: true, next: 30 * time.Second},
			{at: 30 * time.Second, members: []lease.Member{member("b", "ir")}, state: "Serving"},
		}},
		{"a record that expired makes it unreachable until the identity lease ends", []moment{
			{members: []lease.Member{member("b", "ir")}, documents: []string{"b"}, state: "Serving"},
			{at: time.Minute, members: []lease.Member{member("b", "i")}, documents: []string{"b"}, state: "Unreachable", next: time.Hour},
			{at: time.Hour, members: []lease.Member{member("b", "i")}, documents: []string{"b"}, state: "Departed", next: time.Hour + 10*time.Minute},
		}},
		{"a graceful stop makes it departed, for the grace", []moment{
			{members: []lease.Member{member("b", "ir")}, documents: []string{"b"}, state: "Serving"},
			{at: time.Minute, documents: []string{"b"}, state: "Departed", next: 11 * time.Minute},
			{at: 5 * time.Minute, documents: []string{"b"}, state: "Departed", next: 11 * time.Minute},
			{at: 11 * time.Minute, documents: []string{"b"}},
		}},
		{"a restart without a record makes it departed after the time in which servers start", []moment{
			{members: []lease.Member{member("b", "ir")}, documents: []string{"b"}, state: "Serving"},
			{at: time.Minute, documents: []string{"b"}, state: "Departed", next: 11 * time.Minute},
			{at: 2 * time.Minute, members: []lease.Member{again(member("b", "i"))}, documents: []string{"b"}, state: "Unreachable", next: 7 * time.Minute},
			{at: 7 * time.Minute, members: []lease.Member{again(member("b", "i"))}, documents: []string{"b"}, state: "Departed", next: 17 * time.Minute},
			{at: 17 * time.Minute, members: []lease.Member{again(member("b", "i"))}, documents: []string{"b"}},
		}},
		{"its return ends the departure", []moment{
			{members: []lease.Member{member("b", "ir")}, documents: []string{"b"}, state: "Serving"},
			{at: time.Minute, documents: []string{"b"}, state: "Departed", next: 11 * time.Minute},
			{at: 2 * time.Minute, members: []lease.Member{member("b", "ir")}, documents: []string{"b"}, state: "Serving"},
			{at: 3 * time.Minute, documents: []string{"b"}, state: "Departed", next: 13 * time.Minute},
		}},
		{"one that left before it could be asked is no peer", []moment{
			{members: []lease.Member{member("b", "ir")}, state: "Serving", unsure: true, next: 30 * time.Second},
			{at: time.Second},
		}},
		{"an early record makes a starting member, with or without identity lease", []moment{
			{members: []lease.Member{member("b", "s")}, documents: []string{"b"}, state: "Starting", next: 5 * time.Minute},
			{at: time.Second, members: []lease.Member{member("b", "is")}, documents: []string{"b"}, state: "Starting", next: 5 * time.Minute},
			{at: time.Minute, members: []lease.Member{member("b", "ir")}, documents: []string{"b"}, state: "Serving"},
		}},
		{"one that starts for five minutes is then as without a record", []moment{
			{members: []lease.Member{member("b", "is")}, documents: []string{"b"}, state: "Starting", next: 5 * time.Minute},
			{at: 5 * time.Minute, members: []lease.Member{member("b", "is")}, documents: []string{"b"}},
			{at: time.Hour, members: []lease.Member{member("b", "is")}},
		}},
		{"one that never was ready leaves nothing behind", []moment{
			{members: []lease.Member{member("b", "is")}, documents: []string{"b"}, state: "Starting", next: 5 * time.Minute},
			{at: time.Second, members: []lease.Member{member("b", "i")}, documents: []string{"b"}},
		}},
		{"an unknown document is doubted of a starting member too", []moment{
			{members: []lease.Member{member("b", "is")}, state: "Starting", unsure: true, next: 30 * time.Second},
			{at: 30 * time.Second, members: []lease.Member{member("b", "is")}, state: "Starting", next: 5 * time.Minute},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			memory := Memory{}
			for _, m := range tc.moments {
				facts := Facts{ServerID: "a", Now: start.Add(m.at), Listed: true, Members: m.members, Local: documentOf("a"), Documents: map[string]*snapshot.Document{}}
				for _, id := range m.documents {
					facts.Documents[id] = documentOf(id)
				}
				content, after, next := Build(facts, memory, limits)
				memory = after
				state := ""
				if len(content.Peers) > 0 {
					state = content.Peers[0].State.String()
				}
				want := time.Time{}
				if m.next != 0 {
					want = start.Add(m.next)
				}
				if state != m.state || content.Unsure != m.unsure || !next.Equal(want) {
					t.Errorf("after %v: state %q, unsure %t, next %v; want %q, %t, %v", m.at, state, content.Unsure, next, m.state, m.unsure, want)
				}
			}
		})
	}
}

func TestBuildKeepsTheLastAddress(t *testing.T) {
	facts := Facts{ServerID: "a", Now: start, Listed: true, Local: documentOf("a"), Members: []lease.Member{member("b", "ir")}, Documents: map[string]*snapshot.Document{"b": documentOf("b")}}
	_, memory, _ := Build(facts, Memory{}, limits)
	facts.Members = []lease.Member{member("b", "i")}
	content, _, _ := Build(facts, memory, limits)
	if got := content.Peers[0].Address; got != "b:6443" {
		t.Errorf("got address %q, want the last one known", got)
	}
}

func TestBuildDoubtsANewIncarnationAndKeepsItsOldDocument(t *testing.T) {
	restarted := member("b", "ir")
	restarted.Identity.Incarnation = "b_2"
	old := documentOf("b")
	facts := Facts{ServerID: "a", Now: start, Listed: true, Local: documentOf("a"), Members: []lease.Member{member("b", "ir")}, Documents: map[string]*snapshot.Document{"b": old}}
	_, memory, _ := Build(facts, Memory{}, limits)
	facts.Members = []lease.Member{restarted}
	content, _, _ := Build(facts, memory, limits)
	if !content.Unsure {
		t.Error("what a new incarnation serves is not doubted")
	}
	if content.Peers[0].Document != old {
		t.Error("the old document is not in force")
	}
}

func TestBuildIsUnsureBeforeTheLeasesAreListed(t *testing.T) {
	for name, facts := range map[string]Facts{
		"leases not listed": {ServerID: "a", Now: start, Local: documentOf("a")},
		"no own document":   {ServerID: "a", Now: start, Listed: true},
	} {
		if content, _, _ := Build(facts, Memory{}, limits); !content.Unsure {
			t.Errorf("%s: not unsure", name)
		}
	}
}

// Of what it serves itself a blind server's local chain knows; the others' documents
// are not in doubt for that.
func TestBuildOfABlindServerDoubtsTheOthersAlone(t *testing.T) {
	blind := Facts{ServerID: "a", Now: start, Listed: true, Blind: true}
	if content, _, _ := Build(blind, Memory{}, limits); content.Unsure || !content.Blind {
		t.Errorf("unsure %t, blind %t", content.Unsure, content.Blind)
	}
	blind.Members = []lease.Member{member("b", "ir")}
	if content, _, _ := Build(blind, Memory{}, limits); !content.Unsure {
		t.Error("not unsure of a member without a document")
	}
}

func TestBuildLeavesOutThisServer(t *testing.T) {
	facts := Facts{ServerID: "a", Now: start, Listed: true, Local: documentOf("a"), Members: []lease.Member{member("a", "ir")}}
	if content, _, _ := Build(facts, Memory{}, limits); len(content.Peers) != 0 {
		t.Errorf("this server is its own peer: %v", content.Peers)
	}
}

func TestBuildIsPure(t *testing.T) {
	facts := Facts{ServerID: "a", Now: start, Listed: true, Local: documentOf("a"), Members: []lease.Member{member("c", "ir"), member("b", "i")}, Documents: map[string]*snapshot.Document{"b": documentOf("b")}}
	before := Memory{"b": {address: "b:6443"}}
	first, memory, next := Build(facts, before, limits)
	second, memory2, next2 := Build(facts, before, limits)
	options := cmp.AllowUnexported(memory2["b"], served{}, Account{}, snapshot.List{})
	if diff := cmp.Diff(first, second, options); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(memory, memory2, options); diff != "" || next != next2 {
		t.Error(diff, next, next2)
	}
	if diff := cmp.Diff(Memory{"b": {address: "b:6443"}}, before, options); diff != "" {
		t.Errorf("the memory was changed: %s", diff)
	}
}
