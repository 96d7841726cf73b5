package openapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"peerproxy.internal/pkg/snapshot"
)

const crdName = "apis/crd.io/v1"

// ofRelease returns a server with the custom resource crd.io/v1 mine, which
// describes metadata as its release does.
func ofRelease(t testing.TB, id, release, definition string) *stock {
	s := newStock(id, "v1 pods p", "crd.io/v1 mine m")
	s.with(t, coreName, "/api/v1/pods", "Pod", "of "+release, release)
	s.with(t, crdName, "/apis/crd.io/v1/mine", "Mine", definition, release)
	return s
}

// with gives a server a document with a kind that has metadata.
func (s *stock) with(t testing.TB, name, path, kind, description, release string) {
	t.Helper()
	document, err := decodeV3(fmt.Appendf(nil, `{"openapi":"3.0.0","info":{"title":"T"},"paths":{%q:{"get":{"responses":{"200":{"description":"OK","content":{"application/json":{"schema":{"$ref":"#/components/schemas/%s"}}}}}}}},
		"components":{"schemas":{"Meta":{"description":"of %s"},%[2]q:{"description":%[4]q,"properties":{"metadata":{"$ref":"#/components/schemas/Meta"}}}}}}`, path, kind, release, description))
	if err != nil {
		t.Fatal(err)
	}
	s.v3.UpdateGroupVersion(name, document)
}

// twoReleases are servers of two releases with the same custom resource. The
// new one wins.
func twoReleases(t testing.TB) (atOld, atNew *cluster) {
	old, young := ofRelease(t, "b", "old", "mine"), ofRelease(t, "a", "new", "mine")
	atOld, atNew = newCluster(t, old, young), newCluster(t, young, old)
	atOld.exclude("crd.io/v1/mine")
	atNew.exclude("crd.io/v1/mine")
	return atOld, atNew
}

func TestServersOfTwoReleasesAgreeOnCustomResources(t *testing.T) {
	atOld, atNew := twoReleases(t)
	if atOld.servers[0].body(t, prefixV3+crdName) == atNew.servers[0].body(t, prefixV3+crdName) {
		t.Fatal("the servers agree without any work")
	}
	index := atOld.get(t, pathV3).Body.String()
	if other := atNew.get(t, pathV3).Body.String(); other != index {
		t.Errorf("the servers disagree:\n%s\n%s", index, other)
	}
	at := atOld.indexed(t)[crdName]
	for _, accept := range []string{"application/json", acceptProtobufV3} {
		w, other := atOld.get(t, at, "Accept", accept), atNew.get(t, at, "Accept", accept)
		if w.Code != 200 || w.Body.String() != other.Body.String() || w.Header().Get("Etag") != other.Header().Get("Etag") {
			t.Errorf("%s: the servers disagree: %d\n%s\n%s", accept, w.Code, w.Body, other.Body)
		}
	}
	w := atOld.get(t, at)
	if got, want := schemas(t, w), "Meta=of new Mine=mine"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, hash, _ := strings.Cut(at, "?hash=")
	if got := hashOf(w.Body.Bytes()); got != hash {
		t.Errorf("the hash is %s in the index, and of the document %s", hash, got)
	}
	if got := w.Header().Get("Cache-Control"); got != "public, immutable" {
		t.Errorf("Cache-Control is %q", got)
	}
	if old := atOld.get(t, prefixV3+crdName+"?hash=OLD"); old.Code != 301 || old.Header().Get("Location") != at {
		t.Errorf("another hash: got %d to %s", old.Code, old.Header().Get("Location"))
	}
	if same := atOld.get(t, at, "If-None-Match", w.Header().Get("Etag")); same.Code != 304 {
		t.Errorf("got %d", same.Code)
	}
}

func TestCustomResourcesOfRealServers(t *testing.T) {
	real := func(id, release string) *stock {
		return newStock(id, "v1 pods p", "example.org/v1 foos f").withReal(t, coreName, "core-v1-shared-"+release).withReal(t, "apis/example.org/v1", "custom-"+release)
	}
	old, young := real("a", "1.36"), real("b", "1.37")
	atOld, atNew := newCluster(t, old, young), newCluster(t, young, old)
	atOld.exclude("example.org/v1/foos")
	atNew.exclude("example.org/v1/foos")
	at := atOld.indexed(t)["apis/example.org/v1"]
	if other := atNew.indexed(t)["apis/example.org/v1"]; other != at {
		t.Fatalf("the servers disagree: %s and %s", at, other)
	}
	w := atNew.get(t, at)
	if other := atOld.get(t, at); w.Code != 200 || other.Body.String() != w.Body.String() {
		t.Error("the servers disagree")
	}
	if protobuf := atNew.get(t, at, "Accept", acceptProtobufV3); protobuf.Body.Len() == 0 || protobuf.Header().Get("Content-Type") == "application/json" {
		t.Errorf("got no protobuf: %v", protobuf.Header())
	}
}

// TestCustomResourcesFollowTheOwnDefinition has a definition change, and be
// deleted, while nothing is heard of it from the peer.
func TestCustomResourcesFollowTheOwnDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atOld, atNew := twoReleases(t)
		before := atOld.indexed(t)[crdName]
		if got, want := schemas(t, atOld.get(t, before)), "Meta=of new Mine=mine"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}

		atOld.servers[0].with(t, crdName, "/apis/crd.io/v1/mine", "Mine", "changed", "old")
		if got, want := schemas(t, atOld.get(t, prefixV3+crdName)), "Meta=of new Mine=changed"; got != want {
			t.Errorf("at once: got %s, want %s", got, want)
		}
		late := atOld.get(t, before)
		time.Sleep(freshEnough)
		after := atOld.indexed(t)[crdName]
		if late.Code != 301 || late.Header().Get("Location") != after || after == before {
			t.Errorf("the hash that was: got %d to %s, want %s", late.Code, late.Header().Get("Location"), after)
		}
		if got, want := schemas(t, atOld.get(t, after)), "Meta=of new Mine=changed"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}

		atNew.servers[0].with(t, crdName, "/apis/crd.io/v1/mine", "Mine", "changed", "new")
		time.Sleep(freshEnough)
		if got := atNew.indexed(t)[crdName]; got != after {
			t.Errorf("the servers disagree when the other has noticed: %s and %s", got, after)
		}

		atOld.servers[0].v3.DeleteGroupVersion(crdName)
		time.Sleep(freshEnough)
		if at, found := atOld.indexed(t)[crdName]; found {
			t.Errorf("the index has it after its deletion: %s", at)
		}
		if w := atOld.get(t, after); strings.Contains(w.Body.String(), "Mine") {
			t.Errorf("there is a document after its deletion: %s", w.Body)
		}
	})
}

func TestWhereServersAgreeCustomResourcesAreTheLocalChains(t *testing.T) {
	here, there := ofRelease(t, "b", "same", "mine"), ofRelease(t, "a", "same", "mine")
	c := newCluster(t, here, there)
	c.exclude("crd.io/v1/mine")
	urls := c.indexed(t)
	if own, _ := decodeIndex([]byte(here.body(t, pathV3))); own[crdName] != urls[crdName] {
		t.Errorf("got %s, want %s", urls[crdName], own[crdName])
	}
	if there.count(prefixV3+coreName)+here.count(prefixV3+crdName) > 0 {
		t.Error("documents were read")
	}
}

func TestWithoutCustomResourcesNoDocumentIsRead(t *testing.T) {
	atOld, _ := twoReleases(t)
	atOld.exclude()
	atOld.indexed(t)
	if atOld.servers[1].count(prefixV3+coreName)+atOld.servers[0].count(prefixV3+crdName) > 0 {
		t.Error("documents were read")
	}
}

func TestAggregatedAPIsAreTheLocalChains(t *testing.T) {
	atOld, _ := twoReleases(t)
	atOld.excluded = &snapshot.Exclusions{GroupVersions: map[schema.GroupVersion]time.Time{{Group: "crd.io", Version: "v1"}: {}}}
	here := atOld.servers[0]
	own, err := decodeIndex([]byte(here.body(t, pathV3)))
	if got := atOld.indexed(t)[crdName]; err != nil || got != own[crdName] {
		t.Errorf("got %s, want %s", got, own[crdName])
	}
	if got, want := atOld.get(t, own[crdName]).Body.String(), here.body(t, own[crdName]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCustomResourcesWhereThePeerCanNotBeAsked has the peer that wins withhold
// its core group: the documents are then this server's own, for a while.
func TestCustomResourcesWhereThePeerCanNotBeAsked(t *testing.T) {
	for name, trouble := range map[string]func(*http.Request) (*http.Response, error){
		"hangs":         forDocuments(hangs),
		"sends garbage": forDocuments(answers(200, "application/json", `{"components":{"schemas":7}}`)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				atOld, atNew := twoReleases(t)
				here, there := atOld.servers[0], atOld.servers[1]
				there.fail(trouble)
				at := atOld.indexed(t)[crdName]
				if got, want := schemas(t, atOld.get(t, at)), "Meta=of old Mine=mine"; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				here.with(t, crdName, "/apis/crd.io/v1/mine", "Mine", "changed", "old")
				time.Sleep(2 * retryAfter)
				began := time.Now()
				if got := atOld.indexed(t)[crdName]; got == at {
					t.Error("the index does not follow the own definition")
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("waited for the peer again, for %v", took)
				}
				there.fail(nil)
				there.with(t, crdName, "/apis/crd.io/v1/mine", "Mine", "changed", "new")
				time.Sleep(2 * retryAfter)
				atOld.indexed(t) // asks the peer again
				time.Sleep(retryAfter)
				if one, other := atOld.indexed(t)[crdName], atNew.indexed(t)[crdName]; one != other {
					t.Errorf("the servers disagree: %s and %s", one, other)
				}
			})
		})
	}
}

func TestCustomResourcesThatCanNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atOld, _ := twoReleases(t)
		here := atOld.servers[0]
		own, err := decodeIndex([]byte(here.body(t, pathV3)))
		if err != nil {
			t.Fatal(err)
		}
		failing := func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != prefixV3+crdName {
				return nil, nil
			}
			return answers(503, "application/json", "{}")(r)
		}
		here.fail(failing)
		if got := atOld.indexed(t)[crdName]; got != own[crdName] {
			t.Errorf("got %s, want %s", got, own[crdName])
		}
		here.fail(nil)
		time.Sleep(retryAfter)
		at := atOld.indexed(t)[crdName]
		if at == own[crdName] {
			t.Error("it is not tried again")
		}
		for what, trouble := range map[string]func(*http.Request) (*http.Response, error){
			"it can't be read": failing,
			"it has no tag": func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodGet {
					return nil, nil
				}
				return answers(200, "application/json", "")(r)
			},
			"it can't be read after all": func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodHead {
					return nil, nil
				}
				return failing(r)
			},
		} {
			here.fail(trouble)
			if got, want := schemas(t, atOld.get(t, prefixV3+crdName)), "Meta=of old Mine=mine"; got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		here.fail(nil)
		if got, want := schemas(t, atOld.get(t, prefixV3+crdName)), "Meta=of new Mine=mine"; got != want {
			t.Errorf("afterwards: got %s, want %s", got, want)
		}
		// A definition that changes between the two readings.
		atOld.custom.documents.Clear()
		here.fail(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == prefixV3+crdName && r.Method == http.MethodGet {
				here.with(t, crdName, "/apis/crd.io/v1/mine", "Mine", "changed", "old")
			}
			return nil, nil
		})
		if got, want := schemas(t, atOld.get(t, at)), "Meta=of old Mine=changed"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		here.fail(nil)
		if got, want := schemas(t, atOld.get(t, prefixV3+crdName)), "Meta=of new Mine=changed"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestOnlyTheCustomResourceThatChangedIsReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := manyCustom(t, 100)
		c := newCluster(t, old, young)
		c.excluded = excludeMany(100)
		first := c.indexed(t)
		if n := old.count(prefixV3 + "apis/group7/v1"); n != 1 {
			t.Errorf("a document was read %d times", n)
		}
		for i := range 100 {
			old.count(fmt.Sprintf("%sapis/group%d/v1", prefixV3, i))
		}
		old.with(t, "apis/group7/v1", "/apis/group7/v1/things", "Thing", "changed", "old")
		time.Sleep(freshEnough)
		second := c.indexed(t)
		for i := range 100 {
			name := fmt.Sprintf("apis/group%d/v1", i)
			if n := old.count(prefixV3 + name); n != 0 != (i == 7) || first[name] != second[name] != (i == 7) {
				t.Errorf("%s was read %d times, its URL was %s and is %s", name, n, first[name], second[name])
			}
		}
		for i := range 100 {
			c.get(t, second[fmt.Sprintf("apis/group%d/v1", i)])
		}
		if n := c.custom.documents.Len(); n != keptCustom {
			t.Errorf("%d documents are kept", n)
		}
	})
}

func TestConcurrentRequestsForCustomResources(t *testing.T) {
	atOld, _ := twoReleases(t)
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			if got, want := schemas(t, atOld.get(t, atOld.indexed(t)[crdName])), "Meta=of new Mine=mine"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	clients.Wait()
}

// manyCustom are servers of two releases with a custom resource in each of many
// groups.
func manyCustom(t testing.TB, groups int) (old, young *stock) {
	lines := []string{"v1 pods p"}
	for i := range groups {
		lines = append(lines, fmt.Sprintf("group%d/v1 things t", i))
	}
	servers := map[string]*stock{"old": newStock("b", lines...), "new": newStock("a", lines...)}
	for release, s := range servers {
		s.with(t, coreName, "/api/v1/pods", "Pod", "p", release)
		for i := range groups {
			s.with(t, fmt.Sprintf("apis/group%d/v1", i), fmt.Sprintf("/apis/group%d/v1/things", i), "Thing", "t", release)
		}
	}
	return servers["old"], servers["new"]
}

func excludeMany(groups int) *snapshot.Exclusions {
	excluded := &snapshot.Exclusions{Resources: map[schema.GroupVersionResource]time.Time{}}
	for i := range groups {
		excluded.Resources[schema.GroupVersionResource{Group: fmt.Sprintf("group%d", i), Version: "v1", Resource: "things"}] = time.Time{}
	}
	return excluded
}
