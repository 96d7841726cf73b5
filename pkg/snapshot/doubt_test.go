package snapshot

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestInDoubt(t *testing.T) {
	excluded := &Exclusions{
		Resources: map[schema.GroupVersionResource]time.Time{
			{Group: "crd.k8s.io", Version: "v1", Resource: "things"}:  {},
			{Group: "gone.k8s.io", Version: "v1", Resource: "things"}: time.Unix(1, 0),
		},
		GroupVersions: map[schema.GroupVersion]time.Time{
			{Group: "metrics.k8s.io", Version: "v1"}: {},
			{Group: "left.k8s.io", Version: "v1"}:    time.Unix(1, 0),
		},
	}
	for _, tc := range []struct {
		name           string
		sure           bool
		excluded       *Exclusions
		group, version string
		want           bool
	}{
		{name: "a built-in version", excluded: excluded, group: "batch", version: "v2", want: true},
		{name: "a built-in group", excluded: excluded, group: "new.k8s.io", want: true},
		{name: "a version of the core group", group: "", version: "v2", want: true},
		{name: "every document is known", sure: true, excluded: excluded, group: "batch", version: "v2"},
		{name: "a group that can't be built in", excluded: excluded, group: "example.com"},
		{name: "the version of a custom resource", excluded: excluded, group: "crd.k8s.io", version: "v1"},
		{name: "the group of a custom resource", excluded: excluded, group: "crd.k8s.io"},
		{name: "another version in its group", excluded: excluded, group: "crd.k8s.io", version: "v2", want: true},
		{name: "the version of an aggregated API", excluded: excluded, group: "metrics.k8s.io", version: "v1"},
		{name: "the group of an aggregated API", excluded: excluded, group: "metrics.k8s.io"},
		{name: "what a custom resource once owned", excluded: excluded, group: "gone.k8s.io", want: true},
		{name: "what an aggregated API once owned", excluded: excluded, group: "left.k8s.io", version: "v1", want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := New(Content{Unsure: !tc.sure, Excluded: tc.excluded})
			if got := s.InDoubt(schema.GroupVersion{Group: tc.group, Version: tc.version}); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestElsewhere(t *testing.T) {
	widgets := schema.GroupVersionResource{Group: "crd.example.com", Version: "v1", Resource: "widgets"}
	custom := group("crd.example.com", "v1", resource("widgets", "get"))
	alone := Content{Local: document("a", group("apps", "v1", resource("deployments", "get")))}
	peer := &Peer{ServerID: "b", Document: document("b", group("", "v1", resource("pods", "get")), group("batch", "v1", resource("jobs", "get")), custom)}
	joined := Content{Peers: []*Peer{peer}, Excluded: &Exclusions{Resources: map[schema.GroupVersionResource]time.Time{widgets: {}}}}
	for _, tc := range []struct {
		name           string
		content        Content
		path           Path
		group, version string
		want           bool
	}{
		{"the groups, with a peer", joined, PathAPIs, "", "", true},
		{"the core group, with a peer", joined, PathAPI, "", "", true},
		{"the groups, without one", alone, PathAPIs, "", "", false},
		{"the groups, in doubt", Content{Unsure: true}, PathAPIs, "", "", true},
		{"a peer's group", joined, PathAPIs, "batch", "", true},
		{"a peer's version", joined, PathAPIs, "batch", "v1", true},
		{"a peer's version of the core group", joined, PathAPI, "", "v1", true},
		{"another version of its group", joined, PathAPIs, "batch", "v2", false},
		{"another version, in doubt", Content{Peers: joined.Peers, Unsure: true}, PathAPIs, "batch", "v2", true},
		{"what this server alone lists", alone, PathAPIs, "apps", "v1", false},
		{"a custom resource, which all have", joined, PathAPIs, "crd.example.com", "v1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := New(tc.content).Elsewhere(tc.path, schema.GroupVersion{Group: tc.group, Version: tc.version}); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
