// Package discovery learns what a server serves: it fetches the server's
// aggregated discovery, keeps the last good document, and asks again on a
// schedule.
//
// Peers are asked over the network by a [Poller], one goroutine each. The local
// server is asked by the same code through its own handler, in process, by a
// [Local].
package discovery
