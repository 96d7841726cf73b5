package metrics

import "k8s.io/component-base/metrics"

var peers = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "apiserver",
	Subsystem:      "peer_proxy",
	Name:           "peers",
	Help:           "Number of peer kube-apiservers that this kube-apiserver knows, by 'state': serving, starting, unreachable or departed.",
	StabilityLevel: metrics.ALPHA,
}, []string{"state"})

// SetPeers tells how many peers are in a state.
func SetPeers(state string, n int) { peers.WithLabelValues(state).Set(float64(n)) }
