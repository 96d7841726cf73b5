package openapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/test/peertest"
)

// stock is a server as Kubernetes has it: OpenAPI of some resources, made by
// Kubernetes' own handlers, and the discovery that belongs to it.
type stock struct {
	id        string
	resources []string
	v3        *handler3.OpenAPIService
	v2        *handler.OpenAPIService
	mux       *http.ServeMux

	mu    sync.Mutex
	asked []string // the requests, as METHOD /path
	// trouble answers in place of the handlers, nil for none.
	trouble func(*http.Request) (*http.Response, error)
}

var testInfo = &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: "1.37"}}

// newStock returns a server with resources given as "apps/v1 deployments
// description"; those of the core group begin with v1. The description stands
// for the version of the schema.
func newStock(id string, resources ...string) *stock {
	s := &stock{id: id, mux: http.NewServeMux()}
	s.serve(resources...)
	return s
}

// serve makes the server one of these resources.
func (s *stock) serve(resources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources = resources
	s.v3 = handler3.NewOpenAPIService()
	whole := &spec.Swagger{SwaggerProps: spec.SwaggerProps{Swagger: "2.0", Info: testInfo, Paths: &spec.Paths{Paths: map[string]spec.PathItem{}}, Definitions: spec.Definitions{}}}
	byName := map[string]*spec3.OpenAPI{"version": {Version: "3.0.0", Info: testInfo, Paths: &spec3.Paths{}}}
	for _, line := range resources {
		words := strings.Fields(line)
		name := "apis/" + words[0]
		if !strings.Contains(words[0], "/") {
			name = "api/" + words[0]
		}
		if byName[name] == nil {
			byName[name] = &spec3.OpenAPI{Version: "3.0.0", Info: testInfo, Paths: &spec3.Paths{Paths: map[string]*spec3.Path{}}, Components: &spec3.Components{Schemas: map[string]*spec.Schema{}}}
		}
		path, kind := "/"+name+"/"+words[1], strings.ReplaceAll(words[0], "/", ".")+"."+words[1]
		described := spec.Schema{SchemaProps: spec.SchemaProps{Description: strings.Join(words[2:], " ") + strings.Repeat(" long", 300)}}
		addV3(byName[name], path, kind, described)
		addV2(whole, path, kind, described)
	}
	for name, document := range byName {
		s.v3.UpdateGroupVersion(name, document)
	}
	s.v2 = handler.NewOpenAPIService(whole)
	mux := http.NewServeMux()
	s.v2.RegisterOpenAPIVersionedService(pathV2, paths{mux})
	if err := s.v3.RegisterOpenAPIV3VersionedService(pathV3, paths{mux}); err != nil {
		panic(err)
	}
	s.mux = mux
}

func addV3(document *spec3.OpenAPI, path, kind string, described spec.Schema) {
	schema := spec.RefSchema("#/components/schemas/" + kind)
	document.Paths.Paths[path] = &spec3.Path{PathProps: spec3.PathProps{Get: &spec3.Operation{OperationProps: spec3.OperationProps{
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
			200: {ResponseProps: spec3.ResponseProps{Description: "OK", Content: map[string]*spec3.MediaType{"application/json": {MediaTypeProps: spec3.MediaTypeProps{Schema: schema}}}}},
		}}},
	}}}}
	document.Components.Schemas[kind] = &described
}

func addV2(document *spec.Swagger, path, kind string, described spec.Schema) {
	operation := &spec.Operation{OperationProps: spec.OperationProps{Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{
		StatusCodeResponses: map[int]spec.Response{200: {ResponseProps: spec.ResponseProps{Description: "OK", Schema: spec.RefSchema("#/definitions/" + kind)}}},
	}}}}
	document.Paths.Paths[path] = spec.PathItem{PathItemProps: spec.PathItemProps{Get: operation}}
	document.Definitions[kind] = described
}

// paths registers handlers as kube-openapi wants it.
type paths struct{ *http.ServeMux }

func (p paths) HandlePrefix(path string, handler http.Handler) { p.Handle(path, handler) }

// document is the server's discovery.
func (s *stock) document(incarnation string) *snapshot.Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &snapshot.Document{ServerID: s.id, Incarnation: incarnation}
	for _, line := range slices.Sorted(slices.Values(s.resources)) {
		words := strings.Fields(line)
		group, version, named := strings.Cut(words[0], "/")
		list := &d.Groups
		if !named {
			group, version, list = "", words[0], &d.Core
		}
		list.ETag += strings.Join(words[:2], " ")
		addTo(list, group, version, words[1])
	}
	return d
}

func addTo(list *snapshot.List, group, version, resource string) {
	i := slices.IndexFunc(list.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == group })
	if i < 0 {
		i = len(list.Items)
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group}})
	}
	versions := &list.Items[i].Versions
	j := slices.IndexFunc(*versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == version })
	if j < 0 {
		j = len(*versions)
		*versions = append(*versions, apidiscoveryv2.APIVersionDiscovery{Version: version})
	}
	(*versions)[j].Resources = append((*versions)[j].Resources, apidiscoveryv2.APIResourceDiscovery{Resource: resource})
}

// ServeHTTP implements http.Handler: the server's own chain.
func (s *stock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	mux := s.mux
	s.mu.Unlock()
	mux.ServeHTTP(w, r)
}

// RoundTrip implements http.RoundTripper.
func (s *stock) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	trouble := s.trouble
	s.mu.Unlock()
	if trouble != nil {
		if response, err := trouble(r); response != nil || err != nil {
			s.note(r)
			return response, err
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *stock) note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
}

func (s *stock) fail(trouble func(*http.Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = trouble
}

// count returns how often the server was asked for a path, and forgets it.
func (s *stock) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.asked)
	s.asked = slices.DeleteFunc(s.asked, func(asked string) bool { return strings.HasSuffix(asked, " "+path) })
	return n - len(s.asked)
}

var errRefused = errors.New("connection refused")

func refuses(*http.Request) (*http.Response, error) { return nil, errRefused }

func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// trickles answers a byte a second, until the request's context ends.
func trickles(r *http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: peertest.Trickle{Context: r.Context()}}, nil
}

// forDocuments makes trouble for all requests but those of the index.
func forDocuments(trouble func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == pathV3 {
			return nil, nil
		}
		return trouble(r)
	}
}

func answers(status int, contentType, body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
		return w.Result(), nil
	}
}

// cluster are servers, of which the first is this one.
type cluster struct {
	*Server
	servers []*stock
	// states and incarnations are by server ID.
	states       map[string]snapshot.State
	incarnations map[string]string
	excluded     *snapshot.Exclusions
	stop         context.CancelFunc
	ended        sync.WaitGroup
}

// newCluster returns a running server, and its peers.
func newCluster(t testing.TB, servers ...*stock) *cluster {
	t.Helper()
	c := &cluster{servers: servers, states: map[string]snapshot.State{}, incarnations: map[string]string{}}
	byHost := map[string]*stock{}
	for _, s := range servers[1:] {
		byHost["host-of-"+s.id] = s
	}
	c.Server = New(Config{
		Local:      func() http.RoundTripper { return servers[0] },
		Peers:      roundTripper(func(r *http.Request) (*http.Response, error) { return byHost[r.URL.Host].RoundTrip(r) }),
		Serializer: errorsAsStatus(),
		Clock:      clock.RealClock{},
	})
	var ctx context.Context
	ctx, c.stop = context.WithCancel(t.Context())
	c.ended.Go(func() { c.Run(ctx) })
	for !c.isRunning() {
		runtime.Gosched()
	}
	t.Cleanup(func() {
		c.stop()
		c.ended.Wait()
	})
	return c
}

func errorsAsStatus() apiruntime.NegotiatedSerializer {
	scheme := apiruntime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}

func (c *cluster) isRunning() bool {
	flight, ok := c.life.start(func(context.Context) {})
	if ok {
		<-flight
	}
	return ok
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// exclude makes resources, given as group/version/resource, those of custom
// resource definitions.
func (c *cluster) exclude(resources ...string) {
	c.excluded = &snapshot.Exclusions{Resources: map[schema.GroupVersionResource]time.Time{}}
	for _, resource := range resources {
		words := strings.Split(resource, "/")
		c.excluded.Resources[schema.GroupVersionResource{Group: words[0], Version: words[1], Resource: words[2]}] = time.Time{}
	}
}

func (c *cluster) snapshot() *snapshot.Snapshot {
	content := snapshot.Content{Local: c.servers[0].document(""), Excluded: c.excluded, Ready: true}
	for _, s := range c.servers[1:] {
		incarnation := c.incarnations[s.id]
		content.Peers = append(content.Peers, &snapshot.Peer{
			ServerID: s.id, Incarnation: incarnation, State: c.states[s.id], Address: "host-of-" + s.id, Document: s.document(incarnation),
		})
	}
	return snapshot.New(content)
}

func newRequest(method, target string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// ask sends a request through the server.
func (c *cluster) ask(t testing.TB, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	request, ok := c.Parse(r)
	if !ok {
		t.Fatalf("%s %s is not understood", r.Method, r.URL)
	}
	c.Serve(w, r, c.snapshot(), request, c.servers[0])
	return w
}

func (c *cluster) get(t testing.TB, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return c.ask(t, newRequest(http.MethodGet, target, headers...))
}

// indexed returns the merged index.
func (c *cluster) indexed(t testing.TB) map[string]string {
	t.Helper()
	w := c.get(t, pathV3)
	urls, err := decodeIndex(w.Body.Bytes())
	if w.Code != http.StatusOK || err != nil {
		t.Fatalf("got %d, %v: %s", w.Code, err, w.Body)
	}
	return urls
}

func namesIn(urls map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(urls)), " ") }

// schemas returns the schemas of a document of OpenAPI v3, by name, with the
// first words of their descriptions.
func schemas(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	document, err := decodeV3(w.Body.Bytes())
	if w.Code != http.StatusOK || err != nil {
		t.Fatalf("got %d, %v: %s", w.Code, err, w.Body)
	}
	found := map[string]*spec.Schema{}
	if document.Components != nil {
		found = document.Components.Schemas
	}
	return described(maps.All(found))
}

func definitions(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	document, err := decodeV2(w.Body.Bytes())
	if w.Code != http.StatusOK || err != nil {
		t.Fatalf("got %d, %v: %s", w.Code, err, w.Body)
	}
	return described(func(yield func(string, *spec.Schema) bool) {
		for name, schema := range document.Definitions {
			if !yield(name, &schema) {
				return
			}
		}
	})
}

func described(schemas func(yield func(string, *spec.Schema) bool)) string {
	var all []string
	for name, schema := range schemas {
		text, _, _ := strings.Cut(schema.Description, " long")
		all = append(all, name+"="+text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
