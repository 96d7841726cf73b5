// Package transport carries one request to a peer and says what became of it.
//
// A [Transport] speaks mutual TLS: it presents the proxy client certificate,
// accepts only a server certificate of the peers' CA, and puts the identity of
// the request's user into headers that the peer's request-header authenticator
// reads ([Transport.SetIdentity], the one place where that happens). Ordinary
// requests go over HTTP/2 where the peer speaks it, with pings that find a
// frozen peer; requests that upgrade their connection go over HTTP/1.1, each
// over a connection of its own. Ordinary connections to one address are dialled
// one after another, so that many requests at once share the first.
//
// The files are read once by [New] and again, every ten seconds, by
// [Transport.Run]. A change that is still there at the next look makes a new
// generation of connections. Requests in flight finish on the old ones, which are
// closed when they are idle: a client certificate that was replaced lives on until
// then. Only where the CA bundle changed so that it no longer verifies the peer of
// a connection, by the time of the change, the connection is closed at once with
// all that is on it; one log line tells how many those were.
//
// A connection is used only when the peer has spoken: with TLS 1.3 that is how it
// shows that it takes our certificate. Which certificates expire when is a metric,
// and one that is not valid is logged once.
//
// Errors tell the caller whether the request may be sent again. A
// [*ConnectError] and a [*RefusedError] mean that no peer executed it, an
// [*UnsendableError] that none ever will. After any other error it may have been
// executed.
package transport
