package merge

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"peerproxy.internal/pkg/snapshot"
)

func TestDiscoveryTakesWhatCanNotBeUnitedFromTheLowestServerID(t *testing.T) {
	with := func(scope apidiscoveryv2.ResourceScope, word, sub string) []apidiscoveryv2.APIGroupDiscovery {
		items := parse(t, "g/v1 r get s:get")
		items[0].Labels = map[string]string{"from": word}
		r := &items[0].Versions[0].Resources[0]
		r.Scope, r.SingularResource, r.ShortNames, r.Categories = scope, word, []string{word}, []string{word}
		r.ResponseKind = &metav1.GroupVersionKind{Kind: word}
		r.Subresources[0].ResponseKind = &metav1.GroupVersionKind{Kind: sub}
		return items
	}
	all := []member{
		{id: "c", items: with(apidiscoveryv2.ScopeCluster, "c", "c")},
		{id: "b", items: with(apidiscoveryv2.ScopeNamespace, "b", "b")},
		{id: "a", state: starting, items: with(apidiscoveryv2.ScopeCluster, "a", "a")},
	}
	// A subresource comes from the last, as upstream has it.
	want := with(apidiscoveryv2.ScopeNamespace, "b", "a")
	if diff := cmp.Diff(want, Discovery(seenFrom("b", all, nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDiscoveryLeavesNoKindNil(t *testing.T) {
	items := parse(t, "g/v1 r get s:get t:get")
	r := &items[0].Versions[0].Resources[0]
	r.ResponseKind, r.Subresources[1].ResponseKind = nil, nil
	got := Discovery(seenFrom("a", []member{{id: "a", items: items}}, nil))[0].Versions[0].Resources[0]
	if got.ResponseKind == nil || got.Subresources[1].ResponseKind == nil {
		t.Errorf("nil response kind in %+v", got)
	}
	if got.Subresources[0].ResponseKind.Kind != "r" {
		t.Errorf("kind %v was not kept", got.Subresources[0].ResponseKind)
	}
	if r.ResponseKind != nil || r.Subresources[1].ResponseKind != nil {
		t.Error("the source was changed")
	}
}

func TestDiscoveryOfNothingIsAnEmptyList(t *testing.T) {
	if got := Discovery(nil); got == nil || len(got) != 0 {
		t.Errorf("got %#v", got)
	}
}

// TestDiscoveryAsksTheOwnDocumentHowFreshExcludedVersionsAre has a peer that
// lists the version too, and thinks otherwise.
func TestDiscoveryAsksTheOwnDocumentHowFreshExcludedVersionsAre(t *testing.T) {
	source := func(id, text string) snapshot.Source {
		list := &snapshot.List{Items: parse(t, text)}
		return snapshot.Source{ServerID: id, Whole: list, Own: list}
	}
	for _, excluded := range []string{"metrics/v1", "metrics/v1/pods"} {
		own, peer := source("b", "metrics/v1* pods get"), source("a", "metrics/v1 nodes get")
		own.Local, own.Excluded = true, excluding(excluded).Owns
		want := trimmed(`
			metrics/v1* nodes get
			metrics/v1* pods get`)
		if diff := cmp.Diff(want, render(Discovery([]snapshot.Source{own, peer}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", excluded, diff)
		}
		own.Excluded = excluding().Owns
		if got := render(Discovery([]snapshot.Source{own, peer})); got == want {
			t.Error("without exclusion the peer's freshness does not count")
		}
	}
	empty, peer := source("b", "metrics/v1*"), source("a", "metrics/v1")
	empty.Local, empty.Excluded = true, excluding("metrics/v1").Owns
	if got, want := render(Discovery([]snapshot.Source{empty, peer})), "metrics/v1*\n"; got != want {
		t.Errorf("an empty version is %q", got)
	}
}

// TestDiscoveryCountsANameThatStandsTwiceOnce merges documents that no sound
// server sends.
func TestDiscoveryCountsANameThatStandsTwiceOnce(t *testing.T) {
	twice := slices.Concat(
		parse(t, `
			b/v2 r get
			b/v1 r get
			a/v1 r get`),
		parse(t, "b/v2 r list"))
	version := parse(t, "c/v1 r get,list")
	version[0].Versions = append(version[0].Versions, version[0].Versions[0])
	resource := parse(t, "d/v1 r get,list")
	resource[0].Versions[0].Resources = append(resource[0].Versions[0].Resources, resource[0].Versions[0].Resources[0])
	items := slices.Concat(twice, version, resource)

	want := trimmed(`
		b/v2 r get,list
		b/v1 r get
		a/v1 r get
		c/v1 r get,list
		d/v1 r get,list`)
	got := render(Discovery(seenFrom("1", []member{{id: "1", items: items}, {id: "2", items: items}}, nil)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
