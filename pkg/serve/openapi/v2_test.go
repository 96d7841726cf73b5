package openapi

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/kube-openapi/pkg/handler"

	"peerproxy.internal/pkg/snapshot"
)

const acceptProtobufV2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

const mergedDefinitions = "apps.v1.deployments=new apps.v1.widgets=w batch.v1.jobs=j new.v1.things=t v1.pods=p"

func TestV2IsMerged(t *testing.T) {
	atOld, atNew := twoServers(t)
	w := atOld.get(t, pathV2)
	if got := definitions(t, w); got != mergedDefinitions {
		t.Errorf("got %s", got)
	}
	if other := atNew.get(t, pathV2); !bytes.Equal(w.Body.Bytes(), other.Body.Bytes()) {
		t.Error("the servers disagree")
	}
	protobuf := atOld.get(t, pathV2, "Accept", acceptProtobufV2)
	want, err := handler.ToProtoBinary(w.Body.Bytes())
	if err != nil || !bytes.Equal(protobuf.Body.Bytes(), want) {
		t.Errorf("got another document as protobuf, %v", err)
	}
	if got := protobuf.Header().Get("Content-Type"); got != "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" {
		t.Errorf("got content type %s", got)
	}
	for _, accept := range []string{"application/json", acceptProtobufV2} {
		plain := atOld.get(t, pathV2, "Accept", accept)
		packed := atOld.get(t, pathV2, "Accept", accept, "Accept-Encoding", "gzip")
		if got := unpacked(t, packed.Body.Bytes()); !bytes.Equal(got, plain.Body.Bytes()) {
			t.Errorf("%s: another body when compressed", accept)
		}
		checkConditional(t, atOld, pathV2, accept, plain.Header().Get("Etag"))
	}
}

func TestV2OfServersOfOneVersionIsTheLocalChains(t *testing.T) {
	here, there := newStock("b", "v1 pods p", "crd.io/v1 mine m"), newStock("a", "v1 pods p")
	c := newCluster(t, here, there)
	c.exclude("crd.io/v1/mine")
	if got := definitions(t, c.get(t, pathV2)); got != "crd.io.v1.mine=m v1.pods=p" {
		t.Errorf("got %s", got)
	}
	if n := there.count(pathV2); n != 0 {
		t.Errorf("the peer was asked %d times", n)
	}
}

func TestCustomResourcesInV2ComeFromThisServer(t *testing.T) {
	here := newStock("b", "v1 pods p", "crd.io/v1 mine new")
	there := newStock("a", "v1 pods p", "crd.io/v1 mine old", "crd.io/v1beta1 gone g", "new/v1 things t")
	c := newCluster(t, here, there)
	c.exclude("crd.io/v1/mine", "crd.io/v1beta1/gone")
	if got, want := definitions(t, c.get(t, pathV2)), "crd.io.v1.mine=new new.v1.things=t v1.pods=p"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestServersAgreeOnCustomResourcesInV2 has servers of two releases, which
// describe differently what custom resources refer to.
func TestServersAgreeOnCustomResourcesInV2(t *testing.T) {
	server := func(id, release string) *stock {
		s := newStock(id, "v1 pods "+release, "crd.io/v1 mine m")
		whole, err := decodeV2([]byte(strings.ReplaceAll(`{"swagger":"2.0","info":{"title":"K","version":"R"},"paths":{
			"/api/v1/pods":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Pod"}}}}},
			"/apis/crd.io/v1/mine":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Mine"}}}}}},
			"definitions":{"Meta":{"description":"of R"},"Mine":{"properties":{"metadata":{"$ref":"#/definitions/Meta"}}},"Pod":{"properties":{"metadata":{"$ref":"#/definitions/Meta"}}}}}`, "R", release)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.v2.UpdateSpec(whole); err != nil {
			t.Fatal(err)
		}
		return s
	}
	old, young := server("a", "old"), server("b", "new")
	atOld, atNew := newCluster(t, old, young), newCluster(t, young, old)
	atOld.exclude("crd.io/v1/mine")
	atNew.exclude("crd.io/v1/mine")
	one, other := atOld.get(t, pathV2), atNew.get(t, pathV2)
	if !strings.Contains(one.Body.String(), "Mine") || one.Body.String() != other.Body.String() {
		t.Errorf("got\n%s\nand\n%s", one.Body, other.Body)
	}
}

func TestV2IsMadeOncePerContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		here, there := c.servers[0], c.servers[1]
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() { c.get(t, pathV2) })
		}
		wg.Wait()
		first := c.v2.latest()
		if n := there.count(pathV2); n != 1 {
			t.Errorf("the peer was asked %d times", n)
		}
		time.Sleep(time.Hour)
		c.indexedSoon(t)
		c.get(t, pathV2)
		if c.v2.latest() != first {
			t.Error("it is made anew though nothing changed")
		}
		if n := there.count(pathV2); n != 0 {
			t.Errorf("the peer was asked %d times more", n)
		}
		here.count(pathV2)

		// A change: the last document is served while the next one is made.
		making := make(chan struct{})
		here.serve("v1 pods p", "apps/v1 deployments old", "batch/v1 jobs other")
		here.fail(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && r.URL.Path == pathV2 {
				<-making
			}
			return nil, nil
		})
		began := time.Now()
		if got := definitions(t, c.get(t, pathV2)); got != mergedDefinitions {
			t.Errorf("got %s", got)
		}
		if waited := time.Since(began); waited > checkV2 {
			t.Errorf("waited %s", waited)
		}
		close(making)
		synctest.Wait()
		if got, want := definitions(t, c.get(t, pathV2)), strings.Replace(mergedDefinitions, "jobs=j", "jobs=other", 1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestV2ThatIsOldIsNotServedWhileTheNextIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.get(t, pathV2)
		c.servers[0].serve("v1 pods p", "apps/v1 deployments old", "batch/v1 jobs other")
		c.servers[0].fail(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return nil, nil
		})
		time.Sleep(staleV2 + time.Second)
		if got, want := definitions(t, c.get(t, pathV2)), strings.Replace(mergedDefinitions, "jobs=j", "jobs=other", 1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestV2OfPeersThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.indexed(t)
		c.servers[1].fail(forDocuments(hangs))
		began := time.Now()
		if got, want := definitions(t, c.get(t, pathV2)), "apps.v1.deployments=old batch.v1.jobs=j v1.pods=p"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if waited := time.Since(began); waited != patienceV2 {
			t.Errorf("waited %s", waited)
		}
		c.servers[1].fail(nil)
		time.Sleep(fetchTimeout + retryAfter)
		c.indexedSoon(t)
		if got := definitions(t, c.get(t, pathV2)); got != mergedDefinitions {
			t.Errorf("afterwards got %s", got)
		}
	})
}

func TestV2OfMembersThatCanNotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.get(t, pathV2)
		c.servers[1].fail(refuses)
		c.states["a"] = snapshot.StateUnreachable
		c.servers[0].serve("v1 pods p", "apps/v1 deployments old", "batch/v1 jobs other")
		time.Sleep(time.Hour)
		if got, want := definitions(t, c.get(t, pathV2)), strings.Replace(mergedDefinitions, "jobs=j", "jobs=other", 1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		c.servers = c.servers[:1]
		if got, want := definitions(t, c.get(t, pathV2)), "apps.v1.deployments=old batch.v1.jobs=other v1.pods=p"; got != want {
			t.Errorf("after it left got %s, want %s", got, want)
		}
		if c.v2.latest() != nil || len(c.peers.documents) > 0 {
			t.Error("documents that no one needs are kept")
		}
	})
}

func TestV2WhereTheOwnCanNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.indexed(t)
		c.servers[0].fail(answers(500, "text/plain", ""))
		w := c.get(t, pathV2)
		if w.Code != http.StatusOK || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("got %d, %v, not what the local chain says", w.Code, w.Header())
		}
	})
}

func TestServerThatDoesNotRunServesItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.stop()
		c.ended.Wait()
		if got, want := namesIn(c.indexed(t)), "api/v1 apis/apps/v1 apis/batch/v1 version"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := definitions(t, c.get(t, pathV2)), "apps.v1.deployments=old batch.v1.jobs=j v1.pods=p"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestRunEndsWhatItStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.servers[1].fail(hangs)
		var wg sync.WaitGroup
		for _, target := range []string{pathV3, pathV2, prefixV3 + "apis/new/v1"} {
			wg.Go(func() { c.get(t, target) })
		}
		synctest.Wait()
		began := time.Now()
		c.stop()
		c.ended.Wait()
		wg.Wait()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("it took %s", waited)
		}
	})
}

func TestClientsThatLeaveDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := twoServers(t)
		c.indexed(t)
		c.servers[1].fail(forDocuments(hangs))
		for _, target := range []string{pathV2, prefixV3 + "apis/new/v1"} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := newRequest("GET", target).WithContext(ctx)
			request, _ := c.Parse(r)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.Serve(httptest.NewRecorder(), r, c.snapshot(), request, c.servers[0])
			}()
			synctest.Wait()
			began := time.Now()
			cancel()
			<-ended
			if waited := time.Since(began); waited > 0 {
				t.Errorf("%s: it took %s", target, waited)
			}
		}
	})
}

func TestEntityTagOfV2IsAHashOfItsContent(t *testing.T) {
	c, _ := twoServers(t)
	w := c.get(t, pathV2)
	d := newDocument("", func() ([]byte, error) { return w.Body.Bytes(), nil }, handler.ToProtoBinary)
	content, err := d.content()
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Etag"); got != strconv.Quote(content.tag) || len(content.tag) != 128 {
		t.Errorf("got %s", got)
	}
}
