package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"peerproxy.internal/pkg/snapshot"
)

// recorded is what a server of Kubernetes wrote at the paths, read into the
// documents.
func recorded(t testing.TB, version, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "merge", "testdata", "legacy", version, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// serverOf is the document of a real server.
func serverOf(t testing.TB, id, version string) *snapshot.Document {
	t.Helper()
	var core, groups apidiscoveryv2.APIGroupDiscoveryList
	recorded(t, version, "api.json", &core)
	recorded(t, version, "apis.json", &groups)
	return &snapshot.Document{
		ServerID: id,
		Core:     snapshot.List{ETag: "core " + version, Items: core.Items},
		Groups:   snapshot.List{ETag: "groups " + version, Items: groups.Items},
	}
}

// legacyPaths are the paths of all legacy documents of the snapshot.
func legacyPaths(snap *snapshot.Snapshot) []string {
	s := New()
	list := []string{"/api/v1", "/apis"}
	all, _ := s.mergedOf(snapshot.PathAPIs, snap.View(snapshot.PathAPIs))
	for _, group := range all.groups() {
		list = append(list, "/apis/"+group.Name)
		for _, version := range group.Versions {
			list = append(list, "/apis/"+group.Name+"/"+version.Version)
		}
	}
	return list
}

// stockLegacy answers for a legacy document as the handlers of Kubernetes do.
func stockLegacy(t *testing.T, path string, document json.RawMessage) http.Handler {
	t.Helper()
	codecs := newCodecs(false)
	switch {
	case path == "/apis":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			list := &metav1.APIGroupList{}
			decode(t, document, list)
			list.TypeMeta = metav1.TypeMeta{}
			responsewriters.WriteObjectNegotiated(codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, r, 200, list, false)
		})
	case strings.Count(path, "/") == 2 && path != "/api/v1":
		group := metav1.APIGroup{}
		decode(t, document, &group)
		return discovery.NewAPIGroupHandler(codecs, group)
	}
	list := metav1.APIResourceList{}
	decode(t, document, &list)
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	return discovery.NewAPIVersionHandler(codecs, gv, discovery.APIResourceListerFunc(func() []metav1.APIResource {
		for i := range list.APIResources {
			list.APIResources[i].StorageVersionHash = ""
		}
		return list.APIResources
	}))
}

func decode(t *testing.T, data []byte, into runtime.Object) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// TestLegacyIsWrittenAsUpstreamWritesIt compares bytes, status and type of all
// documents of a real server with those of Kubernetes' own handlers.
func TestLegacyIsWrittenAsUpstreamWritesIt(t *testing.T) {
	var documents map[string]json.RawMessage
	recorded(t, "v1.37", "legacy.json", &documents)
	// There the server lists custom resources in the order of a map.
	delete(documents, "/apis/example.com/v1")
	s, snap := New(), snapshot.New(snapshot.Content{Local: serverOf(t, "a", "v1.37"), Ready: true})
	for path, document := range documents {
		stock := stockLegacy(t, path, document)
		for _, headers := range [][]string{
			nil,
			{"Accept", "application/json"},
			{"Accept", "application/json;pretty=1"},
			{"User-Agent", "curl/8", "Accept", "*/*"},
			{"Accept", "application/yaml"},
			{"Accept", "application/vnd.kubernetes.protobuf"},
			{"Accept", "application/vnd.kubernetes.protobuf,application/json"},
			{"Accept", "text/html"},
			{"Accept", "application/cbor"},
		} {
			r := newRequest("GET", path, headers...)
			want, got := httptest.NewRecorder(), serve(t, s, snap, r)
			stock.ServeHTTP(want, r)
			if got.Code != want.Code || got.Header().Get("Content-Type") != want.Header().Get("Content-Type") {
				t.Errorf("%s %v: %d %s, upstream says %d %s", path, headers, got.Code, got.Header().Get("Content-Type"), want.Code, want.Header().Get("Content-Type"))
			}
			if diff := cmp.Diff(want.Body.String(), got.Body.String()); diff != "" {
				t.Errorf("%s %v (-upstream +ours):\n%s", path, headers, diff)
			}
			if want := got.Code == 200; (got.Header().Get("Etag") != "") != want {
				t.Errorf("%s %v: %d with tag %s", path, headers, got.Code, got.Header().Get("Etag"))
			}
		}
	}
}

func TestLegacyInCBOR(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.CBORServingAndStorage, true)
	s, snap := New(), snapshot.New(snapshot.Content{Local: serverOf(t, "a", "v1.37"), Ready: true})
	for _, path := range []string{"/apis", "/apis/apps", "/apis/apps/v1", "/api/v1"} {
		w := serve(t, s, snap, newRequest("GET", path, "Accept", "application/cbor"))
		var got, want map[string]any
		asJSON := serve(t, s, snap, newRequest("GET", path, "Accept", "application/json"))
		if err := json.Unmarshal(asJSON.Body.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), "application/cbor")
		obj, _, err := info.Serializer.Decode(w.Body.Bytes(), &schema.GroupVersionKind{Version: "v1"}, nil)
		if err != nil || w.Header().Get("Content-Type") != "application/cbor" {
			t.Errorf("%s is %s: %v", path, w.Header().Get("Content-Type"), err)
			continue
		}
		data, _ := json.Marshal(obj)
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-JSON +CBOR):\n%s", path, diff)
		}
	}
}

// TestEveryServerAnswersAlike asks each member of a cluster for each document,
// of aggregated and of legacy discovery, in each representation. One member has
// a version more than another, and in another order (case 23).
func TestEveryServerAnswersAlike(t *testing.T) {
	more := func(d *snapshot.Document, versions ...string) *snapshot.Document {
		group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: "g.k8s.io"}}
		for _, version := range versions {
			group.Versions = append(group.Versions, apidiscoveryv2.APIVersionDiscovery{Version: version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
		}
		d.Groups.ETag += fmt.Sprint(versions)
		d.Groups.Items = append(slices.Clone(d.Groups.Items), group)
		return d
	}
	members := []*snapshot.Document{
		more(serverOf(t, "a", "v1.36"), "v1beta1"),
		more(serverOf(t, "b", "v1.37"), "v1", "v1beta1"),
		more(serverOf(t, "c", "v1.36"), "v1alpha1", "v1beta1"),
	}
	var snaps []*snapshot.Snapshot
	var servers []*Server
	for i := range members {
		c := snapshot.Content{Local: members[i], Ready: true}
		for j := range members {
			if i != j {
				c.Peers = append(c.Peers, &snapshot.Peer{ServerID: members[j].ServerID, Document: members[j]})
			}
		}
		snaps, servers = append(snaps, snapshot.New(c)), append(servers, New())
	}
	accepts := map[string][]string{
		"/api":  {acceptJSON, acceptProtobuf},
		"/apis": {acceptJSON, acceptProtobuf, acceptYAML, "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"},
	}
	for _, path := range append(legacyPaths(snaps[0]), "/api") {
		formats := accepts[path]
		if formats == nil {
			formats = accepts["/apis"][3:]
		}
		for _, accept := range formats {
			for _, encoding := range []string{"", "gzip"} {
				r := newRequest("GET", path, "Accept", accept, "Accept-Encoding", encoding)
				want := serve(t, servers[0], snaps[0], r)
				for i := range servers[1:] {
					got := serve(t, servers[i+1], snaps[i+1], r)
					if diff := cmp.Diff(want.Header(), got.Header()); diff != "" || want.Body.String() != got.Body.String() {
						t.Errorf("%s as %s is another at %s:\n%s", path, accept, members[i+1].ServerID, diff)
					}
				}
			}
		}
	}
	group := serve(t, servers[0], snaps[0], newRequest("GET", "/apis/g.k8s.io", "Accept", "application/json")).Body.String()
	if want := `"preferredVersion":{"groupVersion":"g.k8s.io/v1","version":"v1"}`; !strings.Contains(group, want) {
		t.Errorf("the group is %s", group)
	}
}

func TestLegacyHeaders(t *testing.T) {
	s, snap := New(), snapshot.New(snapshot.Content{Local: serverOf(t, "a", "v1.37"), Ready: true})
	tags := map[string]string{}
	for _, path := range []string{"/apis", "/apis/apps", "/apis/apps/v1", "/api/v1"} {
		for _, accept := range []string{"application/json", "application/json;pretty=1", "application/yaml", "application/vnd.kubernetes.protobuf"} {
			for _, encoding := range []string{"", "gzip"} {
				headers := []string{"Accept", accept, "Accept-Encoding", encoding}
				w := httptest.NewRecorder()
				w.Header().Set("Cache-Control", "no-cache, private")
				handler(s, snap).ServeHTTP(w, newRequest("GET", path, headers...))
				etag := w.Header().Get("Etag")
				want := http.Header{
					"Cache-Control":  {"no-cache, private"},
					"Vary":           {"Accept, Accept-Encoding"},
					"Etag":           {etag},
					"Content-Type":   {strings.TrimSuffix(accept, ";pretty=1")},
					"Content-Length": {fmt.Sprint(w.Body.Len())},
				}
				plain := serve(t, s, snap, newRequest("GET", path, "Accept", accept)).Body.Len()
				if encoding == "gzip" && plain >= minCompressed {
					want.Set("Content-Encoding", "gzip")
				}
				if diff := cmp.Diff(want, w.Header()); diff != "" || w.Code != 200 {
					t.Errorf("%s as %s %s: %d (-want +got):\n%s", path, accept, encoding, w.Code, diff)
				}
				if key := fmt.Sprint(path, w.Body.String()); tags[etag] != "" && tags[etag] != key {
					t.Errorf("%s as %s %s has the tag of another body", path, accept, encoding)
				} else {
					tags[etag] = key
				}
				head := serve(t, s, snap, newRequest("HEAD", path, headers...))
				want.Del("Cache-Control")
				if diff := cmp.Diff(want, head.Header()); diff != "" || head.Body.Len() > 0 || head.Code != 200 {
					t.Errorf("HEAD %s as %s %s: %d, %d bytes (-want +got):\n%s", path, accept, encoding, head.Code, head.Body.Len(), diff)
				}
				same := serve(t, s, snap, newRequest("GET", path, append(headers, "If-None-Match", `"x", `+etag)...))
				if same.Code != 304 || same.Body.Len() > 0 || same.Header().Get("Etag") != etag || same.Header().Get("Vary") == "" {
					t.Errorf("%s as %s %s: %d for its own tag", path, accept, encoding, same.Code)
				}
			}
		}
	}
	jsonTag := serve(t, s, snap, newRequest("GET", "/api/v1", "Accept", "application/json")).Header().Get("Etag")
	if w := serve(t, s, snap, newRequest("GET", "/api/v1", "Accept", "application/yaml", "If-None-Match", jsonTag)); w.Code != 200 {
		t.Errorf("got %d for the tag of another representation", w.Code)
	}
}

func TestStandings(t *testing.T) {
	name := func(i int) string { return testGroup(i).Name }
	empty := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}
	local := groups{testGroup(0, "widgets"), testGroup(1, "widgets"), testGroup(2, "widgets"), empty}
	peer := groups{testGroup(3, "widgets")}
	gone := groups{testGroup(0, "gadgets"), testGroup(4, "widgets")}
	c := snapshot.Content{
		Local: &snapshot.Document{ServerID: "a", Groups: snapshot.List{ETag: "a", Items: local}},
		Peers: []*snapshot.Peer{
			{ServerID: "b", Document: &snapshot.Document{ServerID: "b", Groups: snapshot.List{ETag: "b", Items: peer}}},
			{ServerID: "c", State: snapshot.StateDeparted, Document: &snapshot.Document{ServerID: "c", Groups: snapshot.List{ETag: "c", Items: gone}}},
		},
		Excluded: excluding(versionOf(1).WithResource(""), versionOf(2).WithResource("widgets")),
	}
	sure := snapshot.New(c)
	c.Unsure = true
	unsure := snapshot.New(c)
	for _, test := range []struct {
		name                 string
		path                 string
		want, inDoubt, alone Standing
	}{
		{"groups", "/apis/", Listed, Listed, Listed},
		{"a group", "/apis/" + name(0), Listed, Listed, Listed},
		{"a group of a peer", "/apis/" + name(3), Listed, Listed, Missing},
		{"a group of one who is gone", "/apis/" + name(4), Listed, Listed, Missing},
		{"a group without versions", "/apis/empty", Missing, InDoubt, Missing},
		{"a group of no one", "/apis/new", Missing, InDoubt, Missing},
		{"a group that can't be built in", "/apis/new.example.com", Missing, Missing, Missing},
		{"a version", "/apis/" + name(0) + "/v1", Listed, Listed, Listed},
		{"a version of a peer", "/apis/" + name(3) + "/v1", Listed, Listed, Missing},
		{"a version of one who is gone", "/apis/" + name(4) + "/v1", Stale, Stale, Missing},
		{"a version of an aggregated API", "/apis/" + name(1) + "/v1", Backed, Backed, Listed},
		{"a version of a custom resource", "/apis/" + name(2) + "/v1", Listed, Listed, Listed},
		{"a version of no one", "/apis/new/v1", Missing, InDoubt, Missing},
		{"the core group, which no one has here", "/api/v1", Missing, InDoubt, Missing},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := New()
			request, _ := s.Parse(newRequest("GET", test.path))
			if got := s.Look(sure, request).Standing; got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			if got := s.Look(unsure, request).Standing; got != test.inDoubt {
				t.Errorf("in doubt: got %d, want %d", got, test.inDoubt)
			}
			if got := s.LookAlone(unsure, request).Standing; got != test.alone {
				t.Errorf("alone: got %d, want %d", got, test.alone)
			}
		})
	}
}

// TestAloneIsWhatTheServerItselfLists serves the own groups beside the merged
// ones.
func TestAloneIsWhatTheServerItselfLists(t *testing.T) {
	s, snap := New(), snapshotOf(groups{testGroup(0, "widgets")}, groups{testGroup(0, "widgets"), testGroup(1, "gizmos")})
	names := map[string]string{}
	for range 2 {
		r := newRequest("GET", "/apis", "Accept", "application/json;profile=nopeer")
		request, _ := s.Parse(r)
		w := httptest.NewRecorder()
		s.Serve(w, r, request, s.LookAlone(snap, request))
		names["alone"] = w.Body.String()
		names["all"] = serve(t, s, snap, newRequest("GET", "/apis", "Accept", "application/json")).Body.String()
	}
	for _, kind := range slices.Sorted(maps.Keys(names)) {
		if got := strings.Contains(names[kind], testGroup(1).Name); got != (kind == "all") || !strings.Contains(names[kind], testGroup(0).Name) {
			t.Errorf("%s: %s", kind, names[kind])
		}
	}
}
