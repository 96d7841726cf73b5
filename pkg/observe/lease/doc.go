// Package lease knows who the members of the control plane are.
//
// A member shows itself in two places. Its identity lease is a
// coordination.k8s.io/v1 Lease in kube-system that lives for an hour after the
// last renewal and tells its incarnation. Its endpoint record lives in etcd
// under /peerserverleases/<server ID> with a TTL of 15 s and tells where it can
// be reached; only who can write to etcd can write one, so this package takes
// addresses from nowhere else.
//
// A [Tracker] follows both and joins them by server ID. A [Storage] reads and
// writes the records.
package lease
