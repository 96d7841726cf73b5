package merge

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"peerproxy.internal/pkg/snapshot"
)

// ofVersion are the functions of one version of OpenAPI.
type ofVersion[D any] struct {
	parse   func(string) *D
	merge   func([]OpenAPIMember[D]) (*D, error)
	marshal func(*D) ([]byte, error)
	apart   func(*D) *pieces
}

var (
	propertiesV2 = ofVersion[spec.Swagger]{parseV2, OpenAPIV2, func(d *spec.Swagger) ([]byte, error) { return d.MarshalJSON() }, apartV2}
	propertiesV3 = ofVersion[spec3.OpenAPI]{parseV3, OpenAPIV3, func(d *spec3.OpenAPI) ([]byte, error) { return d.MarshalJSON() }, apartV3}
)

func TestOpenAPIProperties(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		var texts []string
		for range 1 + random.IntN(4) {
			texts = append(texts, randomDocument(random))
		}
		t.Run(fmt.Sprint("v2 ", seed), func(t *testing.T) { propertiesV2.check(t, random, membersOf(texts, propertiesV2.parse)) })
		t.Run(fmt.Sprint("v3 ", seed), func(t *testing.T) { propertiesV3.check(t, random, membersOf(texts, propertiesV3.parse)) })
	}
}

// randomDocument returns a document of few names, so that several have them, and
// few texts, so that they often mean the same. References lead somewhere.
func randomDocument(random *rand.Rand) string {
	var names []string
	for name := range strings.SplitSeq("ABCDEFGH", "") {
		if len(names) == 0 || random.IntN(4) > 0 {
			names = append(names, name)
		}
	}
	pick := func() string { return names[random.IntN(len(names))] }
	var text strings.Builder
	for range random.IntN(6) {
		fmt.Fprintf(&text, "%s /%d %s %s\n", []string{"get", "put"}[random.IntN(2)], random.IntN(4), pick(), pick())
	}
	for _, name := range names {
		fmt.Fprintf(&text, "%s %d", name, random.IntN(8)/7)
		for range random.IntN(4) {
			fmt.Fprintf(&text, " %s", pick())
		}
		if random.IntN(2) == 0 {
			fmt.Fprintf(&text, " @g/v%d.%s", random.IntN(2), pick())
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}

func membersOf[D any](texts []string, parse func(string) *D) []OpenAPIMember[D] {
	var members []OpenAPIMember[D]
	for i, text := range texts {
		members = append(members, OpenAPIMember[D]{ServerID: string(rune('a' + i)), State: snapshot.StateServing, Document: parse(text)})
	}
	return members
}

// check merges members, whose documents are taken as a whole, and fails unless
// all that must hold of any merge holds.
func (v ofVersion[D]) check(t *testing.T, random *rand.Rand, members []OpenAPIMember[D]) {
	t.Helper()
	before := v.texts(t, members)
	merged, err := v.merge(members)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(before, v.texts(t, members), bytes.Equal) {
		t.Fatal("the documents were changed")
	}
	want := v.text(t, merged)

	shuffled := slices.Clone(members)
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	v.wantSame(t, "in another order", shuffled, want)
	twice := slices.Clone(members)
	for _, m := range members {
		m.ServerID += "-twin"
		twice = append(twice, m)
	}
	v.wantSame(t, "with each member twice", twice, want)

	whole := meaningsOf(v.apart(merged))
	seen := map[place]bool{}
	for _, m := range inOrder(members) {
		nothingLost(t, m.ServerID, meaningsOf(v.apart(m.Document)), whole, seen)
	}
	kindsOnce(t, v, members, &whole.pieces)
}

func (v ofVersion[D]) wantSame(t *testing.T, how string, members []OpenAPIMember[D], want []byte) {
	t.Helper()
	merged, err := v.merge(members)
	if err != nil {
		t.Fatal(err)
	}
	if got := v.text(t, merged); !bytes.Equal(got, want) {
		t.Fatalf("%s: got\n%s\nwant\n%s", how, got, want)
	}
}

func (v ofVersion[D]) texts(t *testing.T, members []OpenAPIMember[D]) [][]byte {
	t.Helper()
	var texts [][]byte
	for _, m := range members {
		texts = append(texts, v.text(t, m.Document))
	}
	return texts
}

func (v ofVersion[D]) text(t *testing.T, document *D) []byte {
	t.Helper()
	text, err := v.marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// nothingLost fails unless every path, operation and component of a document is
// in the merged one, and means there what it meant to the first member that has
// it. seen are the operations and components of the members before.
func nothingLost(t *testing.T, id string, doc, merged *meanings, seen map[place]bool) {
	t.Helper()
	compare := func(at place, own, other piece) {
		t.Helper()
		if other == nil {
			t.Fatalf("%s: lost %v", id, at)
		}
		if seen[at] {
			return
		}
		seen[at] = true
		if got, want := merged.of(t, other, 4), doc.of(t, own, 4); got != want {
			t.Fatalf("%s: %v means\n%s\nand not\n%s", id, at, got, want)
		}
	}
	for path, item := range doc.paths {
		if _, found := merged.paths[path]; !found {
			t.Fatalf("%s: lost %s", id, path)
		}
		for method, operation := range item.operations {
			compare(place{path, method}, operation, merged.paths[path].operations[method])
		}
	}
	for key, component := range doc.components {
		compare(place{path: key}, component, merged.components[key])
	}
}

// meanings are what the pieces of a document mean, as far as it was asked for.
type meanings struct {
	part
	known map[place]string
}

func meaningsOf(doc *pieces) *meanings { return &meanings{part{pieces: *doc}, map[place]string{}} }

// of is a piece with its references followed, to a depth, and without names and
// kinds.
func (m *meanings) of(t *testing.T, it piece, depth int) string {
	t.Helper()
	text, err := withoutKinds(it).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(rewriteReferences(text, func(ref string) string {
		key, found := m.resolve(ref)
		switch {
		case !found:
			return "nothing"
		case depth == 0:
			return "something"
		}
		at := place{key, strconv.Itoa(depth)}
		if m.known[at] == "" {
			sum := sha256.Sum256([]byte(m.of(t, m.components[key], depth-1)))
			m.known[at] = hex.EncodeToString(sum[:8])
		}
		return m.known[at]
	}))
}

// kindsOnce fails if a kind of some member is lost, or stands at two schemas
// that no member has both of.
func kindsOnce[D any](t *testing.T, v ofVersion[D], members []OpenAPIMember[D], merged *pieces) {
	t.Helper()
	got := schemasByKind(merged)
	for _, m := range members {
		for kind, own := range schemasByKind(v.apart(m.Document)) {
			if len(got[kind]) == 0 {
				t.Fatalf("%s: lost kind %s of %v", m.ServerID, kind, own)
			}
		}
	}
	for kind, keys := range got {
		sameMember := func(m OpenAPIMember[D]) bool { return len(schemasByKind(v.apart(m.Document))[kind]) >= len(keys) }
		if len(keys) > 1 && !slices.ContainsFunc(members, sameMember) {
			t.Fatalf("kind %s stands at %v", kind, keys)
		}
	}
}

func schemasByKind(doc *pieces) map[string][]string {
	schemas := map[string][]string{}
	for key, component := range doc.components {
		for _, kind := range kindsOf(component) {
			schemas[kindKey(kind)] = append(schemas[kindKey(kind)], key)
		}
	}
	return schemas
}

func newRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
