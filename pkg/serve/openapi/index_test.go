package openapi

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"peerproxy.internal/pkg/snapshot"
)

// twoServers are an old and a new server, each seen as this one.
func twoServers(t testing.TB) (atOld, atNew *cluster) {
	old := newStock("b", "v1 pods p", "apps/v1 deployments old", "batch/v1 jobs j")
	young := newStock("a", "v1 pods p", "apps/v1 deployments new", "apps/v1 widgets w", "new/v1 things t")
	return newCluster(t, old, young), newCluster(t, young, old)
}

func TestIndexListsWhatAnyMemberHas(t *testing.T) {
	atOld, atNew := twoServers(t)
	urls := atOld.indexed(t)
	if got, want := namesIn(urls), "api/v1 apis/apps/v1 apis/batch/v1 apis/new/v1 version"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if one, other := atOld.get(t, pathV3).Body.String(), atNew.get(t, pathV3).Body.String(); one != other {
		t.Errorf("the servers disagree:\n%s\n%s", one, other)
	}
	own, err := decodeIndex([]byte(atOld.servers[0].body(t, pathV3)))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api/v1", "apis/batch/v1", "version"} {
		if urls[name] != own[name] {
			t.Errorf("%s is what one has, or all have alike, and has another URL: %s", name, urls[name])
		}
	}
	if urls["apis/apps/v1"] == own["apis/apps/v1"] {
		t.Error("apis/apps/v1 is merged, and has the URL that it has alone")
	}
}

// body is what the server itself answers.
func (s *stock) body(t testing.TB, target string, headers ...string) string {
	t.Helper()
	response, err := s.RoundTrip(newRequest(http.MethodGet, target, headers...))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text strings.Builder
	if err := response.Write(&text); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(text.String(), "\r\n\r\n")
	return body
}

func TestCustomResourcesComeFromThisServer(t *testing.T) {
	here := newStock("b", "v1 pods p", "crd.io/v1 mine new")
	there := newStock("a", "v1 pods p", "crd.io/v1 mine old", "crd.io/v1beta1 mine older", "new/v1 things t")
	c := newCluster(t, here, there)
	c.exclude("crd.io/v1/mine", "crd.io/v1beta1/mine")
	urls := c.indexed(t)
	if got, want := namesIn(urls), "api/v1 apis/crd.io/v1 apis/new/v1 version"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := schemas(t, c.get(t, urls["apis/crd.io/v1"])); got != "crd.io.v1.mine=new" {
		t.Errorf("got %s", got)
	}
}

func TestWhatDiscoveryDoesNotListIsNotTaken(t *testing.T) {
	here, there := newStock("b", "v1 pods p"), newStock("a", "v1 pods p")
	c := newCluster(t, here, there)
	// The peer's OpenAPI is newer than its discovery.
	there.serve("v1 pods p", "crd.io/v1 young y")
	there.resources = []string{"v1 pods p"}
	if got, want := namesIn(c.indexed(t)), "api/v1 version"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestIndexOfPeersThatFail(t *testing.T) {
	for name, trouble := range map[string]func(*http.Request) (*http.Response, error){
		"refuses":           refuses,
		"hangs":             hangs,
		"answers 500":       answers(500, "application/json", "{}"),
		"sends no JSON":     answers(200, "text/html", `{"paths":{}}`),
		"sends garbage":     answers(200, "application/json", `{"paths":`),
		"sends no index":    answers(200, "application/json", `{}`),
		"sends odd entries": answers(200, "application/json", `{"paths":{"apis/new/v1":{"serverRelativeURL":"https://elsewhere/openapi/v3/apis/new/v1?hash=1"},"":{},"../x":{"serverRelativeURL":"/openapi/v3/../x?hash=1"}}}`),
		"sends too much":    answers(200, "application/json", `{"paths":{"apis/new/v1":{"serverRelativeURL":"/openapi/v3/apis/new/v1?hash=1"}}}`+strings.Repeat(" ", maxIndexBytes)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := newStock("b", "v1 pods p"), newStock("a", "v1 pods q", "new/v1 things t")
				c := newCluster(t, here, there)
				there.fail(trouble)
				began := time.Now()
				if got, want := namesIn(c.indexed(t)), "api/v1 version"; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if waited := time.Since(began); waited > patience {
					t.Errorf("waited %s", waited)
				}
				began = time.Now()
				if c.indexed(t); time.Since(began) > 0 {
					t.Errorf("waited again")
				}
				time.Sleep(fetchTimeout) // what hangs is given up
				there.fail(nil)
				c.indexed(t)
				if name != "sends odd entries" && strings.Contains(namesIn(c.indexed(t)), "new") {
					t.Error("asked again at once")
				}
				time.Sleep(retryAfter)
				if got, want := namesIn(c.indexedSoon(t)), "api/v1 apis/new/v1 version"; got != want {
					t.Errorf("afterwards got %s, want %s", got, want)
				}
			})
		})
	}
}

// indexedSoon returns the index once what is read meanwhile is there. It belongs
// into a synctest bubble.
func (c *cluster) indexedSoon(t testing.TB) map[string]string {
	t.Helper()
	c.indexed(t)
	synctest.Wait()
	return c.indexed(t)
}

func TestIndexIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := newStock("b", "v1 pods p"), newStock("a", "v1 pods p", "new/v1 things t")
		c := newCluster(t, here, there)
		c.indexedSoon(t)
		if n := there.count(pathV3); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(maxAge - time.Second)
		c.indexedSoon(t)
		if n := there.count(pathV3); n != 0 {
			t.Errorf("asked %d times though it was fresh", n)
		}
		there.serve("v1 pods p", "newer/v1 things t")
		c.indexedSoon(t)
		if got, want := namesIn(c.indexed(t)), "api/v1 apis/newer/v1 version"; got != want {
			t.Errorf("after its discovery changed got %s, want %s", got, want)
		}
		there.count(pathV3)
		time.Sleep(maxAge)
		c.indexedSoon(t)
		if n := there.count(pathV3); n != 1 {
			t.Errorf("asked %d times after %s", n, maxAge)
		}
	})
}

func TestOwnIndexIsReadAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := newStock("b", "v1 pods p")
		c := newCluster(t, here, newStock("a", "v1 pods p"))
		c.indexed(t)
		here.serve("v1 pods p", "crd.io/v1 mine m")
		c.exclude("crd.io/v1/mine")
		time.Sleep(freshEnough)
		if got, want := namesIn(c.indexed(t)), "api/v1 apis/crd.io/v1 version"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestOwnIndexThatCanNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := newStock("b", "v1 pods p"), newStock("a", "new/v1 things t")
		c := newCluster(t, here, there)
		here.fail(answers(404, "text/plain", "404 page not found"))
		if w := c.get(t, pathV3); w.Header().Get("Vary") != "" {
			t.Errorf("got a merged index though there is no own one: %s", w.Body)
		}
		here.fail(nil)
		want := namesIn(c.indexedSoon(t))
		here.fail(refuses)
		time.Sleep(time.Second)
		if got := namesIn(c.indexed(t)); got != want {
			t.Errorf("got %s, want the last good %s", got, want)
		}
	})
}

func TestOwnDocumentsWithOddURLs(t *testing.T) {
	here, there := newStock("b", "v1 pods p"), newStock("a", "v1 pods q")
	c := newCluster(t, here, there)
	odd := map[string]string{"apis/odd/v1": "/openapi/v3/apis/odd/v1", "apis/far/v1": "/elsewhere?hash=1&x=y"}
	here.fail(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != pathV3 {
			return nil, nil
		}
		return answers(200, "text/plain", `{"paths":{"apis/odd/v1":{"serverRelativeURL":"`+odd["apis/odd/v1"]+`"},"apis/far/v1":{"serverRelativeURL":"`+odd["apis/far/v1"]+`"}}}`)(r)
	})
	urls := c.indexed(t)
	for name, want := range odd {
		if got := urls[name]; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		here.count(prefixV3 + name)
		c.get(t, prefixV3+name)
		if here.count(prefixV3+name) != 1 {
			t.Errorf("%s is not asked of the local chain", name)
		}
	}
}

func TestIndexOfMembersThatCanNotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := newStock("b", "v1 pods p"), newStock("a", "v1 pods q", "new/v1 things t")
		c := newCluster(t, here, there)
		before := c.get(t, pathV3).Body.String()
		there.fail(refuses)
		for _, state := range []snapshot.State{snapshot.StateUnreachable, snapshot.StateDeparted} {
			c.states["a"] = state
			there.count(pathV3)
			time.Sleep(time.Hour)
			if got := c.get(t, pathV3).Body.String(); got != before {
				t.Errorf("%s: got %s", state, got)
			}
			if n := there.count(pathV3); n != 0 {
				t.Errorf("%s: asked %d times", state, n)
			}
		}
		c.servers = c.servers[:1]
		if got, want := namesIn(c.indexed(t)), "api/v1 version"; got != want {
			t.Errorf("after it left got %s, want %s", got, want)
		}
		if len(c.peers.members) != 0 {
			t.Error("its index is still remembered")
		}
	})
}

func TestIndexOfANewIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := newStock("b", "v1 pods p"), newStock("a", "old/v1 things t")
		c := newCluster(t, here, there)
		c.incarnations["a"] = "1"
		c.indexed(t)
		there.serve("young/v1 things t")
		c.incarnations["a"], c.states["a"] = "2", snapshot.StateStarting
		if got, want := namesIn(c.indexed(t)), "api/v1 apis/young/v1 version"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		// It crashed before it was ready: the last Serving document is in force.
		there.fail(refuses)
		there.resources = []string{"old/v1 things t"}
		c.incarnations["a"], c.states["a"] = "1", snapshot.StateUnreachable
		if got, want := namesIn(c.indexed(t)), "api/v1 apis/old/v1 version"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		there.fail(nil)
		c.states["a"] = snapshot.StateServing
		for _, incarnation := range []string{"3", "4", "5"} {
			c.incarnations["a"] = incarnation
			time.Sleep(time.Second)
			c.indexed(t)
		}
		if n := len(c.peers.members); n != keptIncarnations {
			t.Errorf("%d incarnations are remembered", n)
		}
	})
}
