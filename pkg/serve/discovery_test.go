package serve

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"peerproxy.internal/pkg/serve/forward"
	"peerproxy.internal/pkg/snapshot"
)

// documentsOf is the snapshot of a cluster in which this server serves the group
// ours, the peer b the group theirs, and the peer c, which is gone, the group
// lost. The aggregated API backed and the custom resource custom are everyone's.
func documentsOf(change func(*snapshot.Content)) *snapshot.Snapshot {
	with := func(id, group string) *snapshot.Document {
		d := &snapshot.Document{ServerID: id, Core: listOf("", "pods"), Groups: listOf(group, "things")}
		for _, name := range []string{"shared.k8s.io", "backed.k8s.io", "custom.k8s.io"} {
			d.Groups.Items = append(d.Groups.Items, listOf(name, "things").Items...)
		}
		return d
	}
	c := snapshot.Content{
		Local: with("a", "ours.k8s.io"),
		Peers: []*snapshot.Peer{
			{ServerID: "b", Document: with("b", "theirs.k8s.io")},
			{ServerID: "c", Document: with("c", "lost.k8s.io"), State: snapshot.StateUnreachable},
		},
		Excluded: &snapshot.Exclusions{
			Resources:     map[schema.GroupVersionResource]time.Time{{Group: "custom.k8s.io", Version: "v1", Resource: "things"}: {}},
			GroupVersions: map[schema.GroupVersion]time.Time{{Group: "backed.k8s.io", Version: "v1"}: {}, {Group: "young.k8s.io", Version: "v1"}: {}},
		},
		Ready: true,
	}
	if change != nil {
		change(&c)
	}
	return snapshot.New(c)
}

// The answer of the local chain is a 404 here, whatever it is asked.
func TestFilterOfLegacyDiscovery(t *testing.T) {
	const nopeer = "application/json;profile=nopeer"
	unsure := documentsOf(func(c *snapshot.Content) { c.Unsure = true })
	notReady := documentsOf(func(c *snapshot.Content) { c.Ready = false })
	nothing := new(snapshot.Store).Load()
	for _, tc := range []struct {
		name    string
		snap    *snapshot.Snapshot
		peer    bool
		request *http.Request
		code    int
		local   bool
		with    string // what the body holds
		without string // and what it does not
	}{
		{name: "the groups", request: get(alice, "/apis"), code: 200, with: "theirs.k8s.io"},
		{name: "the groups of who is gone", request: get(alice, "/apis"), code: 200, with: "lost.k8s.io"},
		{name: "the groups, with a slash", request: get(alice, "/apis/"), code: 200, with: "theirs.k8s.io"},
		{name: "with two", request: get(alice, "/apis//"), code: 404, local: true},
		{name: "a group of ours", request: get(alice, "/apis/ours.k8s.io"), code: 200, with: `"APIGroup"`},
		{name: "a group of a peer", request: get(alice, "/apis/theirs.k8s.io"), code: 200, with: `"APIGroup"`},
		{name: "a group of who is gone", request: get(alice, "/apis/lost.k8s.io"), code: 200, with: `"APIGroup"`},
		{name: "a group of no one", request: get(alice, "/apis/other.k8s.io"), code: 404, local: true},
		{name: "a group of no one, in doubt", snap: unsure, request: get(alice, "/apis/other.k8s.io"), code: 503},
		{name: "a group that can't be built in, in doubt", snap: unsure, request: get(alice, "/apis/other.example.com"), code: 404, local: true},
		{name: "the group of an aggregated API that is too young to be listed, in doubt", snap: unsure, request: get(alice, "/apis/young.k8s.io"), code: 404, local: true},
		{name: "a known group, in doubt", snap: unsure, request: get(alice, "/apis/theirs.k8s.io"), code: 200},

		{name: "a version of ours", request: get(alice, "/apis/ours.k8s.io/v1"), code: 200, with: "things"},
		{name: "a version of a peer", request: get(alice, "/apis/theirs.k8s.io/v1"), code: 200, with: "things"},
		{name: "a version of a peer, with a slash", request: get(alice, "/apis/theirs.k8s.io/v1/"), code: 200, with: "things"},
		{name: "a version of who is gone", request: get(alice, "/apis/lost.k8s.io/v1"), code: 503},
		{name: "a version of no one", request: get(alice, "/apis/ours.k8s.io/v2"), code: 404, local: true},
		{name: "a version of no one, in doubt", snap: unsure, request: get(alice, "/apis/ours.k8s.io/v2"), code: 503},
		{name: "a version of a custom resource", request: get(alice, "/apis/custom.k8s.io/v1"), code: 200, with: "things"},
		{name: "a version of an aggregated API", request: get(alice, "/apis/backed.k8s.io/v1"), code: 404, local: true},
		{name: "one that is too young to be listed, in doubt", snap: unsure, request: get(alice, "/apis/young.k8s.io/v1"), code: 404, local: true},
		{name: "the group of an aggregated API", request: get(alice, "/apis/backed.k8s.io"), code: 200, with: `"APIGroup"`},

		{name: "the core group", request: get(alice, "/api/v1"), code: 200, with: "pods"},
		{name: "another version of it", request: get(alice, "/api/v2"), code: 404, local: true},
		{name: "another version of it, in doubt", snap: unsure, request: get(alice, "/api/v2"), code: 503},
		{name: "the server's own address", request: get(alice, "/api"), code: 404, local: true},

		{name: "groups before the peers are known", snap: notReady, request: get(alice, "/apis"), code: 503},
		{name: "a version before the peers are known", snap: notReady, request: get(alice, "/apis/ours.k8s.io/v1"), code: 503},
		{name: "the core group before the peers are known", snap: notReady, request: get(alice, "/api/v1"), code: 503},

		{name: "nopeer: groups", request: get(alice, "/apis", "Accept", nopeer), code: 200, with: "ours.k8s.io", without: "theirs.k8s.io"},
		{name: "nopeer: groups, before the peers are known", snap: notReady, request: get(alice, "/apis", "Accept", nopeer), code: 200, with: "ours.k8s.io", without: "theirs.k8s.io"},
		{name: "nopeer: groups, before anything is known", snap: nothing, request: get(alice, "/apis", "Accept", nopeer), code: 503},
		{name: "nopeer: a group", request: get(alice, "/apis/ours.k8s.io", "Accept", nopeer), code: 200},
		{name: "nopeer: a group of a peer", request: get(alice, "/apis/theirs.k8s.io", "Accept", nopeer), code: 404, with: `"Status"`},
		{name: "nopeer: a group of no one, in doubt", snap: unsure, request: get(alice, "/apis/other.k8s.io", "Accept", nopeer), code: 404, with: `"Status"`},
		{name: "nopeer: a version", request: get(alice, "/apis/ours.k8s.io/v1", "Accept", nopeer), code: 404, local: true},
		{name: "nopeer: the core group", request: get(alice, "/api/v1", "Accept", nopeer), code: 404, local: true},

		{name: "a peer: groups", peer: true, request: get(alice, "/apis", loop, "true"), code: 200, with: "ours.k8s.io", without: "theirs.k8s.io"},
		{name: "a peer: a group of a peer", peer: true, request: get(alice, "/apis/theirs.k8s.io", loop, "true"), code: 404, with: `"Status"`},
		{name: "a peer: a version", peer: true, request: get(alice, "/apis/theirs.k8s.io/v1", loop, "true"), code: 404, local: true},
		{name: "a loop header of a client means nothing", request: get(alice, "/apis", loop, "true"), code: 200, with: "theirs.k8s.io"},

		{name: "the own client: groups", request: get(self, "/apis"), code: 404, local: true},
		{name: "the own client: a group", request: get(self, "/apis/ours.k8s.io"), code: 404, local: true},
		{name: "the own client: a version", request: get(self, "/apis/lost.k8s.io/v1"), code: 404, local: true},
		{name: "the own client: the core group, before anything is known", snap: nothing, request: get(self, "/api/v1"), code: 404, local: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{snap: tc.snap, peer: tc.peer}
			if w.snap == nil {
				w.snap = documentsOf(nil)
			}
			answer := w.serve(tc.request)
			body := answer.Body.String()
			if answer.Code != tc.code || (w.local != nil) != tc.local {
				t.Errorf("got %d, by the local chain: %t", answer.Code, w.local != nil)
			}
			if !strings.Contains(body, tc.with) || tc.without != "" && strings.Contains(body, tc.without) {
				t.Errorf("the body is %s", body)
			}
			if got := answer.Header().Get("Retry-After"); (got == "1") != (tc.code == 503) {
				t.Errorf("Retry-After is %q with %d", got, answer.Code)
			}
			if answer.Header().Get(forward.NotServedHeader) != "" || w.forwarded != nil {
				t.Error("a document is no one else's business")
			}
		})
	}
}
