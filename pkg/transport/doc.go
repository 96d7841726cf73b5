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
// [Transport.Run]. A change makes a new generation of connections; requests in
// flight finish on the old ones.
//
// Errors tell the caller whether the request may be sent again. A
// [*ConnectError] and a [*RefusedError] mean that no peer executed it, an
// [*UnsendableError] that none ever will. After any other error it may have been
// executed.
package transport
