package serve

import "peerproxy.internal/pkg/snapshot"

// origin is where a request comes from, as far as routing is concerned.
type origin int

const (
	// fromClient is anyone who is not named below.
	fromClient origin = iota
	// fromSelf is this server's own loopback client. The informers that a
	// snapshot is made of come this way, so it must never wait for one.
	fromSelf
	// fromPeer is a peer that forwarded a request it does not serve itself. A
	// second hop could go round in circles.
	fromPeer
)

// action is what to do with a request.
type action int

const (
	// serveLocally hands the request on to the local chain.
	serveLocally action = iota
	// serveLocallyMarked does the same, and tells the peer that sent the request
	// that this server does not serve it.
	serveLocallyMarked
	// forward sends the request to one of the route's candidates.
	forwardToPeer
	// serveMerged answers with a merged document.
	serveMerged
	// refuse answers 503: who serves the request is not known, or can't be asked.
	refuse
	// refuseMarked does the same for a request of a peer, which may then ask
	// another server.
	refuseMarked
)

// decideResource decides about a request for a resource.
func decideResource(from origin, route snapshot.Kind) action {
	switch {
	case route == snapshot.Local, from == fromSelf:
		return serveLocally
	case from == fromPeer && route == snapshot.Absent:
		return serveLocallyMarked
	case from == fromPeer:
		return refuseMarked
	}
	switch route {
	case snapshot.Peers, snapshot.Unreachable:
		return forwardToPeer
	case snapshot.Unknown:
		return refuse
	}
	return serveLocally
}

// decideDocument decides about a request for a document that can be merged.
// alone is true for a client that asks for what this server serves alone.
func decideDocument(from origin, alone, ready bool) action {
	switch {
	case alone, from != fromClient:
		return serveLocally
	case !ready:
		return refuse
	}
	return serveMerged
}
