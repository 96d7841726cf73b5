// Package forward sends a request that this server does not serve to a peer that
// does, and streams the peer's answer back.
//
// The way of a request, downwards through one file a step:
//
//	forward.go   Forwarder.Forward: who asks for what, and one reverse proxy
//	request.go   the request as a peer gets it
//	attempt.go   candidates tried one after another
//	pick.go      which one next
//	health.go    what an attempt says of its peer's connections
//	body.go      a body that can be sent a second time
//	answer.go    answers that are none: 401, "not served here"
//	held.go      answers, whole before the client sees any of them
//	response.go  the answer on its way to the client
//	errors.go    why there is none, and what the client is told
//	trouble.go   what is logged of it, a misconfiguration with what to do
//
// A request is executed once unless it is safe to repeat. What did not leave
// this server, or what the peer says that it has not executed, goes to the next
// candidate whatever its method; what may have been executed only if it is a GET,
// HEAD or OPTIONS.
//
// A client that gets no peer's answer gets a Status in the encoding it asked for,
// with a fixed message: 503, with Retry-After where nothing was executed or the
// request may be repeated, 504 without it where the outcome is unknown, 500 where this server can't say who
// asks, 400 where the request can't be written.
//
// An answer to a GET, up to 4 MiB of it, goes to the client when it has come to
// its end: until then the peer may still be lost, and another one asked. client-go
// sends a request again that got no answer, but not one whose answer was cut off:
// a list that breaks off is an error to its caller. Watches, logs and what comes
// from behind a peer are not held back. The first byte of other answers comes
// when the peer has sent the last, or 4 MiB; a list is of no use before that. Past
// that, or past 64 MiB of all answers together, they stream, and are cut off with
// their peer.
//
// Candidates whose connection has failed come after those that are well, until
// they answer again: see package health. A peer that closes a connection on which
// it had answered before may be asked again, for a safe request, on another.
package forward
