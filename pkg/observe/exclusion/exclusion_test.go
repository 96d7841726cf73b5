package exclusion

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"peerproxy.internal/pkg/observe/dirty"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func gvr(resource, version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: version, Resource: resource}
}

func definition(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func owns(resources ...schema.GroupVersionResource) Owned { return Owned{Resources: resources} }

func newTracker(grace time.Duration) (*Tracker, *clocktesting.FakePassiveClock, dirty.Flag) {
	clock := clocktesting.NewFakePassiveClock(start)
	changed := dirty.New()
	return NewTracker(Config{Grace: grace, Changed: changed, Touched: dirty.New(), Clock: clock}), clock, changed
}

// Case: X is deleted at 0:00, Y at 1:00, and nothing happens after that. X must
// be free at 5:00 and Y at 6:00.
func TestEachDeletionHasItsOwnGrace(t *testing.T) {
	tracker, clock, _ := newTracker(5 * time.Minute)
	x, y := gvr("xs", "v1"), gvr("ys", "v1")
	tracker.set(definition("x"), owns(x))
	tracker.set(definition("y"), owns(y))
	tracker.set(definition("x"), Owned{})
	clock.SetTime(start.Add(time.Minute))
	tracker.set(definition("y"), Owned{})

	for _, tc := range []struct {
		at             time.Duration
		hidesX, hidesY bool
	}{
		{time.Minute, true, true},
		{5*time.Minute - 1, true, true},
		{5 * time.Minute, false, true},
		{6*time.Minute - 1, false, true},
		{6 * time.Minute, false, false},
	} {
		checked := start.Add(tc.at)
		set := tracker.Set(checked)
		if got := set.Hides(x, checked); got != tc.hidesX {
			t.Errorf("a document checked at %v: X hidden %t, want %t", tc.at, got, tc.hidesX)
		}
		if got := set.Hides(y, checked); got != tc.hidesY {
			t.Errorf("a document checked at %v: Y hidden %t, want %t", tc.at, got, tc.hidesY)
		}
	}
	if got := len(tracker.resources); got != 0 {
		t.Errorf("%d deletions are still remembered", got)
	}
}

func TestADocumentFromBeforeTheDeletionHidesForGood(t *testing.T) {
	tracker, clock, _ := newTracker(5 * time.Minute)
	x := gvr("xs", "v1")
	tracker.set(definition("x"), owns(x))
	tracker.set(definition("x"), Owned{})
	clock.SetTime(start.Add(time.Hour))
	kept := start.Add(-time.Second)
	if !tracker.Set(kept).Hides(x, kept) {
		t.Error("an hour later the kept document of a dead member brings the resource back")
	}
}

func TestTwoOwnersOfOneResource(t *testing.T) {
	tracker, _, _ := newTracker(0)
	x := gvr("xs", "v1")
	tracker.set(definition("one"), owns(x))
	tracker.set(definition("two"), owns(x))
	tracker.set(definition("one"), Owned{})
	if !tracker.Set(start).Owns(x) {
		t.Error("the second owner's resource is free")
	}
	tracker.set(definition("two"), Owned{})
	if tracker.Set(start.Add(-time.Hour)).Owns(x) {
		t.Error("the resource is owned by no one")
	}
}

func TestAVersionThatIsNoLongerServed(t *testing.T) {
	tracker, _, _ := newTracker(time.Minute)
	tracker.set(definition("x"), owns(gvr("xs", "v1"), gvr("xs", "v2")))
	tracker.set(definition("x"), owns(gvr("xs", "v2")))
	set := tracker.Set(start)
	if set.Owns(gvr("xs", "v1")) || !set.Owns(gvr("xs", "v2")) {
		t.Error("want v2 owned and v1 not")
	}
	if !set.Hides(gvr("xs", "v1"), start) {
		t.Error("v1 has no grace")
	}
}

func TestOnlyNewsRaisesChanged(t *testing.T) {
	tracker, _, changed := newTracker(time.Minute)
	raised := func() bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	tracker.set(definition("x"), owns(gvr("xs", "v1")))
	if !raised() {
		t.Error("a new owner is no news")
	}
	tracker.set(definition("x"), owns(gvr("xs", "v1")))
	if raised() {
		t.Error("an update that owns the same is news")
	}
	tracker.set(cache.DeletedFinalStateUnknown{Key: "x", Obj: definition("x")}, Owned{})
	if !raised() {
		t.Error("a deletion seen late is no news")
	}
	if tracker.Set(start).Owns(gvr("xs", "v1")) {
		t.Error("the resource is still owned")
	}
}
