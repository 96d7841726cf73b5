package openapi

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"

	"peerproxy.internal/pkg/snapshot"
)

const acceptProtobufV3 = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"

func TestDocumentsOfOtherMembers(t *testing.T) {
	atOld, atNew := twoServers(t)
	for name, want := range map[string]string{
		"apis/new/v1":   "new.v1.things=t",
		"apis/batch/v1": "batch.v1.jobs=j",
		// The lowest server ID wins; what no path of the other uses is left out.
		"apis/apps/v1": "apps.v1.deployments=new apps.v1.widgets=w",
	} {
		at := atOld.indexed(t)[name]
		if got := schemas(t, atOld.get(t, at)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		for _, headers := range [][]string{{"Accept", "application/json"}, {"Accept", acceptProtobufV3}, {"Accept-Encoding", "gzip"}, {"Accept", acceptProtobufV3, "Accept-Encoding", "gzip"}} {
			one, other := atOld.get(t, at, headers...), atNew.get(t, at, headers...)
			if !bytes.Equal(one.Body.Bytes(), other.Body.Bytes()) {
				t.Errorf("%s %s: the servers disagree", name, headers)
			}
			one.Header().Del("Expires") // it may be another second by now
			other.Header().Del("Expires")
			if diff := cmp.Diff(one.Header(), other.Header()); diff != "" {
				t.Errorf("%s %s: the servers' headers disagree: %s", name, headers, diff)
			}
		}
	}
}

func TestOwnDocumentsAreTheLocalChains(t *testing.T) {
	c, _ := twoServers(t)
	for name, target := range map[string]string{"what all have": "/openapi/v3/version", "no one's": pathV3 + "/apis/gone/v1", "nothing": prefixV3} {
		c.servers[0].count(target)
		c.get(t, target)
		if c.servers[0].count(target) != 1 {
			t.Errorf("%s is not asked of the local chain", name)
		}
	}
	if len(c.merged.documents) != 0 {
		t.Error("it is kept, too")
	}
}

func TestDocumentsThatNoPeerMayTakeAreTheLocalChains(t *testing.T) {
	here := newStock("b", "v1 pods p", "crd.io/v1 mine m", "aggregated.io/v1 theirs t")
	c := newCluster(t, here, newStock("a", "v1 pods p"))
	c.exclude("crd.io/v1/mine")
	c.excluded.GroupVersions = map[schema.GroupVersion]time.Time{{Group: "aggregated.io", Version: "v1"}: {}}
	for _, target := range []string{pathV3 + "/apis/crd.io/v1", pathV3 + "/apis/aggregated.io/v1"} {
		c.get(t, target)
		if c.servers[0].count(target) != 1 || len(c.merged.documents) != 0 {
			t.Errorf("%s is not left to the local chain", target)
		}
	}
}

func TestPartOfAGroupVersionIsExcluded(t *testing.T) {
	here := newStock("b", "mixed/v1 builtin b", "mixed/v1 mine new")
	there := newStock("a", "mixed/v1 builtin b", "mixed/v1 mine stale", "mixed/v1 more m")
	atHere, atThere := newCluster(t, here, there), newCluster(t, there, here)
	atHere.exclude("mixed/v1/mine")
	atThere.exclude("mixed/v1/mine")
	at := atHere.indexed(t)["apis/mixed/v1"]
	if got, want := schemas(t, atHere.get(t, at)), "mixed.v1.builtin=b mixed.v1.mine=new mixed.v1.more=m"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := atThere.indexed(t)["apis/mixed/v1"]; got != at {
		t.Errorf("the servers disagree: %s and %s", got, at)
	}
	if got, want := schemas(t, atThere.get(t, at)), "mixed.v1.builtin=b mixed.v1.mine=stale mixed.v1.more=m"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		at := c.indexed(t)["apis/apps/v1"]
		path, hash, _ := strings.Cut(at, "?hash=")
		for _, test := range []struct {
			name, target string
			code         int
			want         map[string]string
		}{
			{"the right one", at, 200, map[string]string{
				"Cache-Control": "public, immutable",
				"Expires":       time.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat),
				"Etag":          strconv.Quote(hash),
				"Vary":          "Accept, Accept-Encoding",
				"Content-Type":  "application/json",
			}},
			{"none", path, 200, map[string]string{"Cache-Control": "no-cache, private", "Expires": "", "Etag": strconv.Quote(hash)}},
			{"an old one", path + "?hash=OLD", 301, map[string]string{"Location": at, "Cache-Control": "no-cache, private", "Etag": strconv.Quote(hash)}},
		} {
			w := httptest.NewRecorder()
			w.Header().Set("Cache-Control", "no-cache, private") // as the chain does
			r := newRequest("GET", test.target)
			request, _ := c.Parse(r)
			c.Serve(w, r, c.snapshot(), request, c.servers[0])
			if w.Code != test.code {
				t.Errorf("%s: got %d", test.name, w.Code)
			}
			for header, want := range test.want {
				if got := w.Header().Get(header); got != want {
					t.Errorf("%s: got %s %q, want %q", test.name, header, got, want)
				}
			}
		}
	})
}

func TestRepresentations(t *testing.T) {
	c, _ := twoServers(t)
	targets := []string{pathV3, c.indexed(t)["apis/apps/v1"], c.indexed(t)["apis/new/v1"]}
	for _, target := range targets {
		tags := map[string]string{}
		for _, accept := range []string{"application/json", acceptProtobufV3} {
			if target == pathV3 && accept == acceptProtobufV3 {
				continue
			}
			plain := c.get(t, target, "Accept", accept)
			packed := c.get(t, target, "Accept", accept, "Accept-Encoding", "br, gzip;q=0.8")
			if plain.Header().Get("Content-Encoding") != "" || packed.Header().Get("Content-Encoding") != "gzip" {
				if target != pathV3 || packed.Body.Len() > minCompressed {
					t.Errorf("%s %s: got encodings %q and %q", target, accept, plain.Header(), packed.Header())
				}
			} else if got := unpacked(t, packed.Body.Bytes()); !bytes.Equal(got, plain.Body.Bytes()) {
				t.Errorf("%s %s: another body when compressed", target, accept)
			}
			for how, w := range map[string]*httptest.ResponseRecorder{"plain": plain, "compressed": packed} {
				if got := w.Header().Get("Content-Length"); got != strconv.Itoa(w.Body.Len()) {
					t.Errorf("%s %s: content length %s of %d", target, accept, got, w.Body.Len())
				}
				tag := w.Header().Get("Etag")
				if other, found := tags[tag]; found && w.Header().Get("Content-Encoding") != "" {
					t.Errorf("%s: %s %s has the tag of %s", target, accept, how, other)
				}
				tags[tag] = accept + " " + how
			}
			checkConditional(t, c, target, accept, plain.Header().Get("Etag"))
		}
	}
}

func checkConditional(t *testing.T, c *cluster, target, accept, tag string) {
	t.Helper()
	for _, tags := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		w := c.get(t, target, "Accept", accept, "If-None-Match", tags)
		if w.Code != http.StatusNotModified || w.Body.Len() > 0 || w.Header().Get("Content-Type") != "" || w.Header().Get("Etag") != tag {
			t.Errorf("%s %s: If-None-Match %s: got %d", target, accept, tags, w.Code)
		}
	}
	if w := c.get(t, target, "Accept", accept, "If-None-Match", `"x"`); w.Code != http.StatusOK {
		t.Errorf("%s %s: another tag: got %d", target, accept, w.Code)
	}
	w := c.ask(t, newRequest(http.MethodHead, target, "Accept", accept))
	if w.Code != http.StatusOK || w.Body.Len() > 0 || w.Header().Get("Content-Length") == "" || w.Header().Get("Etag") != tag {
		t.Errorf("%s %s: HEAD: got %d, %d bytes, %v", target, accept, w.Code, w.Body.Len(), w.Header())
	}
}

func unpacked(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestProtobufOfV3(t *testing.T) {
	c, _ := twoServers(t)
	at := c.indexed(t)["apis/apps/v1"]
	w := c.get(t, at, "Accept", acceptProtobufV3)
	want, err := handler3.ToV3ProtoBinary(c.get(t, at).Body.Bytes())
	if err != nil || !bytes.Equal(w.Body.Bytes(), want) {
		t.Errorf("got another document than as JSON, %v", err)
	}
	if got := w.Header().Get("Content-Type"); got != "application/com.github.proto-openapi.spec.v3.v1.0+protobuf" {
		t.Errorf("got content type %s", got)
	}
}

func TestDocumentsOfPeersThatFail(t *testing.T) {
	hash := strings.Repeat("0", 128)
	for name, trouble := range map[string]func(*http.Request) (*http.Response, error){
		"refuses":              refuses,
		"hangs":                hangs,
		"trickles":             trickles,
		"answers 500":          answers(500, "application/json", "{}"),
		"redirects":            answers(301, "application/json", "", "Location", "/openapi/v3/apis/apps/v1?hash=2"),
		"sends garbage":        answers(200, "application/json", `{"openapi":`),
		"sends another":        answers(200, "application/json", `{}`, "ETag", `"`+hash+`"`),
		"sends it too deep":    answers(200, "application/json", strings.Repeat(`{"not":`, maxDepth+1)),
		"sends it too much":    answers(200, "application/json", "["+strings.Repeat("{},", maxObjects)),
		"sends it without end": answers(200, "application/json", strings.Repeat(" ", maxBytes+1)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := twoServers(t)
				urls := c.indexed(t)
				there := c.servers[1]
				there.fail(forDocuments(trouble))
				began := time.Now()
				// What only the peer has can't be had, what this server has too is its own.
				if w := c.get(t, urls["apis/new/v1"]); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
					t.Errorf("got %d, %v", w.Code, w.Header())
				}
				path, _, _ := strings.Cut(urls["apis/apps/v1"], "?")
				if got := schemas(t, c.get(t, path)); got != "apps.v1.deployments=old" {
					t.Errorf("got %s", got)
				}
				w := c.get(t, urls["apis/apps/v1"])
				if w.Code != http.StatusMovedPermanently {
					t.Fatalf("got %d", w.Code)
				}
				own := c.get(t, w.Header().Get("Location"))
				if got := schemas(t, own); got != "apps.v1.deployments=old" || own.Header().Get("Cache-Control") != "public, immutable" {
					t.Errorf("got %s, %v", got, own.Header())
				}
				if waited := time.Since(began); waited > 4*patience {
					t.Errorf("waited %s", waited)
				}
				there.fail(nil)
				time.Sleep(fetchTimeout + retryAfter)
				c.indexedSoon(t)
				if got, want := schemas(t, c.get(t, urls["apis/apps/v1"])), "apps.v1.deployments=new apps.v1.widgets=w"; got != want {
					t.Errorf("afterwards got %s, want %s", got, want)
				}
				if got := schemas(t, c.get(t, urls["apis/new/v1"])); got != "new.v1.things=t" {
					t.Errorf("afterwards got %s", got)
				}
			})
		})
	}
}

func TestAPeerThatCanNotBeAskedIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		urls := c.indexed(t)
		c.servers[1].fail(forDocuments(hangs))
		c.get(t, urls["apis/new/v1"])
		time.Sleep(fetchTimeout)
		began := time.Now()
		c.get(t, urls["apis/apps/v1"])
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited another %s", waited)
		}
	})
}

func TestADocumentThatIsRefusedIsNotAskedForAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.indexed(t)
		there, target := c.servers[1], prefixV3+"apis/new/v1"
		there.fail(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != target {
				return nil, nil
			}
			return answers(500, "application/json", "{}")(r)
		})
		for _, wait := range []time.Duration{0, 0, retryAfter - time.Second} {
			time.Sleep(wait)
			c.get(t, target)
		}
		if n := there.count(target); n != 1 {
			t.Errorf("asked %d times", n)
		}
		if got := schemas(t, c.get(t, prefixV3+"apis/apps/v1")); !strings.Contains(got, "widgets") {
			t.Errorf("got %s: another document of the peer is not served", got)
		}
		time.Sleep(time.Second)
		c.get(t, target)
		if n := there.count(target); n != 1 {
			t.Errorf("asked %d times after %s", n, retryAfter)
		}
	})
}

func TestADocumentThatCanNotBeMergedIsTriedAgain(t *testing.T) {
	c, _ := twoServers(t)
	at := c.indexed(t)["apis/apps/v1"]
	c.servers[0].fail(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == pathV3 {
			return nil, nil
		}
		return nil, errRefused
	})
	if got := schemas(t, c.get(t, at)); got != "apps.v1.deployments=old" {
		t.Errorf("got %s, not this server's own", got)
	}
	c.servers[0].fail(nil)
	if got, want := schemas(t, c.get(t, at)), "apps.v1.deployments=new apps.v1.widgets=w"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnotherHolderIsAsked(t *testing.T) {
	broken, sound := newStock("a", "new/v1 things t"), newStock("c", "new/v1 things t")
	c := newCluster(t, newStock("b", "v1 pods p"), broken, sound)
	at := c.indexed(t)["apis/new/v1"]
	broken.fail(refuses)
	if got := schemas(t, c.get(t, at)); got != "new.v1.things=t" {
		t.Errorf("got %s", got)
	}
}

func TestDocumentsOfMembersThatCanNotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := newStock("b", "apps/v1 deployments old"), newStock("a", "apps/v1 deployments new", "apps/v1 widgets w", "new/v1 things t")
		c := newCluster(t, old, young, newStock("d", "apps/v1 gadgets g"))
		all := c.servers
		c.servers = all[:2]
		urls := c.indexed(t)
		want := schemas(t, c.get(t, urls["apis/apps/v1"]))
		c.servers[1].fail(refuses)
		c.states["a"] = snapshot.StateUnreachable
		if got := schemas(t, c.get(t, urls["apis/apps/v1"])); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		// What was kept is merged with what a new member has.
		c.servers = all
		if got := schemas(t, c.get(t, c.indexed(t)["apis/apps/v1"])); got != "apps.v1.deployments=new apps.v1.gadgets=g apps.v1.widgets=w" {
			t.Errorf("got %s", got)
		}
		if w := c.get(t, urls["apis/new/v1"]); w.Code != http.StatusServiceUnavailable {
			t.Errorf("what was never fetched: got %d", w.Code)
		}
		c.servers = c.servers[:1]
		if got := schemas(t, c.get(t, "/openapi/v3/apis/apps/v1")); got != "apps.v1.deployments=old" {
			t.Errorf("after they left got %s", got)
		}
		if len(c.merged.documents)+len(c.peers.documents) > 0 {
			t.Error("documents that no one needs are kept")
		}
	})
}

func TestPeersWhoseIndexIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.servers[1].fail(refuses)
		for target, want := range map[string]int{"apis/new/v1": 503, "apis/gone/v1": 404, "apis/batch/v1": 200} {
			w := httptest.NewRecorder()
			r := newRequest("GET", prefixV3+target)
			request, _ := c.Parse(r)
			c.Serve(w, r, c.snapshot(), request, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if target == "apis/gone/v1" {
					w.WriteHeader(404) // as the aggregator does
					return
				}
				c.servers[0].ServeHTTP(w, r)
			}))
			if w.Code != want {
				t.Errorf("%s: got %d, want %d", target, w.Code, want)
			}
		}
	})
}

func TestConcurrentFirstRequestsFetchAndBuildOnce(t *testing.T) {
	c, _ := twoServers(t)
	at := c.indexed(t)["apis/apps/v1"]
	there := c.servers[1]
	there.count(prefixV3 + "apis/apps/v1")
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 32 {
		accept := []string{"application/json", acceptProtobufV3}[i%2]
		wg.Go(func() {
			<-start
			if w := c.get(t, at, "Accept", accept, "Accept-Encoding", "gzip"); w.Code != 200 {
				t.Errorf("got %d", w.Code)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := there.count(prefixV3 + "apis/apps/v1"); n != 1 {
		t.Errorf("the peer was asked %d times", n)
	}
	if n := c.servers[0].count(prefixV3 + "apis/apps/v1"); n != 1 {
		t.Errorf("the own document was read %d times", n)
	}
}

func TestOnlyWhatChangedIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		urls := c.indexed(t)
		c.get(t, urls["apis/apps/v1"])
		c.get(t, urls["apis/new/v1"])
		kept := c.merged.find(documentKey{"apis/apps/v1", urls["apis/apps/v1"][strings.Index(urls["apis/apps/v1"], "=")+1:]})
		c.servers[1].serve("v1 pods p", "apps/v1 deployments new", "apps/v1 widgets w", "new/v1 things t", "new/v1 others o")
		urls = c.indexedSoon(t)
		if got := c.merged.find(kept.documentKey); got != kept {
			t.Error("a document that did not change is made anew")
		}
		if n := len(c.merged.documents); n != 1 {
			t.Errorf("%d documents are kept", n)
		}
		if got := schemas(t, c.get(t, urls["apis/new/v1"])); got != "new.v1.others=o new.v1.things=t" {
			t.Errorf("got %s", got)
		}
	})
}

func TestWhatCanNotBeWrittenAsProtobuf(t *testing.T) {
	c, _ := twoServers(t)
	at := c.indexed(t)["apis/apps/v1"]
	d := c.newDocumentFor(t, at)
	d.bodies[formatProtobuf][0] = func() (body, error) { return body{}, io.ErrUnexpectedEOF }
	w := c.get(t, at, "Accept", acceptProtobufV3)
	path, _, _ := strings.Cut(at, "?")
	if got := w.Body.String(); got != c.servers[0].body(t, path, "Accept", acceptProtobufV3) || w.Code != 200 || w.Header().Get("Cache-Control") != "" {
		t.Errorf("got %d, %q, not this server's own under no hash", w.Code, got)
	}
}

// newDocumentFor returns the document at a URL once it is built.
func (c *cluster) newDocumentFor(t *testing.T, at string) *documentV3 {
	t.Helper()
	c.get(t, at)
	for _, d := range c.merged.documents {
		return d
	}
	t.Fatal("no document was built")
	return nil
}
