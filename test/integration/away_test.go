package integration

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"peerproxy.internal/test/cluster"
)

// outage is longer than a record lives by itself. After it etcd's client, and the
// reflector on it, may pause for long before they try again.
const outage, pause = recordTTL + 5*time.Second, 2 * time.Minute

// What is known stays in force while etcd is away, and when it is back: here with
// every record in it.
func TestEtcdIsAwayForLongerThanARecordLives(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	etcd := c.cuttable()
	c.actor("b", answering("from b"), ours())
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	a.settles() // no document is missing
	alice := a.as("alice")
	known := alice.document("/apis")
	etcd.Cut()
	alice.keeps(known, outage)
	etcd.Mend()
	a.returns()
	alice.keeps(known, time.Second)
}

// The servers alone can't reach etcd, and their records end there meanwhile.
func TestEtcdIsAwayUntilRecordsHaveEnded(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	etcd := c.cuttable()
	b := c.actor("b", answering("from b"), ours())
	publish := func() {
		c.put(c.recordKey("b"), stored(t, record(t, "b", b.Address())), int64(recordTTL/time.Second))
	}
	publish()
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	a.settles() // no document is missing
	alice := a.as("alice")
	known := alice.document("/apis")
	etcd.Cut()
	alice.keeps(known, outage)
	eventually(t, "b's record has ended", func() bool { return c.get(c.recordKey("b")) == nil })
	etcd.Mend()
	a.returns()
	// Its documents may say that they are stale, until it is heard of again.
	a.misses("b")
	alice.checkForwards()
	if !alice.document("/apis").lists(t, ours()) {
		t.Error("what b serves has left discovery with its record")
	}
	publish()
	a.sees("b", b.Address())
	eventually(t, "discovery is what it was", func() bool {
		alice.checkForwards()
		return string(alice.document("/apis").body) == string(known.body)
	})
}

// cuttable puts a way that can be cut between the members that start from now on
// and etcd.
func (c *cell) cuttable() *cluster.Wire {
	c.t.Helper()
	way, err := cluster.NewWire(strings.TrimPrefix(c.etcdURL, "http://"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(way.Close)
	c.etcdURL = "http://" + way.Address()
	return way
}

// keeps wants for a while that what only b has is forwarded there, and that
// discovery is what is known.
func (c *client) keeps(known answer, d time.Duration) {
	c.t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for end := time.After(d); ; {
		c.checkForwards()
		if got := c.document("/apis"); string(got.body) != string(known.body) || got.header.Get("ETag") != known.header.Get("ETag") {
			c.t.Fatalf("discovery was\n%s\nand is\n%s", known.body, got.body)
		}
		select {
		case <-end:
			return
		case <-again.C:
		}
	}
}

func (c *client) checkForwards() {
	c.t.Helper()
	if got := c.want(http.StatusOK, http.MethodGet, ours().path("default"), ""); string(got.body) != "from b" {
		c.t.Errorf("got %q, want b's answer", got.body)
	}
}

// returns waits until the server hears of others again, and is heard of.
func (s *server) returns() {
	s.t.Helper()
	news := s.cell.actor("news", http.NotFound)
	hears := func() bool {
		got, err := s.proxy.EndpointLeaseReconciler().GetEndpoint("news")
		return err == nil && got == news.Address()
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for limit := time.After(pause); !hears(); {
		select {
		case <-again.C:
		case <-limit:
			s.t.Fatalf("%s has no news from etcd after %v", s.spec.id, pause)
		}
	}
	eventually(s.t, s.spec.id+" has written its record again", func() bool { return s.cell.get(s.cell.recordKey(s.spec.id)) != nil })
}
