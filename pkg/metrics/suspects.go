package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// suspectPeers has no label: which peers they are is in the log.
var suspectPeers = metrics.NewGauge(&metrics.GaugeOpts{
	Subsystem:      "apiserver",
	Name:           "peer_proxy_suspect_peers",
	Help:           "Number of peer kube-apiservers to which a connection has failed and that have not answered since",
	StabilityLevel: metrics.ALPHA,
})

var registerSuspects = sync.OnceFunc(func() { legacyregistry.MustRegister(suspectPeers) })

// SetSuspectPeers tells how many peers are suspects now.
func SetSuspectPeers(n int) { suspectPeers.Set(float64(n)) }
