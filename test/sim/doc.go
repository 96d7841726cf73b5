// Package sim runs whole control planes of simulated apiservers in one process,
// in virtual time, and checks the laws of the peer proxy at every answer.
//
// A seed makes a [Script]: who starts, stops, crashes, freezes, is cut off or
// lies, and which client asks which server for what, all at given times. The
// script depends on the seed alone. A world then plays it: each server is a real
// peerproxy.Proxy with real HTTP/2 over TLS, behind the parts of a handler chain
// that it needs; what is simulated is below and behind it:
//
//	network.go  hosts, links that are cut, slow or frozen; conn.go: connections
//	leases.go   etcd: endpoint records with their TTL, identity leases, CRDs
//	chain.go    the local handler chain: what a server of a version serves itself
//	server.go   a server's life: start, hooks, graceful stop, crash; brand.go:
//	            servers without the library, in one script of four
//	world.go    plays a script; client.go: requests and what became of them
//	events.go   makes a script of a seed
//	history.go  what truly happened, when
//	laws.go     what may be answered, given that history; knowledge.go and
//	            starting.go: who must know of whom, and may still believe it
//	shares.go   that who is able is sent requests, too
//
// The history and the laws know nothing of the library: who was alive, what it
// served, since when it could be reached, and was ready. A server can be asked
// at once and is ready a while later, or never; until then it refuses some of its
// peers' requests. Some scripts go on for so long that what has departed must be
// gone, and what is deleted is no longer remembered.
//
// The library's random choices come from the seed, too. But goroutines run as
// they like, so that two runs of a seed may differ in what happens at the same
// time. The events do not.
package sim
