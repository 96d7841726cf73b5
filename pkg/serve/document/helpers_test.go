package document

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"peerproxy.internal/pkg/snapshot"
)

const (
	acceptJSON     = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	acceptYAML     = "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	acceptProtobuf = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	acceptCBOR     = "application/cbor;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	acceptBeta     = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)

type groups = []apidiscoveryv2.APIGroupDiscovery

// testGroup returns a group that sorts by its number, with the resources in v1.
func testGroup(i int, resources ...string) apidiscoveryv2.APIGroupDiscovery {
	v := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, name := range resources {
		v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource:         name,
			ResponseKind:     &metav1.GroupVersionKind{Group: fmt.Sprintf("group%03d.example.com", i), Version: "v1", Kind: "Kind" + name},
			Scope:            apidiscoveryv2.ScopeNamespace,
			SingularResource: "one" + name,
			Verbs:            []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
			ShortNames:       []string{"<" + name[:1] + ">"},
			Subresources: []apidiscoveryv2.APISubresourceDiscovery{{
				Subresource:  "status",
				ResponseKind: &metav1.GroupVersionKind{Group: fmt.Sprintf("group%03d.example.com", i), Version: "v1", Kind: "Kind" + name},
				Verbs:        []string{"get", "patch", "update"},
			}},
		})
	}
	return apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("group%03d.example.com", i)},
		Versions:   []apidiscoveryv2.APIVersionDiscovery{v},
	}
}

func manyGroups(n int) groups {
	var list groups
	for i := range n {
		list = append(list, testGroup(i, "widgets", "gadgets"))
	}
	return list
}

// snapshotOf makes a snapshot of servers named a, b, c and so on, of which a is
// this one.
func snapshotOf(lists ...groups) *snapshot.Snapshot {
	var content snapshot.Content
	for i, list := range lists {
		id := string(rune('a' + i))
		doc := &snapshot.Document{
			ServerID: id,
			Core:     snapshot.List{ETag: fmt.Sprintf("core %s %d", id, len(list)), Items: list},
			Groups:   snapshot.List{ETag: fmt.Sprintf("groups %s %d", id, len(list)), Items: list},
		}
		if i == 0 {
			content.Local = doc
			continue
		}
		content.Peers = append(content.Peers, &snapshot.Peer{ServerID: id, Document: doc})
	}
	content.Ready = true
	return snapshot.New(content)
}

type peers map[string]groups

func (p peers) GetPeerResources() map[string][]apidiscoveryv2.APIGroupDiscovery { return p }

// upstream returns Kubernetes' own handler, as server a, over the same lists.
func upstream(lists ...groups) http.Handler {
	local := aggregated.NewResourceManager("apis")
	for _, g := range lists[0] {
		for _, v := range g.Versions {
			local.AddGroupVersion(g.Name, v)
		}
	}
	others := peers{}
	for i, list := range lists[1:] {
		others[string(rune('b'+i))] = list
	}
	return aggregated.NewPeerAggregatedDiscoveryHandler("a", local, others, "apis")
}

// newRequest returns a request with headers, given as name and value in turns.
func newRequest(method, target string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// serve answers a request that must ask for a merged document.
func serve(t testing.TB, s *Server, snap *snapshot.Snapshot, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	request, ok := s.Parse(r)
	if !ok {
		t.Fatalf("%s %s is not understood as a request for a merged document", r.Method, r.URL)
	}
	answer := s.Look(snap, request)
	if answer.Standing != Listed {
		t.Fatalf("%s is not listed but of standing %d", r.URL, answer.Standing)
	}
	s.Serve(w, r, request, answer)
	return w
}

// handler serves what a snapshot has of the documents that are listed.
func handler(s *Server, snap *snapshot.Snapshot) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, _ := s.Parse(r)
		s.Serve(w, r, request, s.Look(snap, request))
	})
}

// excluding returns exclusions of the resources, and of whole group-versions
// where they name none.
func excluding(owned ...schema.GroupVersionResource) *snapshot.Exclusions {
	e := &snapshot.Exclusions{Resources: map[schema.GroupVersionResource]time.Time{}, GroupVersions: map[schema.GroupVersion]time.Time{}}
	for _, gvr := range owned {
		if gvr.Resource == "" {
			e.GroupVersions[gvr.GroupVersion()] = time.Time{}
		} else {
			e.Resources[gvr] = time.Time{}
		}
	}
	return e
}

func versionOf(i int) schema.GroupVersion {
	return schema.GroupVersion{Group: testGroup(i).Name, Version: "v1"}
}
