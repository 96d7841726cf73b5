package openapi

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"

	"k8s.io/component-base/metrics/legacyregistry"

	"peerproxy.internal/pkg/metrics"
)

// counted returns the failed fetches that were counted so far, by what was
// fetched.
func counted(t *testing.T) map[string]int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() != "apiserver_peer_openapi_sync_errors_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			counts[metric.GetLabel()[0].GetValue()] = int(metric.GetCounter().GetValue())
		}
	}
	return counts
}

func TestFailedFetchesAreCounted(t *testing.T) {
	metrics.Register()
	for name, test := range map[string]struct {
		trouble func(*http.Request) (*http.Response, error)
		ask     func(c *cluster)
		want    map[string]int
	}{
		"nothing fails": {
			trouble: nil,
			ask:     func(c *cluster) { c.get(t, prefixV3+"apis/apps/v1"); c.get(t, pathV2) },
			want:    map[string]int{},
		},
		"the index": {
			trouble: refuses,
			ask:     func(c *cluster) { c.get(t, pathV3); c.get(t, pathV3) },
			want:    map[string]int{"fetch_index": 1},
		},
		"a document of v3": {
			trouble: forDocuments(refuses),
			ask:     func(c *cluster) { c.get(t, prefixV3+"apis/apps/v1") },
			want:    map[string]int{"fetch_v3": 1},
		},
		"that of v2": {
			trouble: forDocuments(answers(200, "text/html", "")),
			ask:     func(c *cluster) { c.get(t, pathV2) },
			want:    map[string]int{"fetch_v2": 1},
		},
		"the server stops": {
			trouble: forDocuments(hangs),
			ask:     func(c *cluster) { c.get(t, prefixV3+"apis/apps/v1"); c.stop(); c.ended.Wait() },
			want:    map[string]int{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := twoServers(t)
				c.servers[1].fail(test.trouble)
				before := counted(t)
				test.ask(c)
				got := counted(t)
				maps.DeleteFunc(got, func(kind string, n int) bool { return n == before[kind] })
				for kind := range got {
					got[kind] -= before[kind]
				}
				if fmt.Sprint(got) != fmt.Sprint(test.want) {
					t.Errorf("counted %v, want %v", got, test.want)
				}
			})
		})
	}
}
