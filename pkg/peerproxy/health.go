package peerproxy

import (
	"slices"

	"peerproxy.internal/pkg/serve/health"
	"peerproxy.internal/pkg/snapshot"
)

// reachable reports whether the current snapshot has such a peer with a live
// endpoint record.
func (p *Proxy) reachable(asked health.Peer) bool {
	return slices.ContainsFunc(p.observer.Load().Peers(), func(peer *snapshot.Peer) bool {
		return peer.State.Reachable() &&
			asked == health.Peer{ServerID: peer.ServerID, Incarnation: peer.Incarnation, Address: peer.Address}
	})
}
