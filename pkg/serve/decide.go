package serve

import (
	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/snapshot"
)

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
	// serveOrRefuse hands the request on to the local chain, but answers 503 where
	// that does not serve it.
	serveOrRefuse
	// forwardToPeer sends the request to one of the route's candidates.
	forwardToPeer
	// serveDocument answers with a document that was found.
	serveDocument
	// denyDocument answers 404: the document asked for does not exist.
	denyDocument
	// refuse answers 503: who serves the request is not known, or can't be asked.
	refuse
	// refuseMarked does the same for a request of a peer, which may then ask
	// another server.
	refuseMarked
)

// decideResource decides about a request for a resource. While this server is
// blind only the local chain knows what it serves, so it is asked first; a peer
// that sent the request sees from the answer alone whether to ask another.
func decideResource(from origin, route snapshot.Kind, blind bool) action {
	switch {
	case route == snapshot.Local, from == fromSelf:
		return serveLocally
	case blind && (from == fromPeer || route == snapshot.Absent):
		return serveLocally
	case blind:
		return serveOrRefuse
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

// facts is whose facts a document is made of.
type facts int

const (
	// ofChain leaves the document to the local chain.
	ofChain facts = iota
	// ofOwn is what this server alone serves, by its own discovery.
	ofOwn
	// ofAll is what all members serve.
	ofAll
)

// decideFacts decides whose facts a client gets. alone is true for one that asks
// for what this server serves alone. The local chain has that, but for the lists
// of groups: those it makes of APIService objects, which all servers share.
func decideFacts(from origin, alone bool, kind document.Kind) facts {
	switch {
	case from == fromSelf:
		return ofChain
	case from == fromClient && !alone:
		return ofAll
	case kind == document.Groups, kind == document.Group:
		return ofOwn
	}
	return ofChain
}

// decideBlind decides about a document while this server is blind. elsewhere is
// true if another member lists what it is about, or may: then the local chain's
// would lack that, and a merged one what this server serves.
func decideBlind(of facts, elsewhere bool) action {
	if of == ofAll && elsewhere {
		return refuse
	}
	return serveLocally
}

// decideDocument decides about a document that is not the local chain's, by
// what is known of it.
func decideDocument(of facts, standing document.Standing) action {
	switch {
	case standing == document.Listed:
		return serveDocument
	case standing == document.InDoubt, standing == document.Stale:
		return refuse
	case of == ofOwn:
		return denyDocument
	}
	return serveLocally
}

// decideOpenAPI decides about an OpenAPI document. alone is true for a client
// that asks for what this server serves alone: the local chain has that.
func decideOpenAPI(from origin, alone, ready bool) action {
	switch {
	case alone, from != fromClient:
		return serveLocally
	case !ready:
		return refuse
	}
	return serveDocument
}
