package integration

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// What B serves and A does not, seen through A.
func TestWhatOnlyAPeerServesIsThereThroughThisServer(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	both := resource{group: "both.k8s.io", name: "things"}
	withStatus := resource{group: "both.k8s.io", name: "things", subresources: []string{"status"}}
	b := c.ready(spec{id: "b", serves: []resource{ours(), withStatus}})
	a := c.ready(spec{id: "a", serves: []resource{both}})
	a.learns(ours())
	alice, path := a.as("alice", "dev"), ours().path("default")

	alice.want(http.StatusCreated, http.MethodPost, path, ours().thing(t, "one", "1"))
	alice.want(http.StatusConflict, http.MethodPost, path, ours().thing(t, "one", "1"))
	if got := fromJSON[Thing](t, alice.want(http.StatusOK, http.MethodGet, path+"/one", "").body); got.Data != "1" {
		t.Errorf("got %q, want 1", got.Data)
	}
	alice.want(http.StatusOK, http.MethodPut, path+"/one", ours().thing(t, "one", "2"))
	alice.want(http.StatusOK, http.MethodPatch, path+"/one", `{"data":"3"}`, "Content-Type", "application/merge-patch+json")
	list := fromJSON[ThingList](t, alice.want(http.StatusOK, http.MethodGet, path+"?limit=5", "").body)
	if len(list.Items) != 1 || list.Items[0].Data != "3" {
		t.Errorf("got %v, want the one thing with data 3", list.Items)
	}
	alice.want(http.StatusOK, http.MethodDelete, path+"/one", "")
	missing := fromJSON[metav1.Status](t, alice.want(http.StatusNotFound, http.MethodGet, path+"/one", "").body)
	if missing.Details == nil || missing.Details.Name != "one" {
		t.Errorf("an object that is not there: got %+v, want the peer's own 404", missing)
	}

	// A subresource that only B has, of a resource that both have.
	alice.want(http.StatusCreated, http.MethodPost, both.path("default"), both.thing(t, "two", ""))
	alice.want(http.StatusOK, http.MethodPut, both.path("default")+"/two/status", both.thing(t, "two", "done"))
	if n := len(b.local.under(both.path("default"))); n != 1 {
		t.Errorf("%d requests for what both serve reached B, want the one for the subresource", n)
	}
	for _, request := range b.local.under("/apis/ours.k8s.io/") {
		if request.user.GetName() != "alice" || !slices.Contains(request.user.GetGroups(), "dev") {
			t.Errorf("%s %s came as %v, want alice of dev", request.method, request.uri, request.user)
		}
	}
	if n := len(a.local.under("/apis/ours.k8s.io/")); n != 0 {
		t.Errorf("%d requests reached A's own handlers, want none", n)
	}
	// What no one serves stays a plain 404.
	alice.until(http.StatusNotFound, http.MethodGet, "/apis/nobody.k8s.io/v1/things")
}

func TestTheUserIsTheOneThatThisServerKnows(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.ready(spec{id: "b", serves: []resource{ours()}, deny: sets.New("mallory")})
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	path := ours().path("default")
	refused := fromJSON[metav1.Status](t, a.as("mallory").want(http.StatusForbidden, http.MethodGet, path, "").body)
	if !strings.Contains(refused.Message, `User "mallory"`) {
		t.Errorf("got %q, want it to name mallory", refused.Message)
	}
	alice := a.as("alice", "dev", "on call")
	alice.want(http.StatusOK, http.MethodGet, path, "")
	through := b.local.under(path)
	b.as("alice", "dev", "on call").want(http.StatusOK, http.MethodGet, path, "")
	direct := b.local.under(path)
	if len(through) != 1 || len(direct) != 2 {
		t.Fatalf("%d, then %d requests at B, want 1 and 2", len(through), len(direct))
	}
	got, want := direct[0].user, direct[1].user
	if got.GetName() != want.GetName() || got.GetUID() != want.GetUID() || !slices.Equal(got.GetGroups(), want.GetGroups()) {
		t.Errorf("through A came %v, directly %v", got, want)
	}
	// The certificates differ, and so does what identifies them; the rest is equal.
	for key := range want.GetExtra() {
		if len(got.GetExtra()[key]) == 0 {
			t.Errorf("the extra %q is missing: %v", key, got.GetExtra())
		}
	}
}

// Each event has to be there before the next is made.
func TestEventsOfAForwardedWatchComeAtOnce(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.ready(spec{id: "b", serves: []resource{ours()}})
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	path := ours().path("default")
	watch := a.as("alice").open(http.MethodGet, path+"?watch=true", nil)
	if watch.StatusCode != http.StatusOK {
		t.Fatalf("got %s, want 200", watch.Status)
	}
	events := watchEvents(t, watch)
	admin := b.admin()
	for _, name := range []string{"one", "two", "three"} {
		admin.want(http.StatusCreated, http.MethodPost, path, ours().thing(t, name, ""))
		select {
		case got := <-events:
			if got != "ADDED "+name {
				t.Errorf("got %q, want ADDED %s", got, name)
			}
		case <-time.After(patience):
			t.Fatalf("no event of %s", name)
		}
	}
}

// watchEvents returns the events of a watch as "TYPE name", and is closed when
// the watch ends.
func watchEvents(t *testing.T, watch *http.Response) <-chan string {
	t.Helper()
	events := make(chan string, 100)
	go func() {
		defer close(events)
		lines := bufio.NewScanner(watch.Body)
		for lines.Scan() {
			var event struct {
				Type   string
				Object Thing
			}
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				events <- err.Error()
				return
			}
			events <- event.Type + " " + event.Object.Name
		}
		if err := lines.Err(); err != nil {
			events <- "broken: " + err.Error()
		}
	}()
	return events
}

func TestMergedDiscoveryIsTheSameAtEveryServer(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	mine := resource{group: "mine.k8s.io", name: "things"}
	more := resource{name: "extras"}
	servers := []*server{
		c.ready(spec{id: "a", serves: []resource{mine}}),
		c.ready(spec{id: "b", serves: []resource{ours("status")}}),
		c.ready(spec{id: "c", serves: []resource{ours(), more}}),
	}
	for _, s := range servers {
		s.learns(mine)
		s.learns(ours())
		alice := s.as("alice")
		eventually(t, s.spec.id+" knows of c's core resource", func() bool { return alice.document("/api").lists(t, more) })
	}
	first := servers[0].as("alice")
	for _, path := range []string{"/apis", "/api"} {
		for _, accept := range []string{aggregated, strings.Replace(aggregated, "json", "vnd.kubernetes.protobuf", 1)} {
			want := first.document(path, "Accept", accept)
			for _, s := range servers[1:] {
				got := s.as("alice").document(path, "Accept", accept)
				if string(got.body) != string(want.body) || got.header.Get("ETag") != want.header.Get("ETag") {
					t.Errorf("%s as %s: %s answers\n%s\nand a\n%s", path, accept, s.spec.id, got.body, want.body)
				}
			}
		}
		checkNotModified(t, servers, path)
	}
	checkNoPeer(t, servers[0], mine)
}

// checkNotModified asks every server again with another server's tag.
func checkNotModified(t *testing.T, servers []*server, path string) {
	t.Helper()
	tag := servers[0].as("alice").document(path).header.Get("ETag")
	if tag == "" {
		t.Fatalf("%s has no entity tag", path)
	}
	for _, s := range servers {
		got := s.as("alice").want(http.StatusNotModified, http.MethodGet, path, "", "Accept", aggregated, "If-None-Match", tag)
		if got.header.Get("ETag") != tag || len(got.body) > 0 {
			t.Errorf("%s at %s: a 304 with tag %q and %d bytes", path, s.spec.id, got.header.Get("ETag"), len(got.body))
		}
		if values := got.header["Cache-Control"]; len(values) != 1 || values[0] != "public" {
			t.Errorf("%s at %s: got Cache-Control %q, want public", path, s.spec.id, values)
		}
	}
}

// checkNoPeer makes sure that a server's own document is its own.
func checkNoPeer(t *testing.T, s *server, own resource) {
	t.Helper()
	got := s.as("alice").want(http.StatusOK, http.MethodGet, "/apis", "", "Accept", aggregated+";profile=nopeer")
	if !got.lists(t, own) || got.lists(t, ours()) {
		t.Errorf("the document for nopeer is not the own one: %s", got.body)
	}
	names := sets.New[string]()
	for _, group := range fromJSON[apidiscoveryv2.APIGroupDiscoveryList](t, got.body).Items {
		names.Insert(group.Name)
	}
	if !names.Equal(sets.New(own.group, "common.k8s.io", leases.group)) {
		t.Errorf("the document for nopeer has the groups %v", sets.List(names))
	}
	s.as("alice").want(http.StatusNotModified, http.MethodGet, "/apis", "", "Accept", aggregated+";profile=nopeer", "If-None-Match", got.header.Get("ETag"))
}

func TestAuditAtBothServersHasTheSameID(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.ready(spec{id: "b", serves: []resource{ours()}})
	a := c.ready(spec{id: "a"})
	a.learns(ours())
	path := ours().path("default")
	alice := a.as("alice")
	for _, headers := range [][]string{nil, {"Audit-Id", "chosen-by-the-client"}} {
		got := alice.want(http.StatusOK, http.MethodGet, path, "", headers...)
		ids := got.header["Audit-Id"]
		if len(ids) != 1 {
			t.Fatalf("got the audit IDs %q, want one", ids)
		}
		if headers != nil && ids[0] != headers[1] {
			t.Errorf("got audit ID %q, want the client's", ids[0])
		}
		for _, s := range []*server{a, b} {
			eventually(t, s.spec.id+" has audited the request", func() bool {
				return slices.ContainsFunc(annotationsOf(s, path, ids[0]), func(annotations map[string]string) bool {
					peer, forwarded := annotations["peerproxy.kubernetes.io/peer"]
					return (s == a) == forwarded && (!forwarded || peer == "b")
				})
			})
		}
	}
}

// annotationsOf returns the audit annotations of the requests below a path that
// have the audit ID.
func annotationsOf(s *server, path, id string) []map[string]string {
	var found []map[string]string
	for _, event := range s.audit.completed(path) {
		if string(event.AuditID) == id {
			found = append(found, event.Annotations)
		}
	}
	return found
}

// A forwarded watch gives its seat back when it is handed to the peer.
func TestForwardedWatchesHoldNoSeats(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.ready(spec{id: "b", serves: []resource{ours()}})
	a := c.ready(spec{id: "a", seats: 1})
	a.learns(ours())
	alice, path := a.as("alice"), ours().path("default")
	// A seat is free again a moment after the client has its answer.
	for range 5 {
		eventually(t, "another watch is let in", func() bool {
			return alice.open(http.MethodGet, path+"?watch=true", nil).StatusCode == http.StatusOK
		})
	}
	alice.until(http.StatusOK, http.MethodGet, common[1].path("default"))
	alice.until(http.StatusOK, http.MethodGet, path)
}
