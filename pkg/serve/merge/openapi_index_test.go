package merge

import (
	"reflect"
	"testing"

	"peerproxy.internal/pkg/snapshot"
)

// indexed returns a member with documents given as name, hash, name, hash.
func indexed(id string, state snapshot.State, documents ...string) IndexMember {
	m := IndexMember{ServerID: id, State: state, Documents: map[string]IndexedDocument{}}
	for i := 0; i < len(documents); i += 2 {
		m.Documents[documents[i]] = IndexedDocument{Hash: documents[i+1]}
	}
	return m
}

func TestOpenAPIIndexKeepsTheHashOfWhatAllHaveAlike(t *testing.T) {
	merged := OpenAPIIndex([]IndexMember{
		indexed("a", serving, "api/v1", "1", "apis/old/v1", "2"),
		indexed("b", serving, "api/v1", "1", "apis/new/v1", "3"),
	})
	for name, want := range map[string]string{"api/v1": "1", "apis/old/v1": "2", "apis/new/v1": "3"} {
		if got := merged[name].Hash; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := merged["api/v1"].Sources; len(got) != 1 || !reflect.DeepEqual(got[0].ServerIDs, []string{"a", "b"}) {
		t.Errorf("got sources %v", got)
	}
}

func TestOpenAPIIndexHashDependsOnContentAndWhoWins(t *testing.T) {
	hash := func(members ...IndexMember) string { return OpenAPIIndex(members)["x"].Hash }
	want := hash(indexed("a", serving, "x", "1"), indexed("b", serving, "x", "2"))
	if want == "1" || want == "2" || len(want) != 128 {
		t.Errorf("got hash %q", want)
	}
	for name, got := range map[string]string{
		"in another order":       hash(indexed("b", serving, "x", "2"), indexed("a", serving, "x", "1")),
		"with one more of each":  hash(indexed("a", serving, "x", "1"), indexed("b", serving, "x", "2"), indexed("c", serving, "x", "2"), indexed("d", serving, "x", "1")),
		"with other IDs":         hash(indexed("k", serving, "x", "1"), indexed("l", serving, "x", "2")),
		"with one that starts":   hash(indexed("0", snapshot.StateStarting, "x", "2"), indexed("a", serving, "x", "1")),
		"with one that lacks it": hash(indexed("0", serving, "y", "2"), indexed("a", serving, "x", "1"), indexed("b", serving, "x", "2")),
	} {
		if got != want {
			t.Errorf("%s it is another hash", name)
		}
	}
	apart := indexed("b", serving, "x", "2")
	apart.Documents["x"] = IndexedDocument{Hash: "2", Apart: "widgets"}
	for name, got := range map[string]string{
		"when the other wins":   hash(indexed("b", serving, "x", "1"), indexed("a", serving, "x", "2")),
		"when a third differs":  hash(indexed("a", serving, "x", "1"), indexed("b", serving, "x", "2"), indexed("c", serving, "x", "3")),
		"when some is left out": hash(indexed("a", serving, "x", "1"), apart),
	} {
		if got == want {
			t.Errorf("%s it is the same hash", name)
		}
	}
	if got := hash(apart); got == "2" {
		t.Error("a document of which some is left out has the hash of the whole one")
	}
}

func TestIndexSignature(t *testing.T) {
	a := indexed("a", serving, "x", "1", "y", "2")
	if a.Signature() != indexed("b", snapshot.StateStarting, "y", "2", "x", "1").Signature() {
		t.Error("members with the same documents have different signatures")
	}
	if a.Signature() == indexed("a", serving, "x", "1", "y", "3").Signature() {
		t.Error("members with different documents have the same signature")
	}
}
