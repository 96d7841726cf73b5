package sim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// resource is what a request can be for.
type resource struct{ group, version, name, sub string }

func (r resource) String() string {
	s := r.group + "/" + r.version + " " + r.name
	if r.sub != "" {
		s += "/" + r.sub
	}
	return s
}

// table is what is served, with which verbs.
type table map[resource][]string

func (t table) has(r resource, verb string) bool { return slices.Contains(t[r], verb) }

var (
	usual = []string{"create", "delete", "get", "list", "watch"}
	every = append([]string{"deletecollection"}, usual...)
	// statusVerbs are those of a status.
	statusVerbs = []string{"get", "update"}
)

// The built-in resources: what all versions have, and what some.
var (
	pods        = resource{"", "v1", "pods", ""}
	deployments = resource{"apps", "v1", "deployments", ""}
	requests    = resource{"certificates.k8s.io", "v1", "certificatesigningrequests", ""}
	csiNodes    = resource{"storage.k8s.io", "v1", "csinodes", ""}
	// schemas are only in 1.36.
	schemas = resource{"flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas", ""}
	// From 1.37 on: a resource in a group-version that all have, a group, a
	// subresource.
	bundles       = resource{"certificates.k8s.io", "v1", "clustertrustbundles", ""}
	taintRules    = resource{"resource.k8s.io", "v1", "devicetaintrules", ""}
	csiNodeStatus = resource{"storage.k8s.io", "v1", "csinodes", "status"}
	// workloads are a version that only 1.38 has.
	workloads = resource{"apps", "v2alpha1", "workloads", ""}
)

// versions are what servers of a minor version serve, apart from custom
// resources. Those of 1.36 can't delete collections of deployments.
var versions = map[int]table{
	36: {pods: usual, deployments: usual, requests: usual, csiNodes: usual, schemas: usual},
	37: {
		pods: usual, deployments: every, requests: usual, csiNodes: usual,
		bundles: usual, taintRules: usual, csiNodeStatus: statusVerbs,
	},
	38: {
		pods: usual, deployments: every, requests: usual, csiNodes: usual,
		bundles: usual, taintRules: usual, csiNodeStatus: statusVerbs, workloads: usual,
	},
}

// customResource is the resource that a definition owns.
func customResource(definition string) resource {
	name, group, _ := strings.Cut(definition, ".")
	return resource{group: group, version: "v1", name: name}
}

// The headers by which the simulation follows a request.
const (
	requestHeader = "X-Sim-Request"
	serverHeader  = "X-Sim-Server"
)

// chain is the local handler chain of one server, as the filter finds it.
type chain struct {
	serverID string
	ledger   *ledger
	gone     <-chan struct{}
	version  int

	mu     sync.Mutex
	custom []string
}

// define takes in which custom resource definitions there are.
func (c *chain) define(definitions []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.custom = definitions
}

// serves is all that the server serves now.
func (c *chain) serves() table {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(versions[c.version])
	for _, definition := range c.custom {
		all[customResource(definition)] = every
	}
	return all
}

// ServeHTTP implements http.Handler.
func (c *chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, _ := apirequest.RequestInfoFrom(r.Context())
	w.Header().Set(serverHeader, c.serverID)
	switch {
	case info.IsResourceRequest:
		c.serveResource(w, r, info)
	case r.URL.Path == "/api", r.URL.Path == "/apis":
		c.serveDiscovery(w, r)
	default:
		notServed(w)
	}
}

func notServed(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "404 page not found\n")
}

func (c *chain) serveResource(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
	served := c.serves()
	asked := resource{info.APIGroup, info.APIVersion, info.Resource, info.Subresource}
	switch {
	case served[asked] == nil:
		notServed(w)
	case !served.has(asked, info.Verb):
		status(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource", nil)
	case info.Verb == "watch":
		c.serveWatch(w, r)
	default:
		c.execute(w, r, info)
	}
}

// working is how long a request takes before it is executed, and after.
const working = 5 * time.Millisecond

// execute executes a request that is not a watch.
func (c *chain) execute(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
	_, _ = io.Copy(io.Discard, r.Body)
	time.Sleep(working)
	select {
	case <-c.gone:
		panic(http.ErrAbortHandler)
	default:
	}
	c.ledger.execute(r.Header.Get(requestHeader), c.serverID)
	time.Sleep(working)
	if info.Name == "absent" {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, info.Resource+" \"absent\" not found", &metav1.StatusDetails{Name: "absent", Kind: info.Resource, Group: info.APIGroup})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if info.Verb == "create" {
		w.WriteHeader(http.StatusCreated)
	}
	fill := ""
	if info.Verb == "list" && info.Resource == taintRules.name {
		fill = strings.Repeat("x", 80<<10) // more than is read before it is passed on
	}
	fmt.Fprintf(w, `{"kind":"Thing","apiVersion":"v1","metadata":{"name":%q},"fill":%q}`, c.serverID, fill)
}

// serveWatch sends an event each second.
func (c *chain) serveWatch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for {
		_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{}}`+"\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-apirequest.ServerShutdownSignalFrom(r.Context()).ShuttingDown():
			return
		case <-c.gone:
			panic(http.ErrAbortHandler)
		case <-time.After(time.Second):
		}
	}
}

func status(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string, details *metav1.StatusDetails) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: details,
	})
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// serveDiscovery answers with what this server alone serves.
func (c *chain) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    discoveryOf(c.serves(), r.URL.Path == "/api"),
	}
	if c.version == 38 {
		slices.Reverse(list.Items) // not all list their groups in the same order
	}
	body, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	etag := strconv.Quote(fmt.Sprintf("%X", sha256.Sum256(body)))
	w.Header().Set("Content-Type", aggregatedType)
	w.Header().Set("Etag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(body)
}

// discoveryOf is a table in the form of aggregated discovery: that of the core
// group, or of all others. Groups, versions and resources are in order.
func discoveryOf(t table, core bool) []apidiscoveryv2.APIGroupDiscovery {
	groups := []apidiscoveryv2.APIGroupDiscovery{}
	sorted := slices.SortedFunc(maps.Keys(t), func(a, b resource) int { return strings.Compare(a.String(), b.String()) })
	for _, r := range sorted {
		if core != (r.group == "") {
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].Name != r.group {
			groups = append(groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: r.group}})
		}
		group := &groups[len(groups)-1]
		if len(group.Versions) == 0 || group.Versions[len(group.Versions)-1].Version != r.version {
			group.Versions = append(group.Versions, apidiscoveryv2.APIVersionDiscovery{Version: r.version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
		}
		version := &group.Versions[len(group.Versions)-1]
		version.Resources = addTo(version.Resources, r, t[r])
	}
	return groups
}

// addTo adds a resource, or a subresource to the last one.
func addTo(list []apidiscoveryv2.APIResourceDiscovery, r resource, verbs []string) []apidiscoveryv2.APIResourceDiscovery {
	kind := &metav1.GroupVersionKind{Group: r.group, Version: r.version, Kind: "Thing"}
	if r.sub == "" {
		return append(list, apidiscoveryv2.APIResourceDiscovery{
			Resource: r.name, ResponseKind: kind, Scope: apidiscoveryv2.ScopeNamespace, SingularResource: r.name, Verbs: verbs,
		})
	}
	parent := &list[len(list)-1]
	parent.Subresources = append(parent.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: r.sub, ResponseKind: kind, Verbs: verbs})
	return list
}
