package sim

import "time"

// nothings are resources that no one ever has: in a group that looks built in,
// in one that is, and in one that can't be.
var nothings = []resource{
	{"nothing.k8s.io", "v1", "nothings", ""},
	{"apps", "v1", "nothings", ""},
	{"nothing.example.com", "v1", "nothings", ""},
}

// some are the resources that clients ask for.
var some = []resource{pods, deployments, schemas, bundles, bundles, taintRules, taintRules, csiNodeStatus, workloads}

// differing are those that not all versions have.
var differing = []resource{schemas, bundles, taintRules, workloads}

// documents are what clients read: paths and what they accept.
var documents = []ask{
	{path: "/apis", accept: aggregatedType},
	{path: "/api", accept: aggregatedType},
	{path: "/apis", accept: aggregatedType + ";profile=nopeer"},
	{path: "/apis", accept: "application/json"},
	{path: "/apis/resource.k8s.io", accept: "application/json"},
	{path: "/apis/resource.k8s.io/v1", accept: "application/json"},
	{path: "/apis/apps/v2alpha1", accept: "application/json"},
	{path: "/apis/certificates.k8s.io/v1", accept: "application/json"},
	{path: "/apis/flowcontrol.apiserver.k8s.io/v1beta3", accept: "application/json"},
	{path: "/apis/nothing.k8s.io/v1", accept: "application/json"},
	{path: "/apis/nothing.example.com/v1", accept: "application/json"},
}

// ask has a client ask a server that runs.
func (w *writer) ask() {
	var up []string
	for _, id := range w.ids {
		if n := w.nodes[id]; n.up && !n.frozen {
			up = append(up, id)
		}
	}
	if len(up) > 0 {
		w.add(event{kind: asks, server: pick(w.random, up...), ask: w.question()})
	}
}

func (w *writer) question() ask {
	if w.random.IntN(5) == 0 {
		return pick(w.random, documents...)
	}
	a := ask{verb: pick(w.random, "get", "get", "list", "create", "create", "delete", "deletecollection", "watch")}
	switch w.random.IntN(8) {
	case 0:
		a.resource = customResource(pick(w.random, definitions...))
	case 1:
		a.resource = pick(w.random, nothings...)
	default:
		a.resource = pick(w.random, some...)
	}
	if a.resource.sub != "" {
		a.verb = pick(w.random, "get", "update")
	}
	a.absent = a.verb == "get" && w.random.IntN(4) == 0
	a.lasts = w.between(time.Second, 30*time.Second)
	return a
}
