package integration

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// Case 14. Many forwarded watches at a priority level of few seats: lists pass
// beside them, and an event comes to each of them within a second. That another
// program takes the processors away may make it late, but not each time.
func TestManyForwardedWatchesHaveTheirEventsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.ready(spec{id: "b", serves: []resource{ours()}})
	a := c.ready(spec{id: "a", seats: 10})
	a.learns(ours())
	alice, path := a.as("alice"), ours().path("default")
	const watches = 50
	var events []<-chan string
	for range watches {
		// A seat is free again a moment after the client has its answer.
		eventually(t, "another watch is let in", func() bool {
			watch := alice.open(http.MethodGet, path+"?watch=true", nil)
			if watch.StatusCode == http.StatusOK {
				events = append(events, watchEvents(t, watch))
			}
			return watch.StatusCode == http.StatusOK
		})
	}
	const tries = 10
	var slowest time.Duration
	for try := range tries {
		alice.until(http.StatusOK, http.MethodGet, common[1].path("default"))
		alice.until(http.StatusOK, http.MethodGet, path)
		name := "thing-" + strconv.Itoa(try)
		began := time.Now()
		b.admin().want(http.StatusCreated, http.MethodPost, path, ours().thing(t, name, ""))
		for i, each := range events {
			select {
			case got := <-each:
				if got != "ADDED "+name {
					t.Fatalf("watch %d: got %q, want ADDED %s", i, got, name)
				}
			case <-time.After(patience):
				t.Fatalf("watch %d: no event of %s", i, name)
			}
		}
		if slowest = time.Since(began); slowest < time.Second {
			return
		}
	}
	t.Errorf("the last of %d watches had its event after %v, and each time after more than a second", watches, slowest)
}
