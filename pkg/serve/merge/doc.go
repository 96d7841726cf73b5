// Package merge makes one document of the documents of all members of the
// cluster. It holds pure functions: what they return depends on their arguments
// alone, so that every server makes the same bytes of the same news, and their
// arguments are never changed.
//
// The rules are those of Kubernetes' own peer-aggregated discovery (package
// k8s.io/apiserver/pkg/endpoints/discovery/aggregated), and where no member is
// starting or out of reach, nothing is excluded and the members leave no order
// of versions open, the result is the same as there. The differences:
//
//   - Where members leave the order of versions open, or contradict each other,
//     the version that Kubernetes prefers comes first (v2 before v1), not the
//     one that comes first in the alphabet.
//   - Verbs of a subresource that several members have are united, not taken
//     from the last.
//   - The order takes excluded names of every member into account, so that it
//     does not depend on which server merges.
//   - What only starting members have comes after everything else.
//   - A version that only members out of reach list is marked stale.
//   - No response kind is nil.
package merge
