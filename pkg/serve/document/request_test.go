package document

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func TestParse(t *testing.T) {
	const nopeer = "application/json;profile=nopeer"
	for _, test := range []struct {
		name, method, target, accept string
		want                         string
	}{
		{"JSON at /apis", "GET", "/apis", acceptJSON, "APIGroupDiscoveryList of /apis"},
		{"JSON at /api", "GET", "/api", acceptJSON, "APIGroupDiscoveryList of /api"},
		{"HEAD", "HEAD", "/apis", acceptJSON, "APIGroupDiscoveryList of /apis"},
		{"query", "GET", "/apis?timeout=32s", acceptJSON, "APIGroupDiscoveryList of /apis"},
		{"protobuf", "GET", "/apis", acceptProtobuf, "APIGroupDiscoveryList of /apis"},
		{"any media type", "GET", "/apis", "*/*;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "APIGroupDiscoveryList of /apis"},
		{"client-go's header", "GET", "/apis", acceptJSON + "," + acceptBeta + ",application/json", "APIGroupDiscoveryList of /apis"},
		{"an unknown profile", "GET", "/apis", acceptJSON + ";profile=other", "APIGroupDiscoveryList of /apis"},
		{"nopeer", "GET", "/apis", acceptJSON + ";profile=nopeer", "APIGroupDiscoveryList of /apis alone"},
		{"nopeer preferred", "GET", "/apis", acceptJSON + ";profile=nopeer," + acceptJSON, "APIGroupDiscoveryList of /apis alone"},
		{"nopeer less preferred", "GET", "/apis", acceptJSON + ";profile=nopeer;q=0.5," + acceptJSON, "APIGroupDiscoveryList of /apis"},
		{"aggregated discovery preferred to legacy", "GET", "/apis", "application/json;q=0.9," + acceptJSON + ";q=0.8", "APIGroupDiscoveryList of /apis"},
		{"trailing slash at /api", "GET", "/api/", acceptJSON, "APIGroupDiscoveryList of /api"},

		{"v2beta1 alone", "GET", "/apis", acceptBeta, "APIGroupList of /apis unacceptable"},
		{"v2beta1 and legacy", "GET", "/apis", acceptBeta + ",application/json", "APIGroupList of /apis"},
		{"another group", "GET", "/apis", "application/json;g=other;v=v2;as=APIGroupDiscoveryList", "APIGroupList of /apis unacceptable"},
		{"CBOR without the feature", "GET", "/apis", acceptCBOR, "APIGroupList of /apis unacceptable"},
		{"legacy", "GET", "/apis", "application/json", "APIGroupList of /apis"},
		{"no Accept", "GET", "/apis", "", "APIGroupList of /apis"},
		{"legacy for a browser", "GET", "/apis", "text/html,*/*;q=0.1", "APIGroupList of /apis"},
		{"legacy nopeer", "GET", "/apis", nopeer, "APIGroupList of /apis alone"},
		{"trailing slash at /apis: legacy alone", "GET", "/apis/", acceptJSON + ",application/json", "APIGroupList of /apis"},
		{"two slashes at /apis", "GET", "/apis//", "", ""},
		{"legacy at /api: the server's address", "GET", "/api", "application/json", ""},
		{"the same with a slash", "GET", "/api/", "", ""},

		{"a group", "GET", "/apis/apps", "", "APIGroup of /apis apps/"},
		{"a group with slashes", "GET", "/apis/apps//", "", "APIGroup of /apis apps/"},
		{"a group, escaped", "GET", "/apis/%61pps", "", "APIGroup of /apis apps/"},
		{"a group nopeer", "HEAD", "/apis/apps", nopeer, "APIGroup of /apis apps/ alone"},
		{"a group, aggregated", "GET", "/apis/apps", acceptJSON, "APIGroup of /apis apps/ unacceptable"},
		{"a version", "GET", "/apis/apps/v1", "", "APIResourceList of /apis apps/v1"},
		{"a version with slashes", "GET", "/apis/apps/v1//", "", "APIResourceList of /apis apps/v1"},
		{"a version with slashes within", "GET", "/apis/apps//v1", "", ""},
		{"a version nopeer", "GET", "/apis/apps/v1", nopeer, "APIResourceList of /apis apps/v1 alone"},
		{"the core group", "GET", "/api/v1", "", "APIResourceList of /api v1"},
		{"the core group with slashes", "GET", "/api/v1//", "", "APIResourceList of /api v1"},
		{"an unknown media type", "GET", "/api/v1", "text/html", "APIResourceList of /api v1 unacceptable"},

		{"POST", "POST", "/apis", acceptJSON, ""},
		{"OPTIONS", "OPTIONS", "/apis/apps", "", ""},
		{"below a version", "GET", "/apis/apps/v1/deployments", "", ""},
		{"below the core group", "GET", "/api/v1/pods", "", ""},
		{"a double slash before", "GET", "http://host//apis", "", ""},
		{"another path with the same start", "GET", "/apis.txt", "", ""},
		{"elsewhere", "GET", "/", acceptJSON, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRequest(test.method, test.target)
			if test.accept != "" {
				r.Header.Set("Accept", test.accept)
			}
			got := ""
			if request, ok := New().Parse(r); ok {
				got = describe(request)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func describe(request Request) string {
	words := fmt.Sprintf("%s of %s", request.Kind, request.Path)
	switch gv := request.GroupVersion; {
	case request.Kind == Group:
		words += " " + gv.Group + "/"
	case request.Kind == Resources:
		words += " " + gv.String()
	}
	if request.Alone {
		words += " alone"
	}
	if request.format < 0 {
		words += " unacceptable"
	}
	return words
}

// TestParseLeavesTheBetaToTheLocalChain emulates a release that still has it.
func TestParseLeavesTheBetaToTheLocalChain(t *testing.T) {
	featuregatetesting.SetFeatureGateEmulationVersionDuringTest(t, utilfeature.DefaultFeatureGate, version.MustParse("1.34"))
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.AggregatedDiscoveryRemoveBetaType, false)
	for accept, want := range map[string]bool{acceptBeta: false, acceptBeta + "," + acceptJSON: false, acceptJSON + "," + acceptBeta: true} {
		if _, ok := New().Parse(newRequest("GET", "/apis", "Accept", accept)); ok != want {
			t.Errorf("%q: got %v", accept, ok)
		}
	}
}

// FuzzParse wants Parse to tell the same of an Accept header as upstream's
// choice between its handlers.
func FuzzParse(f *testing.F) {
	for _, accept := range []string{
		"", "*/*", "application/json", acceptJSON, acceptYAML, acceptProtobuf, acceptBeta, acceptCBOR,
		acceptBeta + "," + acceptJSON,
		"application/json;q=0.9," + acceptJSON + ";q=0.8",
		acceptJSON + ";profile=nopeer;q=0.5, " + acceptProtobuf + ";q=0.6",
		acceptJSON + ";stream=watch", acceptJSON + ";sv=v1", acceptJSON + ";pretty=1;odd=1",
		"application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
		"application/*;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", "text/html,,;;q", `a/b;c="d,e"`,
	} {
		f.Add(accept)
	}
	var chosen string
	choose := func(name string) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { chosen = name })
	}
	wrapper := aggregated.WrapAggregatedDiscoveryToHandler(choose("legacy"), choose("local"), choose("merged"))
	server := New()
	f.Fuzz(func(t *testing.T, accept string) {
		r := newRequest("GET", "/apis", "Accept", accept)
		wrapper.ServeHTTP(httptest.NewRecorder(), r)
		request, ok := server.Parse(r)
		got := "legacy"
		switch {
		case !ok:
			t.Fatalf("%q is not understood", accept)
		case request.Kind == Aggregated && request.Alone:
			got = "local"
		case request.Kind == Aggregated:
			got = "merged"
		}
		if got != chosen {
			t.Errorf("%q is %s, upstream chooses %s", accept, got, chosen)
		}
	})
}
