package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/snapshot"
)

// Only new has it in the clusters here.
var newsOnly = schema.GroupVersion{Group: "storagemigration.k8s.io", Version: "v1"}

// recorded is the document of a real server.
func recorded(t *testing.T, id, version string) *snapshot.Document {
	t.Helper()
	d := &snapshot.Document{ServerID: id}
	for name, list := range map[string]*snapshot.List{"api.json": &d.Core, "apis.json": &d.Groups} {
		data, err := os.ReadFile(filepath.Join("merge", "testdata", "legacy", version, name))
		if err != nil {
			t.Fatal(err)
		}
		var decoded apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(data, &decoded); err != nil {
			t.Fatal(err)
		}
		list.ETag, list.Items = version, decoded.Items
	}
	return d
}

// upgrade is a cluster of a server of 1.36, old, and one of 1.37, new, as one of
// them sees it. Both know a custom resource.
func upgrade(t *testing.T, at string, newIs snapshot.State) *snapshot.Snapshot {
	t.Helper()
	local, peer := recorded(t, "old", "v1.36"), recorded(t, "new", "v1.37")
	if at == "new" {
		local, peer = peer, local
	}
	custom := map[schema.GroupVersionResource]time.Time{}
	for _, version := range []string{"v1", "v1beta1"} {
		for _, resource := range []string{"widgets", "gadgets"} {
			custom[schema.GroupVersionResource{Group: "example.com", Version: version, Resource: resource}] = time.Time{}
		}
	}
	return snapshot.New(snapshot.Content{
		Local:    local,
		Peers:    []*snapshot.Peer{{ServerID: peer.ServerID, Document: peer, State: newIs}},
		Excluded: &snapshot.Exclusions{Resources: custom},
		Ready:    true,
	})
}

// address is what the local chain serves at /api: who answers.
var address = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte(`{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]}`))
})

// start starts a server over the snapshot, whose local chain knows its address
// alone.
func start(t *testing.T, snap *snapshot.Snapshot) string {
	t.Helper()
	infos := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	filter := WithPeerProxy(address, Config{
		Snapshots:  fixed{snap},
		Trusted:    func(*http.Request) bool { return false },
		Documents:  document.New(),
		Serializer: scheme.Codecs.WithoutConversion(),
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			t.Error(err)
		}
		ctx := apirequest.WithUser(apirequest.WithRequestInfo(r.Context(), info), alice)
		filter.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// fixed is one snapshot for ever.
type fixed struct{ snap *snapshot.Snapshot }

func (f fixed) Load() *snapshot.Snapshot { return f.snap }

func (fixed) Refresh(context.Context, time.Duration) error { return nil }

// hasty is a transport whose client does not wait to ask again.
type hasty struct{ http.RoundTripper }

func (h hasty) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := h.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

func client(t *testing.T, url string, legacy bool) *discovery.DiscoveryClient {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: url, QPS: -1, WrapTransport: func(rt http.RoundTripper) http.RoundTripper { return hasty{rt} }})
	if err != nil {
		t.Fatal(err)
	}
	c.UseLegacyDiscovery = legacy
	return c
}

// TestAWalkOfLegacyDiscoveryFindsAllThatItIsToldOf walks as clients do that know
// nothing else, through the server that lacks something (case 1).
func TestAWalkOfLegacyDiscoveryFindsAllThatItIsToldOf(t *testing.T) {
	for _, tc := range []struct {
		name  string
		newIs snapshot.State
		code  int
	}{
		{"while a peer serves it", snapshot.StateServing, 200},
		{"when the peer is gone", snapshot.StateUnreachable, 503},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := start(t, upgrade(t, "old", tc.newIs))
			var groups metav1.APIGroupList
			read(t, url+"/apis", &groups)
			found := map[int][]string{}
			for _, listed := range groups.Groups {
				var group metav1.APIGroup
				if code := read(t, url+"/apis/"+listed.Name, &group); code != 200 {
					t.Errorf("%s: %d", listed.Name, code)
				}
				group.TypeMeta = metav1.TypeMeta{}
				if diff := cmp.Diff(listed, group); diff != "" {
					t.Errorf("(-listed +itself):\n%s", diff)
				}
				for _, version := range group.Versions {
					var resources metav1.APIResourceList
					code := read(t, url+"/apis/"+version.GroupVersion, &resources)
					found[code] = append(found[code], version.GroupVersion)
				}
			}
			var core metav1.APIResourceList
			if code := read(t, url+"/api/v1", &core); code != 200 || len(core.APIResources) < 30 {
				t.Errorf("the core group: %d with %d resources", code, len(core.APIResources))
			}
			if !slices.Contains(found[tc.code], newsOnly.String()) {
				t.Errorf("%s is not among those with %d: %v", newsOnly, tc.code, found[tc.code])
			}
			for code, versions := range found {
				if code != 200 && (code != tc.code || slices.Contains(versions, "apps/v1")) {
					t.Errorf("got %d for %v", code, versions)
				}
			}
		})
	}
}

// read reads what is at the URL, if it is there.
func read(t *testing.T, url string, into any) int {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		if err := json.NewDecoder(response.Body).Decode(into); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if (response.Header.Get("Retry-After") == "1") != (response.StatusCode == http.StatusServiceUnavailable) {
		t.Errorf("%s: %d with Retry-After %q", url, response.StatusCode, response.Header.Get("Retry-After"))
	}
	return response.StatusCode
}

// TestTheNamespaceControllerKnowsWhatItMissed looks up what it has to delete, as
// that controller does: what only a peer has is there, and when the peer is gone
// the look-up fails, lest objects be left behind (case 2).
func TestTheNamespaceControllerKnowsWhatItMissed(t *testing.T) {
	only := schema.GroupVersion{Group: "certificates.k8s.io", Version: "v1beta1"}
	for _, legacy := range []bool{false, true} {
		lists, err := discovery.ServerPreferredResources(client(t, start(t, upgrade(t, "old", snapshot.StateServing)), legacy))
		if err != nil || !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == newsOnly.String() }) {
			t.Errorf("legacy %t: what a peer has is missing: %v", legacy, err)
		}
		_, err = discovery.ServerPreferredResources(client(t, start(t, upgrade(t, "old", snapshot.StateDeparted)), legacy))
		var failed *discovery.ErrGroupDiscoveryFailed
		if !errors.As(err, &failed) || failed.Groups[newsOnly] == nil || failed.Groups[only] == nil {
			t.Errorf("legacy %t: what a peer had is missing without a trace: %v", legacy, err)
		}
	}
}

// TestMappingsAreTheSameHoweverTheyAreMade makes mappings of resources to kinds
// of aggregated and of legacy discovery, at each server, in a cluster where all
// is well and in one where a member is gone.
func TestMappingsAreTheSameHoweverTheyAreMade(t *testing.T) {
	for _, newIs := range []snapshot.State{snapshot.StateServing, snapshot.StateUnreachable} {
		want := mappings(t, upgrade(t, "old", newIs), false)
		if len(want) < 100 {
			t.Errorf("only %d mappings", len(want))
		}
		if diff := cmp.Diff(want, mappings(t, upgrade(t, "old", newIs), true)); diff != "" {
			t.Errorf("%s at old (-aggregated +legacy):\n%s", newIs, diff)
		}
		if newIs != snapshot.StateServing {
			continue
		}
		for _, legacy := range []bool{false, true} {
			if diff := cmp.Diff(want, mappings(t, upgrade(t, "new", newIs), legacy)); diff != "" {
				t.Errorf("at new, legacy %t (-old +new):\n%s", legacy, diff)
			}
		}
	}
}

// mappings are the resource and scope of each kind, and the kind of each
// resource, as a client of the server finds them.
func mappings(t *testing.T, snap *snapshot.Snapshot, legacy bool) map[string]string {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(client(t, start(t, snap), legacy))
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	all := map[string]string{}
	for _, group := range groups {
		for version, resources := range group.VersionedResources {
			gv := schema.GroupVersion{Group: group.Group.Name, Version: version}
			for _, r := range resources {
				mapping, err := mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: r.Kind})
				all["preferred "+gv.Group+" "+r.Kind] = describe(mapping, err)
				mapping, err = mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: r.Kind}, version)
				all["exactly "+gv.String()+" "+r.Kind] = describe(mapping, err)
				kind, err := mapper.KindFor(gv.WithResource(r.Name))
				all["resource "+gv.String()+" "+r.Name] = kind.String() + " " + text(err)
				kind, err = mapper.KindFor(schema.GroupVersionResource{Resource: r.Name})
				all["short "+r.Name] = kind.String() + " " + text(err)
			}
		}
	}
	return all
}

func describe(m *meta.RESTMapping, err error) string {
	if err != nil {
		return text(err)
	}
	return m.Resource.String() + " " + string(m.Scope.Name())
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
