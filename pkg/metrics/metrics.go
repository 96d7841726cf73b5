// Package metrics is the one place where the peer proxy counts.
//
// It counts with the metrics that every kube-apiserver has for its peer proxy,
// under their inherited names:
//
//	apiserver_rerouted_request_total{code,group,version,resource}
//	apiserver_peer_proxy_errors_total{type,group,version,resource}
//	apiserver_peer_discovery_sync_errors_total{type}
//
// and with its own:
//
//	apiserver_peer_openapi_sync_errors_total{type}
//	apiserver_peer_proxy_certificate_expiration_timestamp_seconds{type}
//	apiserver_peer_proxy_peers{state}
//	apiserver_peer_proxy_suspect_peers
//
// All functions are safe for concurrent use.
package metrics

import (
	"context"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/util/peerproxy/metrics"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var openAPISyncErrors = metrics.NewCounterVec(
	&metrics.CounterOpts{
		Subsystem:      "apiserver",
		Name:           "peer_openapi_sync_errors_total",
		Help:           "Total number of errors encountered while fetching OpenAPI documents from a peer kube-apiserver",
		StabilityLevel: metrics.ALPHA,
	},
	[]string{"type"},
)

var registerOwn = sync.OnceFunc(func() { legacyregistry.MustRegister(openAPISyncErrors, certificateExpiration, suspectPeers, peers) })

// Register adds the metrics to the server's registry. Calls after the first
// change nothing.
func Register() {
	upstream.Register()
	registerOwn()
}

// IncForwarded counts a request for gvr that a peer answered with the status
// code.
func IncForwarded(ctx context.Context, code int, gvr schema.GroupVersionResource) {
	upstream.IncPeerProxiedRequest(ctx, strconv.Itoa(code), gvr.Group, gvr.Version, gvr.Resource)
}

// IncForwardError counts a request for gvr that could not be forwarded, or an
// answer that was cut off. The reason is the label "type".
func IncForwardError(ctx context.Context, reason string, gvr schema.GroupVersionResource) {
	upstream.IncPeerProxyError(ctx, reason, gvr.Group, gvr.Version, gvr.Resource)
}

// IncDiscoverySyncError counts a failure to learn what a peer serves. The reason
// is the label "type".
func IncDiscoverySyncError(ctx context.Context, reason string) {
	upstream.IncPeerDiscoverySyncError(ctx, reason)
}

// IncOpenAPISyncError counts a failure to fetch a peer's OpenAPI. The reason is
// the label "type".
func IncOpenAPISyncError(ctx context.Context, reason string) {
	openAPISyncErrors.WithContext(ctx).WithLabelValues(reason).Inc()
}
