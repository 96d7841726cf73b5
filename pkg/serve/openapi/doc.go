// Package openapi serves the OpenAPI of the whole cluster: the index of v3 at
// /openapi/v3, its documents below, and v2 at /openapi/v2.
//
// [Server.Parse] tells whether a request asks for one, [Server.Serve] answers
// it. The way down: the index (index.go) is merged of this server's own
// (local.go) and the peers' (peers.go), and needs no document, because a
// document's hash is made of its members' hashes. What of a peer is taken is
// decided by its discovery (listing.go). A document that members have in
// different forms is merged when it is asked for (v3.go, v2.go) of what was
// fetched from the peers (kept.go); one of custom resources is made of this
// server's own (custom.go); one that is this server's own as it stands is left to
// the local chain.
//
// # Peers
//
// A peer's index is read when it is first needed, and again in the background,
// at the next request, when the peer's discovery has changed or the index is
// 10 s old. A request waits for a peer no longer than a second (for v2 three),
// and for one that could not be asked not at all for 10 s. What was read is kept
// for as long as the peer takes part, also when it can't be reached. What can't
// be had costs that part alone: the document is then the one of the others, with
// the hash of that one; a document that no one else has is a 503. A document
// that was never asked for while its only members could be reached is lost with
// them until they come back.
//
// # Answers
//
// Status, headers and media types are those of
// k8s.io/kube-openapi/pkg/handler and handler3. The differences: bodies are
// compressed, and each once; every representation has an entity tag of its own
// (that of plain JSON is the hash); the index has one too, and is called JSON;
// there is no Last-Modified, because servers would differ in it. A document that
// is this server's own as it stands is answered by the local chain, which
// compresses nothing: in that, and in Last-Modified, servers still differ.
//
// # Custom resources and aggregated APIs
//
// Which of them there are, and what their definitions say, is this server's
// knowledge alone: a peer's document may be older, or be kept of one that died.
// But a document of custom resources repeats what it shares with built-in
// resources (metadata, DeleteOptions, Status, Scale), and each release describes
// that in its own words. Where members disagree on the core group, it is
// therefore made anew: with the schemas of the core group of the member that
// wins, wherever these have a name, and else as it is here. So it is equal on
// every server that knows the same definitions, and follows a change of one as
// soon as this server's own document does. The kinds of DeleteOptions are then
// those of the core group only.
//
// That does not cover: a release that writes the paths of custom resources, or
// the schemas of their own, differently (1.36 and 1.37 do not); a schema that is
// shared and not in the core group; the time until the core group of the member
// that wins could be read, where the next one's is taken, or this server's own. A
// document that is not the right one yet has the hash of what it is.
//
// A document of an aggregated API comes from its own server through this one, and
// is passed on as it is. It is equal everywhere as long as the same server answers
// and tells OpenAPI v3; that of one that knows v2 only is converted by each
// kube-apiserver in the way of its release.
//
// # Cost
//
// For servers of 1.36 and 1.37 with the default APIs, on one core of an EPYC:
//
//   - OpenAPI v2 (2.3 MB of JSON): 0.5 s and 150 MB of short-lived memory to
//     merge, 0.6 s and 83 MB more for protobuf, 20 ms to compress. It is made in
//     the background when it is asked for and something changed, a custom resource
//     definition for instance, one at a time. Kept: 2.4 MB as JSON, 2.2 MB as
//     protobuf, 0.4 MB for each compressed, 0.3 MB for what a peer sent. Time and
//     memory grow with the size of the document, to which custom resources add.
//   - OpenAPI v3: 0.1 s and 23 MB for a document of 0.5 MB, 0.05 s for protobuf.
//     If all 50 are asked for in both forms, 20 MB are kept, and one of a peer's
//     documents compressed. Those of custom resources are not among them.
//   - Custom resources, in a cluster of two releases alone: 1.5 ms for each
//     document of 90 kB of which the index does not know the hash, so 3 s for 2,000
//     of them when a server of the other release joins, and 1.5 ms after a change of
//     one. (The local server takes 9 ms to make such a document.) Kept: 0.5 kB for
//     each, 64 documents of those asked for, the schemas of the core group (1 MB).
//   - In a cluster of one release nothing is merged, and no document is fetched
//     from a peer, only its index of 10 kB, every 10 s at most.
package openapi
