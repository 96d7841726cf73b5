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
