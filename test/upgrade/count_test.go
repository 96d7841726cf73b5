package upgrade

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	things           = schema.GroupResource{Resource: "things"}
	errNotFound      = apierrors.NewNotFound(things, "one")
	errNotSupported  = apierrors.NewMethodNotSupported(things, "list")
	errUnavailable   = apierrors.NewServiceUnavailable("later")
	errTimeout       = apierrors.NewTimeoutError("unknown", 0)
	errAlreadyExists = apierrors.NewAlreadyExists(things, "one")
	errBroken        = errors.New("EOF")
)

func TestHowRequestsAreJudged(t *testing.T) {
	for _, tc := range []struct {
		name        string
		fresh, seen bool
		safe        safe
		err         error
		want        Kind
	}{
		{"a 200", false, false, true, nil, ""},
		{"a 404 of what is old", false, false, true, errNotFound, WrongAbsent},
		{"a 405 of what is old", false, false, false, errNotSupported, WrongAbsent},
		{"a 404 of what is new to the client", true, false, true, errNotFound, ""},
		{"a 404 of what the client saw", true, true, true, errNotFound, WrongAbsent},
		{"a 405 of what the client saw", true, true, false, errNotSupported, WrongAbsent},
		{"a read that failed", true, false, true, errUnavailable, FailedSafe},
		{"a read whose connection was lost", false, true, true, errBroken, FailedSafe},
		{"a write that was refused", false, true, false, errUnavailable, FailedUnsafe},
		{"a write whose outcome is unknown", false, true, false, errTimeout, UnknownOutcome},
		{"a write whose connection was lost", false, true, false, errBroken, BrokenUnsafe},
		{"a write that was executed twice", false, true, false, errAlreadyExists, Twice},
		{"a write that failed otherwise", false, true, false, apierrors.NewBadRequest("bad"), OtherUnsafe},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &Load{counts: NewCounts()}
			made := &target{what: "things", fresh: tc.fresh, seen: tc.seen}
			l.judge(made, tc.safe, "GET things", tc.err)
			for kind, n := range l.counts.All() {
				switch kind {
				case SafeRequests, UnsafeRequests:
					if (kind == SafeRequests) != bool(tc.safe) || n != 1 {
						t.Errorf("%s: %d", kind, n)
					}
				case tc.want:
				default:
					t.Errorf("%s: %d", kind, n)
				}
			}
			if tc.want != "" && l.counts.Of(tc.want) != 1 {
				t.Errorf("%s: %d, want 1", tc.want, l.counts.Of(tc.want))
			}
			if tc.err == nil && !made.seen {
				t.Error("it was not seen")
			}
		})
	}
}

func TestWhatGoesAndComesBackIsAFlip(t *testing.T) {
	known := presence{}
	for i, step := range []struct{ there, back string }{
		{"a b", ""}, {"a b c", ""}, {"a c", ""}, {"a c", ""}, {"a b c", "b"}, {"a b c", ""}, {"", ""}, {"a b", "a b"}, {"a b", ""},
	} {
		there := map[string]bool{}
		for name := range strings.FieldsSeq(step.there) {
			there[name] = true
		}
		if back := known.observe(there); !slices.Equal(back, strings.Fields(step.back)) {
			t.Errorf("step %d: %q are back, want %q", i, back, step.back)
		}
	}
}

func TestResourcesOfADocument(t *testing.T) {
	version := func(name string, freshness apidiscoveryv2.DiscoveryFreshness) apidiscoveryv2.APIVersionDiscovery {
		return apidiscoveryv2.APIVersionDiscovery{Version: name, Freshness: freshness, Resources: []apidiscoveryv2.APIResourceDiscovery{
			{Resource: "things", Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status"}}},
		}}
	}
	list := &apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{{
		ObjectMeta: metav1.ObjectMeta{Name: "g"},
		Versions: []apidiscoveryv2.APIVersionDiscovery{
			version("v1", apidiscoveryv2.DiscoveryFreshnessCurrent), version("v2", apidiscoveryv2.DiscoveryFreshnessStale),
		},
	}}}
	names := resourcesOf(list)
	if len(names) != 2 || !names["g/v1/things"] || !names["g/v1/things/status"] {
		t.Errorf("got %v", names)
	}
}

func TestAnEpochEndsWhenNoOneUsesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEpoch()
		if _, ok := e.Use(); ok || e.Serving() || e.Over() {
			t.Error("it was used before it began")
		}
		e.Begin()
		<-e.Begun()
		done, ok := e.Use()
		if !ok || !e.Serving() {
			t.Error("it has begun, and can't be used")
		}
		go e.End()
		synctest.Wait()
		if _, ok := e.Use(); ok {
			t.Error("it ends, and is used anew")
		}
		if !e.Serving() || e.Over() {
			t.Error("it ended while it was used")
		}
		done()
		synctest.Wait()
		if e.Serving() || !e.Over() {
			t.Error("it did not end")
		}
	})
}

func TestReportIsAMarkdownTable(t *testing.T) {
	var results []*Result
	for i, name := range []string{"one", "other"} {
		counts := NewCounts()
		for range i + 1 {
			counts.Note(Orphans, "key %d", i)
		}
		results = append(results, &Result{Name: name, Took: 90 * time.Second, Counts: counts})
	}
	var out strings.Builder
	Report(&out, results...)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := len(kinds) + 3; len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	for _, want := range []string{"| | one | other |", "|---|---:|---:|", "| time | 1m30s | 1m30s |", "| " + string(Orphans) + " | 1 | 2 |"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	Examples(&out, results[1])
	if got := strings.Count(out.String(), "other, "+string(Orphans)+": 0s: key 1\n"); got != 2 {
		t.Errorf("examples:\n%s", out.String())
	}
}

func TestExamplesAreBounded(t *testing.T) {
	counts := NewCounts()
	for range maxExamples + 5 {
		counts.Note(Flips, "again")
	}
	if len(counts.Examples(Flips)) != maxExamples || counts.Of(Flips) != maxExamples+5 {
		t.Errorf("%d examples of %d", len(counts.Examples(Flips)), counts.Of(Flips))
	}
}
