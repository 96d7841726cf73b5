package forward

import (
	"errors"

	"peerproxy.internal/pkg/serve/health"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
)

// healthOf names the peer to those who follow its health.
func healthOf(p *snapshot.Peer) health.Peer {
	return health.Peer{ServerID: p.ServerID, Incarnation: p.Incarnation, Address: p.Address}
}

func (f *Forwarder) suspect(p *snapshot.Peer) bool { return f.Health.Suspect(healthOf(p)) }

// noteAnswer says that the peer has answered, whatever it was.
func (x *exchange) noteAnswer() { x.forwarder.Health.Answered(healthOf(x.peer)) }

// noteFailure says that the connection to the peer has failed, if it has.
func (x *exchange) noteFailure(f *failure) {
	if f.ofConnection() {
		x.forwarder.Health.Failed(healthOf(x.peer))
	}
}

// ofConnection reports whether the peer's connection could not be made or broke.
// One that a request gives up says nothing of the peer.
func (f *failure) ofConnection() bool {
	if connect, ok := errors.AsType[*transport.ConnectError](f.err); ok {
		return f.reason == reason(connect.Reason)
	}
	return (f.reason == reasonLost || f.reason == reasonCutOff) && transport.ConnectionFailed(f.err)
}

// mayTryAgain reports whether the peer may be asked again, among the others: it
// has closed a connection that had carried requests before, as a server does that
// stops, was started anew, or closes what is old, and a new connection may do. It
// may not when it has fallen silent: that takes seconds to find out, and would
// again.
func (x *exchange) mayTryAgain(f *failure) bool {
	return f.reason == reasonLost && isSafe(x.client.Method) &&
		x.reused.Load() && f.ofConnection() && !transport.FellSilent(f.err)
}
