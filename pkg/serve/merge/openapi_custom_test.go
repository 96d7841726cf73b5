package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/handler3"
)

// written is the document of a text, as a server writes it.
func written(t testing.TB, text string) []byte {
	t.Helper()
	document := parseV3(text)
	for _, item := range document.Paths.Paths {
		for _, operation := range methodsV3(item) {
			if *operation != nil {
				(*operation).OperationId = ""
			}
		}
	}
	made, err := document.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func schemasOf(t testing.TB, document []byte) Schemas {
	t.Helper()
	schemas, err := SchemasV3(document)
	if err != nil {
		t.Fatal(err)
	}
	return schemas
}

func custom(t testing.TB, document []byte, shared Schemas) []byte {
	t.Helper()
	made, err := OpenAPIV3Custom(document, shared)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestOpenAPIV3Custom(t *testing.T) {
	for name, test := range map[string]struct{ own, shared, want string }{
		"what is shared is described as there": {
			own:    "get /w Widget Status\nWidget w @g/v.W Meta\nMeta old\nStatus old",
			shared: "get /p Pod\nPod p Meta\nMeta new\nStatus new @/v1.Status",
			want:   "get /w Status Widget\nWidget w @g/v.W Meta\nMeta new\nStatus new @/v1.Status",
		},
		"what the shared schemas refer to comes with them": {
			own:    "get /w Widget\nWidget w Meta\nMeta old",
			shared: "Meta new Owner\nOwner o Time\nTime t",
			want:   "get /w Widget\nWidget w Meta\nMeta new Owner\nOwner o Time\nTime t",
		},
		"what nothing leads to any more goes": {
			own:    "get /w Widget\nWidget w Meta\nMeta old Gone\nGone g",
			shared: "Meta new",
			want:   "get /w Widget\nWidget w Meta\nMeta new",
		},
		"what is not shared stays": {
			own:    "get /w Widget Scale\nWidget w Widget Meta\nMeta old\nScale s Meta",
			shared: "Meta new",
			want:   "get /w Scale Widget\nWidget w Meta Widget\nMeta new\nScale s Meta",
		},
		"nothing is shared": {own: "get /w Widget\nWidget w", shared: "Meta new", want: "get /w Widget\nWidget w"},
		"circles":           {own: "get /w A\nA old B\nB old A", shared: "A new B", want: "get /w A\nA new B\nB old A"},
		"no schema is left": {own: "get /w\nGone g", shared: "Meta new", want: "get /w"},
	} {
		t.Run(name, func(t *testing.T) {
			made := custom(t, written(t, test.own), schemasOf(t, written(t, test.shared)))
			if got := textV3(parse3(t, string(made))); got != cleaned(test.want) {
				t.Errorf("got\n%s\nwant\n%s", got, cleaned(test.want))
			}
			if !json.Valid(made) {
				t.Errorf("not JSON: %s", made)
			}
		})
	}
}

func TestOpenAPIV3CustomKeepsTheRestByteByByte(t *testing.T) {
	const before = `{"x-first":[{"components":{"schemas":{}}},"} \" {"],"paths":{"/a":{"$ref":"#/components/schemas/a~1b"}},"components":{"x":{"$ref":"#/components/schemas/S"},"schemas":{`
	const own = `"A\u003c":{"default":{"components":{"schemas":{"S":1}}},"enum":["]",1e3,null]}`
	const after = `,"responses":{"r":{"$ref":"#/components/schemas/A\u003c"}}},"servers":[]}`
	document := before + own + `,"S":{"type":"old"},"a/b":{"type":"old"}}` + after
	got := string(custom(t, []byte(document), schemasOf(t, []byte(` { "components": { "schemas": {"S" : {"type":"new"}, "T" : { } } } } `))))
	if want := before + own + `,"S":{"type":"new"},"a/b":{"type":"old"}}` + after; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOpenAPIV3CustomOfWhatIsNoDocument(t *testing.T) {
	for _, text := range []string{
		"", "{}", "null", "{", "}", `{"components":{}}`, `{"components":[]}`, `{"components":{"schemas":[]}}`, `{"components":{"schemas":{}}`, `{"components":{"schemas":{"A":{}}`,
		`{"components" :{"schemas":{}}}`, `{ "components":{"schemas":{}}}`, `{"components":{"schemas":{"A" :{}}}}`, `{"components":{"schemas":{A:{}}}}`, `{"components":{"schemas":{"A"}}}`, `{"components":"schemas"}`, `{"x":"`, `{"x"`,
	} {
		if made, err := OpenAPIV3Custom([]byte(text), Schemas{"A": []byte("{}")}); err == nil {
			t.Errorf("%s: got %s and no error", text, made)
		}
	}
	for _, text := range []string{"", "{}", `{"components":{"schemas":{}}`, `{"components":{"schemas":[1]}}`} {
		if schemas, err := SchemasV3([]byte(text)); err == nil {
			t.Errorf("%s: got %v and no error", text, schemas)
		}
	}
}

// TestCustomResourcesOfRealServers has the documents of one group-version of
// custom resources at 1.36 and 1.37, and the schemas of their core group.
func TestCustomResourcesOfRealServers(t *testing.T) {
	old, young := readOpenAPI(t, "custom-1.36"), readOpenAPI(t, "custom-1.37")
	if bytes.Equal(old, young) {
		t.Fatal("the servers agree without any work")
	}
	for _, release := range []string{"1.36", "1.37"} {
		shared := schemasOf(t, readOpenAPI(t, "core-v1-shared-"+release))
		made := custom(t, old, shared)
		if other := custom(t, young, shared); !bytes.Equal(made, other) {
			t.Errorf("described as by %s, the servers disagree:\n%s\n%s", release, made, other)
		}
		schemas := schemasOf(t, made)
		for name, text := range schemasOf(t, young) {
			want := text
			if strings.HasPrefix(name, "io.k8s.") {
				want = shared[name]
			}
			if !bytes.Equal(schemas[name], want) {
				t.Errorf("described as by %s, %s is\n%s\nand not\n%s", release, name, schemas[name], want)
			}
		}
		document := parse3(t, string(made))
		wantProtobuf(t, "custom", document.MarshalJSON, handler3.ToV3ProtoBinary)
		types, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
		if err != nil {
			t.Fatal(err)
		}
		right := `{"apiVersion": "example.org/v1", "kind": "Foo", "metadata": {"name": "test", "labels": {"a": "b"}}, "spec": {"replicas": 1}}`
		if _, err := types.ObjectToTyped(objectOf(t, right)); err != nil {
			t.Error(err)
		}
		if _, err := types.ObjectToTyped(objectOf(t, strings.Replace(right, "labels", "lapels", 1))); err == nil {
			t.Error("an unknown field is valid")
		}
		if release == "1.36" {
			checkGolden(t, filepath.Join("openapi", "custom-made.json"), summary(apartV3(document)))
		}
	}
}

// TestOpenAPIV3CustomProperties has servers of two releases, which describe
// differently what custom resources share with others.
func TestOpenAPIV3CustomProperties(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 9))
		own := randomOwn(random)
		shared := []string{randomShared(random, "old"), randomShared(random, "new")}
		for _, winner := range shared {
			schemas := schemasOf(t, written(t, winner))
			first := custom(t, written(t, own+shared[0]), schemas)
			second := custom(t, written(t, own+shared[1]), schemas)
			if !bytes.Equal(first, second) {
				t.Fatalf("seed %d: the servers disagree:\n%s\n%s", seed, first, second)
			}
			if again := custom(t, first, schemas); !bytes.Equal(again, first) {
				t.Fatalf("seed %d: made again it is\n%s\nand not\n%s", seed, again, first)
			}
			made := parse3(t, string(first))
			for _, ref := range references(first) {
				if made.Components.Schemas[strings.TrimPrefix(ref, sectionV3+"schemas/")] == nil {
					t.Fatalf("seed %d: %s leads nowhere in\n%s", seed, ref, first)
				}
			}
			for name := range parseV3(own).Components.Schemas {
				if got, want := made.Components.Schemas[name], parseV3(own).Components.Schemas[name]; got == nil || !sameText(got, want) {
					t.Fatalf("seed %d: %s is %v", seed, name, got)
				}
			}
		}
	}
}

// randomOwn returns paths that use schemas A to D, and these, which refer to
// each other and to the shared S0 to S4.
func randomOwn(random *rand.Rand) string {
	names := strings.Fields("A B C D S0 S1 S2 S3 S4")
	var text strings.Builder
	for i, name := range names[:4] {
		fmt.Fprintf(&text, "get /%d %s\n%s own", i, name, name)
		for range random.IntN(4) {
			fmt.Fprintf(&text, " %s", names[random.IntN(len(names))])
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}

// randomShared returns what a release makes of S0 to S4, and of some that it
// alone has.
func randomShared(random *rand.Rand, release string) string {
	names := strings.Fields("S0 S1 S2 S3 S4 " + release)
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "%s %s", name, []string{release, "alike"}[random.IntN(2)])
		for range random.IntN(3) {
			fmt.Fprintf(&text, " %s", names[random.IntN(len(names))])
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}

func FuzzOpenAPIV3Custom(f *testing.F) {
	for _, a := range openAPISeeds {
		for _, b := range openAPISeeds {
			f.Add([]byte(a), []byte(b))
		}
	}
	f.Add([]byte(`{"components":{"schemas":{"A":{"$ref":"#/components/schemas/B"}},"x":{"$ref":"#/components/schemas/A"}}}`), []byte(`{"components":{"schemas":{"B":[1,"}"]}}}`))
	f.Fuzz(func(t *testing.T, document, other []byte) {
		shared, err := SchemasV3(other)
		if err != nil {
			return
		}
		made, err := OpenAPIV3Custom(document, shared)
		if err != nil || !json.Valid(document) {
			return
		}
		if !json.Valid(made) {
			t.Fatalf("not JSON: %s", made)
		}
		if again := custom(t, made, shared); !bytes.Equal(again, made) {
			t.Fatalf("made again it is\n%s\nand not\n%s", again, made)
		}
	})
}

func BenchmarkOpenAPIV3Custom(b *testing.B) {
	document := readOpenAPI(b, "custom-1.37")
	shared := schemasOf(b, readOpenAPI(b, "core-v1-shared-1.36"))
	b.SetBytes(int64(len(document)))
	b.ReportAllocs()
	for b.Loop() {
		custom(b, document, shared)
	}
}
