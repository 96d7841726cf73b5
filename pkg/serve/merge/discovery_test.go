package merge

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"peerproxy.internal/pkg/snapshot"
)

const (
	serving     = snapshot.StateServing
	starting    = snapshot.StateStarting
	unreachable = snapshot.StateUnreachable
	departed    = snapshot.StateDeparted
)

// said is what a member of a test's cluster lists.
type said struct {
	id    string
	state snapshot.State
	text  string
}

func members(t *testing.T, all ...said) []member {
	t.Helper()
	out := make([]member, 0, len(all))
	for _, m := range all {
		out = append(out, member{id: m.id, state: m.state, items: parse(t, m.text)})
	}
	return out
}

// TestDiscovery wants the same list from every serving member of a cluster.
func TestDiscovery(t *testing.T) {
	for _, test := range []struct {
		name     string
		members  []said
		excluded []string
		want     string
	}{
		{
			name:    "one member's document is its own",
			members: []said{{"a", serving, "g/v1 r list,get sub:get"}},
			want:    "g/v1 r list,get sub:get",
		},
		{
			name: "members that agree keep their document, verbs unsorted",
			members: []said{
				{"a", serving, "g/v1 r list,get s:update,get"},
				{"b", serving, "g/v1 r list,get s:update,get"},
			},
			want: "g/v1 r list,get s:update,get",
		},
		{
			name: "a group, a version and a resource that one member lacks stand where the other has them",
			members: []said{
				{"a", serving, `
					apps/v1 deployments get
					batch/v1 jobs get`},
				{"b", serving, `
					apps/v1 deployments get
					apps/v1 sets get
					middle/v1 x get
					batch/v2 jobs get
					batch/v1 jobs get`},
			},
			want: `
				apps/v1 deployments get
				apps/v1 sets get
				middle/v1 x get
				batch/v2 jobs get
				batch/v1 jobs get`,
		},
		{
			name: "groups and resources without a common order are sorted by name",
			members: []said{
				{"a", serving, `
					b/v1 y get
					b/v1 w get`},
				{"b", serving, `
					a/v1 z get
					b/v1 x get`},
			},
			want: `
				a/v1 z get
				b/v1 x get
				b/v1 y get
				b/v1 w get`,
		},
		{
			name: "the more stable version comes first, whoever has it (case 23)",
			members: []said{
				{"a", serving, "g/v1beta1 r get"},
				{"b", serving, `
					g/v1 r get
					g/v1beta1 r get`},
			},
			want: `
				g/v1 r get
				g/v1beta1 r get`,
		},
		{
			name: "versions without a common order go by Kubernetes' preference",
			members: []said{
				{"a", serving, `
					g/v1 r get
					g/v1alpha1 r get
					g/odd r get`},
				{"b", serving, `
					g/v2 r get
					g/v1beta1 r get`},
				{"c", serving, "g/v10 r get"},
			},
			want: `
				g/v10 r get
				g/v2 r get
				g/v1 r get
				g/v1beta1 r get
				g/v1alpha1 r get
				g/odd r get`,
		},
		{
			name: "versions whose orders contradict each other in a circle go by Kubernetes' preference",
			members: []said{
				{"a", serving, `
					g/v1beta1 r get
					g/v2 r get
					g/v3 r get`},
				{"b", serving, `
					g/v2 r get
					g/v1beta1 r get
					g/v1 r get`},
			},
			want: `
				g/v3 r get
				g/v2 r get
				g/v1 r get
				g/v1beta1 r get`,
		},
		{
			name: "an order that a member has wins over Kubernetes' preference",
			members: []said{
				{"a", serving, `
					g/v1 r get
					g/v2 r get`},
				{"b", serving, "g/v2 r get"},
			},
			want: `
				g/v1 r get
				g/v2 r get`,
		},
		{
			name: "verbs and subresources are united and sorted",
			members: []said{
				{"a", serving, "g/v1 r list,get status:update,get"},
				{"b", serving, "g/v1 r watch,get scale:get"},
			},
			want: "g/v1 r get,list,watch scale:get status:update,get",
		},
		{
			name: "verbs of a subresource that both have are united",
			members: []said{
				{"a", serving, "g/v1 r get status:patch,get"},
				{"b", serving, "g/v1 r get status:update"},
			},
			want: "g/v1 r get status:get,patch,update",
		},
		{
			name: "what only a starting member has comes last",
			members: []said{
				{"a", starting, `
					early/v1 x get
					g/v2 r get
					g/v1 a get
					g/v1 r get
					g/v1 b get`},
				{"b", starting, "before/v1 x get"},
				{"c", serving, "g/v1 r get"},
			},
			want: `
				g/v1 r get
				g/v1 a get
				g/v1 b get
				g/v2 r get
				before/v1 x get
				early/v1 x get`,
		},
		{
			name: "a version that only members out of reach list is stale",
			members: []said{
				{"a", serving, "g/v1 r get"},
				{"b", unreachable, `
					g/v1 r get
					g/v1beta1 r get`},
				{"c", departed, "gone/v1 r get"},
				{"d", starting, "new/v1 r get"},
			},
			want: `
				g/v1 r get
				g/v1beta1* r get
				gone/v1* r get
				new/v1 r get`,
		},
		{
			name: "a resource that only a member out of reach has does not make the version stale",
			members: []said{
				{"a", serving, "g/v1 r get"},
				{"b", unreachable, "g/v1 only get"},
			},
			want: `
				g/v1 only get
				g/v1 r get`,
		},
		{
			name: "a reachable member that is current is believed",
			members: []said{
				{"a", serving, "g/v1* r get"},
				{"b", serving, "g/v1 r get"},
			},
			want: "g/v1 r get",
		},
		{
			name: "what every reachable member calls stale is stale",
			members: []said{
				{"a", serving, "g/v1* r get"},
				{"b", serving, "g/v1* r get"},
				{"c", unreachable, "g/v1 r get"},
			},
			want: "g/v1* r get",
		},
		{
			name: "excluded content is nobody's but one's own, in the order of all",
			members: []said{
				{"a", serving, `
					apps/v1 deployments get
					example.com/v1 widgets get`},
				{"b", serving, `
					example.com/v1 widgets get
					apps/v1 deployments get
					batch/v1 jobs get`},
				{"c", unreachable, `
					example.com/v1 widgets get,list
					example.com/v2 widgets get`},
			},
			excluded: []string{"example.com/v1/widgets", "example.com/v2/widgets"},
			want: `
				example.com/v1 widgets get
				apps/v1 deployments get
				batch/v1 jobs get`,
		},
		{
			name: "an excluded version keeps the freshness of this server's document",
			members: []said{
				{"a", serving, "metrics/v1*"},
				{"b", serving, "metrics/v1*"},
				{"c", unreachable, "metrics/v1 pods get"},
			},
			excluded: []string{"metrics/v1"},
			want:     "metrics/v1*",
		},
		{
			name: "beside a custom resource a built-in one of the same version is merged",
			members: []said{
				{"a", serving, "g/v1* custom get"},
				{"b", serving, `
					g/v1* custom get
					g/v1* builtin get`},
				{"c", starting, "g/v1 builtin get"},
			},
			excluded: []string{"g/v1/custom"},
			want: `
				g/v1* custom get
				g/v1* builtin get`,
		},
		{
			name: "empty versions and groups stay",
			members: []said{
				{"a", serving, "a/v1"},
				{"b", serving, "b"},
			},
			want: `
				a/v1
				b`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := members(t, test.members...)
			for _, m := range test.members {
				if m.state != serving {
					continue
				}
				sources := seenFrom(m.id, all, excluding(test.excluded...))
				if diff := cmp.Diff(trimmed(test.want), render(Discovery(sources))); diff != "" {
					t.Errorf("at %s (-want +got):\n%s", m.id, diff)
				}
			}
		})
	}
}
