package document

import (
	"testing"

	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"peerproxy.internal/pkg/snapshot"
)

// sample returns the value of a counter with the labels, given as name and
// value in turns, summed over all others.
func sample(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			has := map[string]string{}
			for _, label := range metric.GetLabel() {
				has[label.GetName()] = label.GetValue()
			}
			matching := true
			for i := 0; i < len(labels); i += 2 {
				matching = matching && has[labels[i]] == labels[i+1]
			}
			if matching {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestCountsAsUpstreamDoes reads the metrics through the registry that servers
// publish. Upstream's handler registers the counters of hits and misses from
// 1.37 on, in 1.36 its package does.
func TestCountsAsUpstreamDoes(t *testing.T) {
	metrics.Register()
	upstream(nil)
	const hits, misses, requests = "aggregator_discovery_peer_aggregated_cache_hits_total", "aggregator_discovery_peer_aggregated_cache_misses_total", "apiserver_request_total"
	labels := []string{"verb", "GET", "subresource", "apis", "code", "200"}
	hitsBefore, missesBefore, requestsBefore := sample(t, hits), sample(t, misses), sample(t, requests, labels...)

	s, snap := New(), twoServers()
	for range 3 {
		serve(t, s, snap, newRequest("GET", snapshot.PathAPIs.String(), "Accept", acceptJSON))
	}
	// Upstream does not count legacy discovery.
	serve(t, s, snap, newRequest("GET", snapshot.PathAPIs.String(), "Accept", "application/json"))
	if got := sample(t, hits) - hitsBefore; got != 2 {
		t.Errorf("%v hits, want 2", got)
	}
	if got := sample(t, misses) - missesBefore; got != 1 {
		t.Errorf("%v misses, want 1", got)
	}
	if got := sample(t, requests, labels...) - requestsBefore; got != 3 {
		t.Errorf("%v requests, want 3", got)
	}
}
