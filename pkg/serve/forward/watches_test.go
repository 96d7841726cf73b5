package forward

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"peerproxy.internal/test/peertest"
)

// watchAnswer tells when it has begun.
type watchAnswer struct {
	*httptest.ResponseRecorder
	begun func()
}

func (a *watchAnswer) WriteHeader(code int) {
	a.ResponseRecorder.WriteHeader(code)
	a.begun()
}

// A peer that a thousand watches are at dies, and their clients come again at
// once: they need four connections of 250 streams each.
func TestManyWatchesMoveOverFewConnections(t *testing.T) {
	const many, few = 1000, 100
	var begun sync.WaitGroup
	watched := handler(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	})
	b, c := &peertest.Peer{ID: "b", Handler: watched}, &peertest.Peer{ID: "c", Handler: watched}
	w := newWorld(t, b, c)
	watchAll := func() *sync.WaitGroup {
		var watches sync.WaitGroup
		begun.Add(many)
		for range many {
			watches.Go(func() {
				answer := &watchAnswer{ResponseRecorder: httptest.NewRecorder(), begun: begun.Done}
				w.front.Config.Handler.ServeHTTP(answer, w.request("GET", watch, ""))
				if answer.Code != http.StatusOK {
					t.Errorf("got %d", answer.Code)
				}
			})
		}
		begun.Wait()
		return &watches
	}
	candidates := w.candidates
	w.candidates = candidates[:1]
	watches := watchAll()
	b.Stop()
	watches.Wait()

	w.candidates = candidates
	watches = watchAll()
	if n := len(w.dialled()); n > few {
		t.Errorf("%d connections were dialled for %d watches", n, 2*many)
	}
	c.Stop()
	watches.Wait()
}
