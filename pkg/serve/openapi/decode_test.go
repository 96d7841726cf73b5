package openapi

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestCheckShape(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"nothing":                    {``, nil},
		"brackets in strings":        {`{"a":"` + strings.Repeat("{[", maxDepth) + `\"` + strings.Repeat("{[", maxDepth) + `"}`, nil},
		"as deep as may be":          {strings.Repeat("[", maxDepth), nil},
		"deeper":                     {strings.Repeat("[", maxDepth+1), errTooDeep},
		"as many objects as may be":  {strings.Repeat("{}", maxObjects), nil},
		"more":                       {strings.Repeat("{}", maxObjects+1), errTooMany},
		"more brackets than objects": {strings.Repeat("]", maxDepth) + "{", nil},
	} {
		if got := checkShape([]byte(test.text)); !errors.Is(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestHashIn(t *testing.T) {
	for _, test := range []struct {
		name, at, want string
		ok             bool
	}{
		{"apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=1F", "1F", true},
		{".well-known/openid-configuration", "/openapi/v3/.well-known/openid-configuration?hash=1F", "1F", true},
		{"apis/apps/v1", "/openapi/v3/apis/apps/v1", "", false},
		{"apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=", "", false},
		{"apis/apps/v1", "/openapi/v3/apis/apps/v2?hash=1", "1", false},
		{"apis/apps/v1", "https://elsewhere/openapi/v3/apis/apps/v1?hash=1", "1", false},
		{"apis/apps/v1", "//elsewhere/openapi/v3/apis/apps/v1?hash=1", "1", false},
		{"apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=" + strings.Repeat("1", maxHash+1), "", false},
		{"../v2", "/openapi/v3/../v2?hash=1", "1", false},
		{"a//b", "/openapi/v3/a//b?hash=1", "1", false},
		{"", "/openapi/v3/?hash=1", "1", false},
		{"a", ":", "", false},
	} {
		got, ok := hashIn(test.name, test.at)
		if ok != test.ok || ok && got != test.want {
			t.Errorf("%s at %s: got %q, %t", test.name, test.at, got, ok)
		}
	}
}

func TestLocate(t *testing.T) {
	for path, want := range map[string]string{
		"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale": "apps v1 deployments",
		"/apis/apps/v1/watch/namespaces/{namespace}/deployments":        "apps v1 deployments",
		"/apis/apps/v1/deployments":                                     "apps v1 deployments",
		"/apis/apps/v1/":                                                "apps v1 ",
		"apis/apps/v1":                                                  "apps v1 ",
		"/apis/apps/":                                                   "apps  ",
		"/api/v1/namespaces/{name}/status":                              " v1 namespaces",
		"/api/v1/namespaces/{namespace}/pods":                           " v1 pods",
		"/api/v1/namespaces":                                            " v1 namespaces",
		"/api/v1/watch/namespaces/{name}":                               " v1 namespaces",
		"api/v1":                                                        " v1 ",
		"/apis/":                                                        "none",
		"api":                                                           "none",
		"/version/":                                                     "none",
		"":                                                              "none",
	} {
		at := locate(path)
		got := "none"
		if at.group != nil {
			got = *at.group + " " + at.version + " " + at.resource
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestListing(t *testing.T) {
	builtin, mixed := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "mixed", Version: "v1"}
	hidden := schema.GroupVersion{Group: "crd.io", Version: "v1"}
	peer := listing{
		groups: sets.New("", "mixed"),
		own:    map[schema.GroupVersion]sets.Set[string]{builtin: sets.New("pods"), mixed: sets.New("things")},
		whole:  map[schema.GroupVersion]sets.Set[string]{builtin: sets.New("pods"), mixed: sets.New("things", "mine"), hidden: sets.New("mine")},
	}
	for path, want := range map[string]bool{
		"/api/v1/namespaces/{namespace}/pods":              true,
		"/api/v1/unlisted":                                 true,
		"/api/v2/":                                         false,
		"/apis/mixed/":                                     true,
		"/apis/mixed/v1/things":                            true,
		"/apis/mixed/v1/namespaces/{namespace}/mine":       false,
		"/apis/mixed/v1/watch/namespaces/{namespace}/mine": false,
		"/apis/crd.io/":                                    false,
		"/apis/crd.io/v1/mine":                             false,
		"/apis/crd.io/v2/young":                            false,
		"/version/":                                        true,
		"/apis/":                                           true,
	} {
		if got := peer.takes(path); got != want {
			t.Errorf("takes %s: got %t", path, got)
		}
	}
	own := peer
	own.excluded = func(gvr schema.GroupVersionResource) bool {
		return gvr.Resource == "mine" || gvr.Group == "aggregated.io"
	}
	for path, want := range map[string]bool{
		"/api/v1/namespaces/{namespace}/pods": false,
		"/apis/mixed/v1/things":               false,
		"/apis/mixed/v1/mine/{name}":          true,
		"/apis/mixed/v1/":                     false,
		"/apis/mixed/":                        false,
		"/apis/aggregated.io/v1/":             true,
		"/apis/aggregated.io/v1/metrics":      true,
		"/version/":                           false,
	} {
		if got := own.excludes(path); got != want {
			t.Errorf("excludes %s: got %t", path, got)
		}
	}
	for name, want := range map[string]string{"api/v1": "", "apis/mixed/v1": "mine", "apis/mixed": "", "version": ""} {
		if got := peer.apart(name); got != want {
			t.Errorf("apart in %s: a peer says %q", name, got)
		}
		if got := own.apart(name); got != want {
			t.Errorf("apart in %s: this server says %q", name, got)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=1"}}}`))
	f.Add([]byte(`{"paths":{"..":{"serverRelativeURL":"/openapi/v3/..?hash=1"},"":null}}`))
	f.Add([]byte(`{"paths":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		index, err := newPeerIndex(text)
		if err != nil {
			return
		}
		for name, hash := range index.hashes {
			at := urlOf(name, hash)
			if again, ok := hashIn(name, at.String()); !ok || again != hash {
				t.Errorf("%q at %q: got %q, %t", name, at.String(), again, ok)
			}
		}
	})
}

func FuzzShape(f *testing.F) {
	f.Add([]byte(`{"a":["\"{",{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if checkShape(text) != nil {
			return
		}
		for _, key := range []documentKey{{}, {"apis/apps/v1", "1"}} {
			_ = check(key, &answer{body: text})
		}
	})
}
