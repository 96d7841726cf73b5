// Package document serves the documents that are merged of what all members of
// the cluster serve: aggregated discovery v2 at /api and /apis, and legacy
// discovery at /apis, /apis/<group>, /apis/<group>/<version> and /api/v1, which
// is another view of the same facts. The lists of groups it also serves of what
// this server alone serves.
//
// [Server.Parse] tells whether a request asks for one, [Server.Look] what a
// snapshot knows of it, and [Server.Serve] answers with it. What members serve
// is merged when it is first asked for after it changed, and each representation
// of a document (JSON, protobuf and so on, compressed or not) is made when it is
// first asked for, once, however many requests wait for it. After that a request
// waits for no lock and encodes nothing. A change leaves the representations of
// documents that say the same as before. Only the documents of the latest
// snapshot that was asked about are kept, at most one for each path.
//
// Bodies and the choice of the representation are those of Kubernetes' own
// discovery (k8s.io/apiserver/pkg/endpoints/discovery, and aggregated below it).
// So is the entity tag of aggregated discovery, which all representations share.
// Each representation of a legacy document, which has none there, has its own.
package document
