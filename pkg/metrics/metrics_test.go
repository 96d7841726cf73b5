package metrics

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/util/peerproxy/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
)

func TestNamesAndLabels(t *testing.T) {
	Register()
	Register()
	upstream.Reset()
	gvr := schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "things"}
	IncForwarded(t.Context(), 201, gvr)
	IncForwardError(t.Context(), "dial", gvr)
	IncForwardError(t.Context(), "dial", gvr)
	IncDiscoverySyncError(t.Context(), "fetch")
	IncOpenAPISyncError(t.Context(), "fetch_index")

	want := `
# HELP apiserver_peer_discovery_sync_errors_total [ALPHA] Total number of errors encountered while syncing discovery information from a peer kube-apiserver
# TYPE apiserver_peer_discovery_sync_errors_total counter
apiserver_peer_discovery_sync_errors_total{type="fetch"} 1
# HELP apiserver_peer_openapi_sync_errors_total [ALPHA] Total number of errors encountered while fetching OpenAPI documents from a peer kube-apiserver
# TYPE apiserver_peer_openapi_sync_errors_total counter
apiserver_peer_openapi_sync_errors_total{type="fetch_index"} 1
# HELP apiserver_peer_proxy_errors_total [ALPHA] Total number of errors encountered while proxying requests to a peer kube apiserver
# TYPE apiserver_peer_proxy_errors_total counter
apiserver_peer_proxy_errors_total{group="g",resource="things",type="dial",version="v1"} 2
# HELP apiserver_rerouted_request_total [ALPHA] Total number of requests that were proxied to a peer kube-apiserver because the local apiserver was not capable of serving it, broken down by 'group', 'version', and 'resource' indicating the GVR of the request. If all three are empty (""), the request is a discovery request.
# TYPE apiserver_rerouted_request_total counter
apiserver_rerouted_request_total{code="201",group="g",resource="things",version="v1"} 1
`
	err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want),
		"apiserver_rerouted_request_total", "apiserver_peer_proxy_errors_total", "apiserver_peer_discovery_sync_errors_total", "apiserver_peer_openapi_sync_errors_total")
	if err != nil {
		t.Error(err)
	}
}

func TestSuspectPeers(t *testing.T) {
	Register()
	SetSuspectPeers(2)
	SetSuspectPeers(1)
	want := `
# HELP apiserver_peer_proxy_suspect_peers [ALPHA] Number of peer kube-apiservers to which a connection has failed and that have not answered since
# TYPE apiserver_peer_proxy_suspect_peers gauge
apiserver_peer_proxy_suspect_peers 1
`
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), "apiserver_peer_proxy_suspect_peers"); err != nil {
		t.Error(err)
	}
}
