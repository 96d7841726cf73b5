package document

import (
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
	for _, test := range []struct {
		name, method, target, accept string
		want                         string
	}{
		{"JSON at /apis", "GET", "/apis", acceptJSON, "/apis"},
		{"JSON at /api", "GET", "/api", acceptJSON, "/api"},
		{"HEAD", "HEAD", "/apis", acceptJSON, "/apis"},
		{"query", "GET", "/apis?timeout=32s", acceptJSON, "/apis"},
		{"protobuf", "GET", "/apis", acceptProtobuf, "/apis"},
		{"any media type", "GET", "/apis", "*/*;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "/apis"},
		{"client-go's header", "GET", "/apis", acceptJSON + "," + acceptBeta + ",application/json", "/apis"},
		{"an unknown profile", "GET", "/apis", acceptJSON + ";profile=other", "/apis"},
		{"nopeer", "GET", "/apis", acceptJSON + ";profile=nopeer", "/apis alone"},
		{"nopeer preferred", "GET", "/apis", acceptJSON + ";profile=nopeer," + acceptJSON, "/apis alone"},
		{"nopeer less preferred", "GET", "/apis", acceptJSON + ";profile=nopeer;q=0.5," + acceptJSON, "/apis"},
		{"v2beta1", "GET", "/apis", acceptBeta, ""},
		{"another group", "GET", "/apis", "application/json;g=other;v=v2;as=APIGroupDiscoveryList", ""},
		{"legacy", "GET", "/apis", "application/json", ""},
		{"no Accept", "GET", "/apis", "", ""},
		{"CBOR without the feature", "GET", "/apis", acceptCBOR, ""},
		{"POST", "POST", "/apis", acceptJSON, ""},
		{"trailing slash at /apis: legacy in kube-apiserver", "GET", "/apis/", acceptJSON, ""},
		{"trailing slash at /api", "GET", "/api/", acceptJSON, "/api"},
		{"a group", "GET", "/apis/apps", acceptJSON, ""},
		{"a version", "GET", "/api/v1", acceptJSON, ""},
		{"elsewhere", "GET", "/", acceptJSON, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRequest(test.method, test.target, "Accept", test.accept)
			got := ""
			if request, ok := New().Parse(r); ok {
				got = request.Path.String()
				if request.Alone {
					got += " alone"
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
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
		got := "legacy"
		if request, ok := server.Parse(r); ok && request.Alone {
			got = "local"
		} else if ok {
			got = "merged"
		}
		if got != chosen {
			t.Errorf("%q is %s, upstream chooses %s", accept, got, chosen)
		}
	})
}
