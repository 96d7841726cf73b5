package peerproxy

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/reconcilers"
	upstream "k8s.io/apiserver/pkg/util/peerproxy"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Upstream returns the proxy as the interface that a kube-apiserver wires into
// its hooks: Run, readiness and the exclusions are then taken care of.
func (p *Proxy) Upstream() upstream.Interface { return upstreamProxy{p} }

// upstreamProxy does nothing for the parts of the interface that share out the
// work of Run, and for those that feed upstream's own merged discovery.
type upstreamProxy struct{ proxy *Proxy }

func (u upstreamProxy) WrapHandler(next http.Handler) http.Handler { return u.proxy.WrapHandler(next) }

// WaitForCacheSync waits for readiness. An error here is fatal to the server,
// so there is none: a peer's trouble is its own.
func (u upstreamProxy) WaitForCacheSync(stop <-chan struct{}) error {
	select {
	case <-u.proxy.Ready():
	case <-stop:
	}
	return nil
}

func (u upstreamProxy) HasFinishedSync() bool {
	select {
	case <-u.proxy.Ready():
		return true
	default:
		return false
	}
}

// RunPeerDiscoveryCacheSync runs the proxy: of the interface's parts it is the
// one that is given the context of the server's life.
func (u upstreamProxy) RunPeerDiscoveryCacheSync(ctx context.Context, _ int) {
	if err := u.proxy.Run(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The peer proxy ended")
	}
}

func (u upstreamProxy) RegisterCRDInformerHandlers(definitions cache.SharedIndexInformer, groupVersions upstream.GVExtractor) error {
	return u.proxy.ExcludeCustomResources(definitions, groupVersions)
}

func (u upstreamProxy) RegisterAPIServiceInformerHandlers(services cache.SharedIndexInformer, groupVersions upstream.GVExtractor) error {
	return u.proxy.ExcludeAggregatedAPIs(services, groupVersions)
}

// GetPeerResources returns nothing: the handler behind the filter answers with
// what this server serves alone.
func (u upstreamProxy) GetPeerResources() map[string][]apidiscoveryv2.APIGroupDiscovery { return nil }

func (u upstreamProxy) RegisterCacheInvalidationCallback(func())         {}
func (u upstreamProxy) RunLocalDiscoveryCacheSync(<-chan struct{}) error { return nil }
func (u upstreamProxy) RunPeerDiscoveryActiveGVTracker(context.Context)  {}
func (u upstreamProxy) RunPeerDiscoveryRefilter(context.Context)         {}

// EndpointLeaseReconciler returns the writer of this server's endpoint record
// as the interface that a kube-apiserver calls when it is ready, every 10 s,
// and at its stop. It may be called once.
func (p *Proxy) EndpointLeaseReconciler() reconcilers.PeerEndpointLeaseReconciler {
	return &recordWriter{proxy: p}
}

type recordWriter struct {
	proxy *Proxy
	// stopped is set when no further record is to be written.
	stopped atomic.Bool
}

// UpdateLease has the record of this server written, and returns at once.
func (w *recordWriter) UpdateLease(serverID, ip string, ports []corev1.EndpointPort) error {
	if w.stopped.Load() {
		return nil
	}
	if len(ports) == 0 || serverID != w.proxy.config.ServerID {
		return fmt.Errorf("publish the endpoint record of %s: not this server's, or without a port", serverID)
	}
	w.proxy.record.Publish(ip, ports[0].Port)
	return nil
}

// RemoveLease has the record removed, and does not wait for long.
func (w *recordWriter) RemoveLease(serverID string) error {
	w.stopped.Store(true)
	run := w.proxy.run.Load()
	if run == nil {
		return fmt.Errorf("remove the endpoint record of %s: the peer proxy does not run, so it has none", serverID)
	}
	return w.proxy.record.Remove(*run)
}

// GetEndpoint answers from the current snapshot.
func (w *recordWriter) GetEndpoint(serverID string) (string, error) {
	for _, peer := range w.proxy.observer.Load().Peers() {
		if peer.ServerID == serverID && peer.State.Reachable() {
			return peer.Address, nil
		}
	}
	return "", fmt.Errorf("no endpoint record of %s", serverID)
}

func (w *recordWriter) StopReconciling() { w.stopped.Store(true) }

// Destroy does nothing: the storage belongs to Run, which still follows the
// peers' records when the own one is removed.
func (w *recordWriter) Destroy() {}
