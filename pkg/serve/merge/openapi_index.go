package merge

import (
	"cmp"
	"crypto/sha512"
	"fmt"
	"maps"
	"slices"

	"peerproxy.internal/pkg/snapshot"
)

// IndexMember is what one member brings to the merged index of OpenAPI v3.
type IndexMember struct {
	ServerID string
	// State is the member's state, StateServing for this server.
	State snapshot.State
	// Documents are those that are taken from the member, by name, such as
	// apis/apps/v1.
	Documents map[string]IndexedDocument
}

// IndexedDocument tells documents of one name apart.
type IndexedDocument struct {
	// Hash is that of the member's index. Documents of equal hashes are equal.
	Hash string
	// Apart names what of the document the other members may not bring (where the
	// member is this server), or what is not taken from it (where it is another),
	// empty for nothing.
	Apart string
}

// IndexEntry is a document of the merged index.
type IndexEntry struct {
	// Hash names the merged content: the members' own hash where all have the
	// same document.
	Hash string
	// Sources are the documents that it is merged of, each once, in the order in
	// which they win.
	Sources []IndexSource
}

// IndexSource is one of the documents that a merged one is made of.
type IndexSource struct {
	IndexedDocument
	// ServerIDs are the members that have it, sorted as they win.
	ServerIDs []string
}

// OpenAPIIndex merges the members' indexes: it returns every document that a
// member brings, by name. It needs none of the documents. The order of the
// members does not matter, their server IDs must differ.
func OpenAPIIndex(members []IndexMember) map[string]IndexEntry {
	merged := map[string]IndexEntry{}
	for _, member := range IndexOrder(members) {
		for name, document := range member.Documents {
			entry := merged[name]
			entry.add(document, member.ServerID)
			merged[name] = entry
		}
	}
	for name, entry := range merged {
		entry.Hash = HashOf(entry.Sources)
		merged[name] = entry
	}
	return merged
}

// IndexOrder returns the members in the order in which they win.
func IndexOrder(members []IndexMember) []IndexMember {
	return slices.SortedFunc(slices.Values(members), func(a, b IndexMember) int {
		return precedence(a.State, a.ServerID, b.State, b.ServerID)
	})
}

func (e *IndexEntry) add(document IndexedDocument, serverID string) {
	for i := range e.Sources {
		if e.Sources[i].IndexedDocument == document {
			e.Sources[i].ServerIDs = append(e.Sources[i].ServerIDs, serverID)
			return
		}
	}
	e.Sources = append(e.Sources, IndexSource{document, []string{serverID}})
}

// HashOf returns the hash of the document that is merged of the sources: it
// depends on their content and on which of them wins, not on who has them.
func HashOf(sources []IndexSource) string {
	if len(sources) == 1 && sources[0].Apart == "" {
		return sources[0].Hash
	}
	h := sha512.New()
	for _, source := range sources {
		fmt.Fprintf(h, "%q %q\n", source.Hash, source.Apart)
	}
	return fmt.Sprintf("%X", h.Sum(nil))
}

// Signature names a member's documents: members with equal signatures bring the
// same.
func (m IndexMember) Signature() string {
	h := sha512.New()
	for _, name := range slices.SortedFunc(maps.Keys(m.Documents), cmp.Compare[string]) {
		fmt.Fprintf(h, "%q %q %q\n", name, m.Documents[name].Hash, m.Documents[name].Apart)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
