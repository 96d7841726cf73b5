package document

import (
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/snapshot"
)

// counts are how often a server merged and encoded.
type counts struct{ merged, encoded atomic.Int32 }

type countingEncoder struct {
	runtime.Encoder
	count *atomic.Int32
}

func (e countingEncoder) Encode(obj runtime.Object, w io.Writer) error {
	e.count.Add(1)
	return e.Encoder.Encode(obj, w)
}

func newCounted() (*Server, *counts) {
	s, c := New(), &counts{}
	s.merge = func(sources []snapshot.Source) []apidiscoveryv2.APIGroupDiscovery {
		c.merged.Add(1)
		return merge.Discovery(sources)
	}
	for i := range s.formats {
		s.formats[i].encoder = countingEncoder{s.formats[i].encoder, &c.encoded}
	}
	return s, c
}

func TestConcurrentFirstRequestsBuildOnce(t *testing.T) {
	s, built := newCounted()
	snap := snapshotOf(manyGroups(50), manyGroups(51))
	accepts := []string{acceptJSON, acceptProtobuf, acceptYAML, acceptJSON + ";pretty=1"}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 32 {
		headers := []string{"Accept", accepts[i%len(accepts)]}
		if i%8 < 4 {
			headers = append(headers, "Accept-Encoding", "gzip")
		}
		wg.Go(func() {
			<-start
			if w := serve(t, s, snap, newRequest("GET", "/apis", headers...)); w.Code != 200 {
				t.Errorf("got %d", w.Code)
			}
		})
	}
	close(start)
	wg.Wait()
	if built.merged.Load() != 1 || int(built.encoded.Load()) != len(accepts) {
		t.Errorf("merged %d times and encoded %d times", built.merged.Load(), built.encoded.Load())
	}
}

func TestOnlyNewContentIsBuilt(t *testing.T) {
	s, built := newCounted()
	get := func(snap *snapshot.Snapshot) { serve(t, s, snap, newRequest("GET", "/apis", "Accept", acceptJSON)) }
	get(snapshotOf(manyGroups(3)))
	get(snapshotOf(manyGroups(3)))
	if got := built.merged.Load(); got != 1 {
		t.Errorf("merged %d times for another snapshot with the same content", got)
	}
	get(snapshotOf(manyGroups(4)))
	if got := built.merged.Load(); got != 2 {
		t.Errorf("merged %d times for two contents", got)
	}
	if key := snapshotOf(manyGroups(4)).View(snapshot.PathAPIs).Key; s.merged[snapshot.PathAPIs].Load().key != key {
		t.Error("the latest document is not the one that is kept")
	}
	serve(t, s, snapshotOf(manyGroups(4)), newRequest("GET", "/apis", "Accept", acceptJSON, "If-None-Match", "*"))
	if got := built.encoded.Load(); got != 2 {
		t.Errorf("encoded %d times for two contents and a 304", got)
	}
}

// TestConcurrentFirstRequestsShareOneDocument repeats the moment at which
// requests may each put a document of their own in the place of the old one.
func TestConcurrentFirstRequestsShareOneDocument(t *testing.T) {
	s := New()
	for round := range 300 {
		view := snapshot.View{Key: strconv.Itoa(round)}
		documents := make([]*merged, 4)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range documents {
			wg.Go(func() {
				<-start
				documents[i], _ = s.mergedOf(snapshot.PathAPIs, view)
			})
		}
		close(start)
		wg.Wait()
		if len(slices.Compact(documents)) != 1 {
			t.Fatalf("round %d: several documents of one view", round)
		}
	}
}

// TestRequestsAndNewSnapshotsAtOnce is for the race detector, and wants every
// request to be answered from its own snapshot.
func TestRequestsAndNewSnapshotsAtOnce(t *testing.T) {
	s := New()
	var snaps []*snapshot.Snapshot
	var want []string
	for i := range 4 {
		snaps = append(snaps, snapshotOf(manyGroups(i+1), manyGroups(i+2)))
		want = append(want, serve(t, New(), snaps[i], newRequest("GET", "/apis", "Accept", acceptProtobuf)).Body.String())
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				n := (i + j) % len(snaps)
				if got := serve(t, s, snaps[n], newRequest("GET", "/apis", "Accept", acceptProtobuf)).Body.String(); got != want[n] {
					t.Errorf("snapshot %d got another's document", n)
				}
			}
		})
	}
	wg.Wait()
}
