package document

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/snapshot"
)

var update = flag.Bool("update", false, "write the golden files anew")

// twoServers has a group that both know, and one that only the peer has.
func twoServers() *snapshot.Snapshot {
	return snapshotOf(groups{testGroup(0, "widgets")}, groups{testGroup(0, "widgets", "gadgets"), testGroup(1, "gizmos")})
}

func TestGolden(t *testing.T) {
	got := serve(t, New(), twoServers(), newRequest("GET", "/apis", "Accept", acceptJSON)).Body.Bytes()
	golden := filepath.Join("testdata", "apis.json")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got), -update writes it anew:\n%s", diff)
	}
}

func TestEveryFormatDecodesToTheMergedList(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.CBORServingAndStorage, true)
	s, snap := New(), twoServers()
	want := &apidiscoveryv2.APIGroupDiscoveryList{Items: merge.Discovery(snap.View(snapshot.PathAPIs).Sources)}
	for _, accept := range []string{acceptJSON, acceptYAML, acceptProtobuf, acceptCBOR} {
		w := serve(t, s, snap, newRequest("GET", "/apis", "Accept", accept))
		if got := w.Header().Get("Content-Type"); got != accept {
			t.Errorf("content type is %q, want %q", got, accept)
		}
		got, gvk, err := s.codecs.UniversalDeserializer().Decode(w.Body.Bytes(), nil, nil)
		if err != nil {
			t.Errorf("%s: %v", accept, err)
			continue
		}
		if gvk.GroupVersion() != groupVersion || gvk.Kind != "APIGroupDiscoveryList" {
			t.Errorf("%s is a %v", accept, gvk)
		}
		got.(*apidiscoveryv2.APIGroupDiscoveryList).TypeMeta = metav1.TypeMeta{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", accept, diff)
		}
	}
}

func TestEachPathHasItsOwnDocument(t *testing.T) {
	content := snapshot.Content{Local: &snapshot.Document{
		ServerID: "a",
		Core:     snapshot.List{ETag: "1", Items: groups{{Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1"}}}}},
		Groups:   snapshot.List{ETag: "2", Items: groups{testGroup(0, "widgets")}},
	}}
	s, snap := New(), snapshot.New(content)
	for target, want := range map[string]string{"/api": `[{"metadata":{},"versions":[{"version":"v1"}]}]`, "/apis": "widgets"} {
		if got := serve(t, s, snap, newRequest("GET", target, "Accept", acceptJSON)).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s is %s", target, got)
		}
	}
}

func TestHeadersOfTheChainAreReplaced(t *testing.T) {
	s, snap := New(), snapshotOf(manyGroups(30))
	etag := serve(t, s, snap, newRequest("GET", "/apis", "Accept", acceptJSON)).Header().Get("Etag")
	for _, ifNoneMatch := range []string{"", etag} {
		r := newRequest("GET", "/apis", "Accept", acceptJSON, "If-None-Match", ifNoneMatch)
		w := httptest.NewRecorder()
		w.Header().Set("Cache-Control", "no-cache, private")
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Audit-Id", "1")
		handler(s, snap).ServeHTTP(w, r)
		want := http.Header{
			"Audit-Id":       {"1"},
			"Cache-Control":  {"public"},
			"Vary":           {"Accept, Accept-Encoding"},
			"Etag":           {etag},
			"Content-Type":   {acceptJSON},
			"Content-Length": {strconv.Itoa(w.Body.Len())},
		}
		if ifNoneMatch != "" {
			want.Set("Content-Type", "text/plain")
			want.Del("Content-Length")
		}
		if diff := cmp.Diff(want, w.Header()); diff != "" {
			t.Errorf("If-None-Match %q (-want +got):\n%s", ifNoneMatch, diff)
		}
	}
}

func TestNotModified(t *testing.T) {
	s, snap := New(), twoServers()
	etag := serve(t, s, snap, newRequest("GET", "/apis", "Accept", acceptJSON)).Header().Get("Etag")
	for _, test := range []struct {
		method, accept, ifNoneMatch string
		want                        int
	}{
		{"GET", acceptJSON, etag, 304},
		{"HEAD", acceptJSON, etag, 304},
		{"GET", acceptProtobuf, etag, 304},
		{"GET", acceptJSON, `"old", W/` + etag, 304},
		{"GET", acceptJSON, "*", 304},
		{"GET", acceptJSON, `"old"`, 200},
	} {
		w := serve(t, s, snap, newRequest(test.method, "/apis", "Accept", test.accept, "If-None-Match", test.ifNoneMatch))
		if w.Code != test.want {
			t.Errorf("%s with If-None-Match %s: got %d, want %d", test.method, test.ifNoneMatch, w.Code, test.want)
		}
		if w.Code == 304 && (w.Body.Len() > 0 || w.Header().Get("Etag") != etag) {
			t.Errorf("a 304 with %d bytes and tag %s", w.Body.Len(), w.Header().Get("Etag"))
		}
	}
	if w := serve(t, s, snapshotOf(manyGroups(1)), newRequest("GET", "/apis", "Accept", acceptJSON, "If-None-Match", etag)); w.Code != 200 {
		t.Errorf("got %d for the tag of an older content", w.Code)
	}
}

// When the last peer has left, the document is the one that a server without
// peers has, upstream's too, and a client that holds the old one gets it.
func TestWithoutItsPeersAServerServesItsOwnDocuments(t *testing.T) {
	s, own := New(), groups{testGroup(0, "widgets")}
	alone := snapshotOf(own)
	for target, accept := range map[string]string{
		"/apis":                              acceptJSON,
		"/api":                               acceptJSON,
		"/apis/" + testGroup(0).Name + "/v1": "application/json",
	} {
		together := serve(t, s, twoServers(), newRequest("GET", target, "Accept", accept))
		etag := together.Header().Get("Etag")
		got := serve(t, s, alone, newRequest("GET", target, "Accept", accept, "If-None-Match", etag))
		if got.Code != http.StatusOK || got.Header().Get("Etag") == etag || got.Header().Get("Etag") == "" {
			t.Errorf("%s: got %d with the tag %s, of both servers it was %s", target, got.Code, got.Header().Get("Etag"), etag)
		}
		want := serve(t, New(), alone, newRequest("GET", target, "Accept", accept))
		if diff := cmp.Diff(want.Result().Header, got.Result().Header); diff != "" || got.Body.String() != want.Body.String() || strings.Contains(got.Body.String(), "gadgets") {
			t.Errorf("%s: got %s\n%s", target, got.Body, diff)
		}
		if accept != acceptJSON {
			continue
		}
		stock := httptest.NewRecorder()
		upstream(own).ServeHTTP(stock, newRequest("GET", "/apis", "Accept", accept))
		if got.Body.String() != stock.Body.String() || got.Header().Get("Etag") != stock.Header().Get("Etag") {
			t.Errorf("%s: got %s, stock has %s", target, got.Body, stock.Body)
		}
	}
}

func TestGzip(t *testing.T) {
	s, snap := New(), snapshotOf(manyGroups(30))
	for _, accept := range []string{acceptJSON, acceptProtobuf} {
		plain := serve(t, s, snap, newRequest("GET", "/apis", "Accept", accept))
		if plain.Header().Get("Content-Encoding") != "" {
			t.Error("compressed without being asked")
		}
		packed := serve(t, s, snap, newRequest("GET", "/apis", "Accept", accept, "Accept-Encoding", "gzip"))
		if packed.Header().Get("Content-Encoding") != "gzip" || packed.Header().Get("Etag") != plain.Header().Get("Etag") {
			t.Errorf("headers are %v", packed.Header())
		}
		if got := packed.Header().Get("Content-Length"); got != strconv.Itoa(packed.Body.Len()) || packed.Body.Len() >= plain.Body.Len() {
			t.Errorf("length is %s for %d bytes of %d", got, packed.Body.Len(), plain.Body.Len())
		}
		r, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, plain.Body.Bytes()) {
			t.Errorf("%d bytes decompress to others: %v", len(got), err)
		}
	}
}

func TestNoGzipForSmallBodiesOrWithoutTheFeature(t *testing.T) {
	gzipped := newRequest("GET", "/apis", "Accept", acceptJSON, "Accept-Encoding", "gzip")
	if w := serve(t, New(), snapshotOf(groups{testGroup(0, "widgets")}), gzipped); w.Header().Get("Content-Encoding") != "" {
		t.Errorf("%d bytes were compressed", w.Body.Len())
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.APIResponseCompression, false)
	if w := serve(t, New(), snapshotOf(manyGroups(30)), gzipped); w.Header().Get("Content-Encoding") != "" {
		t.Error("compressed although the feature is off")
	}
}

func TestHead(t *testing.T) {
	s, snap := New(), snapshotOf(manyGroups(30))
	server := httptest.NewServer(handler(s, snap))
	defer server.Close()
	if w := serve(t, s, snap, newRequest("HEAD", "/apis", "Accept", acceptJSON)); w.Body.Len() > 0 {
		t.Errorf("%d bytes are written", w.Body.Len())
	}
	headers := map[string]http.Header{}
	for _, method := range []string{"GET", "HEAD"} {
		r := newRequest(method, server.URL+"/apis", "Accept", acceptJSON, "Accept-Encoding", "gzip")
		r.RequestURI = ""
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(response.Body)
		if err != nil || (len(data) == 0) != (method == "HEAD") || response.StatusCode != 200 {
			t.Errorf("%s: %d with %d bytes: %v", method, response.StatusCode, len(data), err)
		}
		response.Body.Close()
		response.Header.Del("Date")
		headers[method] = response.Header
	}
	if diff := cmp.Diff(headers["GET"], headers["HEAD"]); diff != "" {
		t.Errorf("headers (-GET +HEAD):\n%s", diff)
	}
}

// brokenEncoder fails.
type brokenEncoder struct{ runtime.Encoder }

func (brokenEncoder) Encode(runtime.Object, io.Writer) error {
	return errors.New("secret 10.0.0.1")
}

func TestErrorsAreStatusesWithoutTheCause(t *testing.T) {
	s := New()
	r := newRequest("GET", "/apis", "Accept", acceptJSON, "Accept-Encoding", "gzip")
	request, _ := s.Parse(r)
	s.formats[request.format].encoder = brokenEncoder{}
	w := serve(t, s, twoServers(), r)
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		t.Fatal(err)
	}
	if w.Code != 500 || status.Reason != metav1.StatusReasonInternalError || strings.Contains(w.Body.String(), "10.0.0.1") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w.Header().Get("Etag") != "" || w.Header().Get("Cache-Control") != "" {
		t.Errorf("an error that may be cached: %v", w.Header())
	}
}
