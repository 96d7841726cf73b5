// Package document serves the documents that are merged of what all members of
// the cluster serve: for now aggregated discovery v2 at /api and /apis.
//
// [Server.Parse] tells whether a request asks for one; [Server.Serve] answers
// it from a snapshot. A document is merged when it is first asked for after its
// content changed, and each of its representations (JSON, protobuf and so on,
// compressed or not) is made when it is first asked for, once, however many
// requests wait for it. After that a request costs neither lock nor encoding.
// Only the documents of the latest snapshot are kept.
//
// Bodies, entity tags and the choice of the representation are those of
// Kubernetes' own aggregated discovery
// (k8s.io/apiserver/pkg/endpoints/discovery/aggregated). As there, every
// representation of a document has the same entity tag.
package document
