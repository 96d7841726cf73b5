package upgrade

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// newTestLoad is a load without clients, and one client of a server that plays the
// handler.
func newTestLoad(t *testing.T, handler http.HandlerFunc) (*Load, *client) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	l := NewLoad(LoadConfig{Config: &rest.Config{Host: server.URL}, Counts: NewCounts(), Epoch: NewEpoch()})
	t.Cleanup(l.close)
	c, err := l.newRestlessClient()
	if err != nil {
		t.Fatal(err)
	}
	return l, c
}

func wantCount(t *testing.T, l *Load, kind Kind, want int) {
	t.Helper()
	if got := l.counts.Of(kind); got != want {
		t.Errorf("%s: %d, want %d (%q)", kind, got, want, l.counts.Examples(kind))
	}
}

func answerJSON(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(content)
}

func TestAWalkFailsOverAnyGroupVersionThatIsTold(t *testing.T) {
	var missing atomic.Pointer[string]
	l, c := newTestLoad(t, func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == *missing.Load():
			http.NotFound(w, r)
		case path == "/apis":
			answerJSON(w, metav1.APIGroupList{Groups: []metav1.APIGroup{
				{Name: "g", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "g/v1"}, {GroupVersion: "g/v2"}}},
			}})
		default:
			answerJSON(w, metav1.APIResourceList{})
		}
	})
	for _, path := range []string{"", "/apis", "/apis/g/v2", "/api/v1"} {
		missing.Store(&path)
		err := l.walk(t.Context(), c)
		if failed := err != nil; failed != (path != "") {
			t.Errorf("without %q: %v", path, err)
		}
		if err != nil && !strings.Contains(err.Error(), "GET "+path+":") {
			t.Errorf("%v does not name %s", err, path)
		}
	}
}

func TestDiscoveryFlipsAreCounted(t *testing.T) {
	var there atomic.Bool
	l, c := newTestLoad(t, func(w http.ResponseWriter, _ *http.Request) {
		var list apidiscoveryv2.APIGroupDiscoveryList
		if there.Load() {
			list.Items = []apidiscoveryv2.APIGroupDiscovery{{Versions: []apidiscoveryv2.APIVersionDiscovery{
				{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{Resource: "things"}}},
			}}}
		}
		answerJSON(w, list)
	})
	known, of := presence{}, &target{what: "/apis"}
	see := func(now bool) {
		there.Store(now)
		l.discover(t.Context(), c, of, known)
	}
	see(false)
	see(true)
	wantCount(t, l, Flips, 0)
	see(false)
	see(true)
	wantCount(t, l, Flips, 1)
	l.epoch.Begin()
	l.epoch.End()
	see(false)
	see(true)
	wantCount(t, l, Flips, 1)
	wantCount(t, l, Discoveries, 6)
}

func TestWhatNoOneServesAllTheTimeIsNotCounted(t *testing.T) {
	l := NewLoad(LoadConfig{Counts: NewCounts(), Epoch: NewEpoch()})
	of := &target{what: "things", fresh: true, seen: true}
	ask := func(during func()) {
		l.do(t.Context(), of, true, "GET", func(context.Context) error {
			during()
			return errNotFound
		})
	}
	nothing := func() {}
	ask(nothing)
	ask(l.epoch.Begin)
	wantCount(t, l, WrongAbsent, 0)
	ask(nothing)
	wantCount(t, l, WrongAbsent, 1)
	ask(l.epoch.End)
	ask(nothing)
	wantCount(t, l, WrongAbsent, 1)
	wantCount(t, l, SafeRequests, 1)
}

// roundTrip answers every request with a status.
type roundTrip int

func (r roundTrip) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(r), Body: http.NoBody, Header: http.Header{}}, nil
}

func TestListsAfterTheFirstAreRelists(t *testing.T) {
	l := NewLoad(LoadConfig{Counts: NewCounts(), Epoch: NewEpoch()})
	counter := &listCounter{load: l, object: configMaps()}
	for i, step := range []struct {
		query  string
		status roundTrip
		want   int
	}{
		{"watch=true&sendInitialEvents=true", 503, 0},
		{"watch=true&sendInitialEvents=true", 200, 0},
		{"watch=true&resourceVersion=5", 200, 0},
		{"watch=true&sendInitialEvents=true", 200, 1},
		{"limit=500", 503, 2},
	} {
		counter.next = step.status
		request := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?"+step.query, nil)
		response, err := counter.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := l.counts.Of(Relists); got != step.want {
			t.Errorf("step %d: %d relists, want %d", i, got, step.want)
		}
	}
}
