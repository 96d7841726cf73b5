package metrics

import "k8s.io/component-base/metrics"

// suspectPeers has no label: which peers they are is in the log.
var suspectPeers = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace:      "apiserver",
	Subsystem:      "peer_proxy",
	Name:           "suspect_peers",
	Help:           "Number of peer kube-apiservers to which a connection has failed and that have not answered since",
	StabilityLevel: metrics.ALPHA,
})

// SetSuspectPeers tells how many peers are suspects now.
func SetSuspectPeers(n int) { suspectPeers.Set(float64(n)) }
