package merge

import (
	"cmp"
	"errors"
	"slices"

	"peerproxy.internal/pkg/snapshot"
)

// OpenAPIMember is one member's part in a merged OpenAPI document.
type OpenAPIMember[D any] struct {
	ServerID string
	// State is the member's state, StateServing for this server.
	State snapshot.State
	// Document is what the member serves; nil brings nothing.
	Document *D
	// Takes reports whether a path is taken from the document; nil takes all.
	// What only the other paths use is left out with them.
	Takes func(path string) bool
	// Excluded reports whether a path is one that other members may not bring.
	// Set for this server alone. Such paths, and what only they use, come last:
	// where they use a name that the members' own content has, they mean that
	// content, so that every server makes the same of them.
	Excluded func(path string) bool
}

// ErrNoDocument is returned where no member brings a document.
var ErrNoDocument = errors.New("no member brings an OpenAPI document")

// inOrder returns the members that bring something, in the order in which they
// win: the settled ones by server ID, then the starting ones.
func inOrder[D any](members []OpenAPIMember[D]) []OpenAPIMember[D] {
	members = slices.DeleteFunc(slices.Clone(members), func(m OpenAPIMember[D]) bool { return m.Document == nil })
	slices.SortFunc(members, func(a, b OpenAPIMember[D]) int { return precedence(a.State, a.ServerID, b.State, b.ServerID) })
	return members
}

// precedence compares members as [Discovery] does.
func precedence(a snapshot.State, idA string, b snapshot.State, idB string) int {
	return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(idA, idB))
}

func rankOf(state snapshot.State) int { return rank(snapshot.Source{State: state}) }

// alone returns the one document that is the result as it stands, if there is
// such a one.
func alone[D any](members []OpenAPIMember[D]) (*D, bool) {
	if len(members) != 1 || members[0].Takes != nil || members[0].Excluded != nil {
		return nil, false
	}
	return members[0].Document, true
}

// mergeOpenAPI merges documents that apart takes to pieces; together makes one
// document of the first one's head and the merged pieces.
func mergeOpenAPI[D any](members []OpenAPIMember[D], apart func(*D) *pieces, together func(*D, *pieces) *D) (*D, error) {
	members = inOrder(members)
	if len(members) == 0 {
		return nil, ErrNoDocument
	}
	if only, found := alone(members); found {
		return only, nil
	}
	parts := make([]*part, 0, len(members))
	for _, member := range members {
		next, err := newPart(apart(member.Document), member.Takes, member.Excluded)
		if err != nil {
			return nil, &DocumentError{ServerID: member.ServerID, Err: err}
		}
		parts = append(parts, next)
	}
	merged, err := newUnionOf(parts)
	if err != nil {
		return nil, err
	}
	return together(members[0].Document, merged), nil
}

// DocumentError says that a member's document can't be merged.
type DocumentError struct {
	ServerID string
	Err      error
}

func (e *DocumentError) Error() string {
	return "OpenAPI document of " + e.ServerID + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *DocumentError) Unwrap() error { return e.Err }
