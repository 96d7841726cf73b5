package merge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"peerproxy.internal/pkg/snapshot"
)

// Tests write an OpenAPI document as text, a line per operation and schema:
//
//	get /path Name Name      an operation that uses schemas
//	Name text Name Name      a schema, its description, what it refers to
//	Name text @g/v.K Name    one that stands for a kind

// openAPIVersion is v2 or v3, for tests that hold of both.
type openAPIVersion interface {
	// merge merges members whose documents are texts, and returns the result as
	// text.
	merge(t testing.TB, members ...apiMember) string
}

type apiMember struct {
	id       string
	state    snapshot.State
	text     string
	takes    func(string) bool
	excluded func(string) bool
}

type (
	inV2 struct{}
	inV3 struct{}
)

var bothVersions = map[string]openAPIVersion{"v2": inV2{}, "v3": inV3{}}

func (inV2) merge(t testing.TB, members ...apiMember) string {
	t.Helper()
	merged, err := OpenAPIV2(documentsOf(members, parseV2))
	if err != nil {
		t.Fatal(err)
	}
	return textV2(merged)
}

func (inV3) merge(t testing.TB, members ...apiMember) string {
	t.Helper()
	merged, err := OpenAPIV3(documentsOf(members, parseV3))
	if err != nil {
		t.Fatal(err)
	}
	return textV3(merged)
}

func documentsOf[D any](members []apiMember, parse func(string) *D) []OpenAPIMember[D] {
	var documents []OpenAPIMember[D]
	for _, m := range members {
		documents = append(documents, OpenAPIMember[D]{ServerID: m.id, State: m.state, Document: parse(m.text), Takes: m.takes, Excluded: m.excluded})
	}
	return documents
}

func parseV2(text string) *spec.Swagger {
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{Swagger: "2.0", Paths: &spec.Paths{Paths: map[string]spec.PathItem{}}, Definitions: spec.Definitions{}}}
	for words := range linesOf(text) {
		if !strings.HasPrefix(words[1], "/") {
			doc.Definitions[words[0]] = *schemaOf(definitionsV2, words[1:])
			continue
		}
		operation := &spec.Operation{}
		operation.ID = "in " + text
		for _, name := range words[2:] {
			operation.Parameters = append(operation.Parameters, spec.Parameter{ParamProps: spec.ParamProps{In: "body", Name: name, Schema: spec.RefSchema(definitionsV2 + name)}})
		}
		item := doc.Paths.Paths[words[1]]
		*methodsV2(&item)[words[0]] = operation
		doc.Paths.Paths[words[1]] = item
	}
	return doc
}

func parseV3(text string) *spec3.OpenAPI {
	doc := &spec3.OpenAPI{Version: "3.0.0", Paths: &spec3.Paths{Paths: map[string]*spec3.Path{}}, Components: &spec3.Components{Schemas: map[string]*spec.Schema{}}}
	for words := range linesOf(text) {
		if !strings.HasPrefix(words[1], "/") {
			doc.Components.Schemas[words[0]] = schemaOf(sectionV3+"schemas/", words[1:])
			continue
		}
		content := map[string]*spec3.MediaType{}
		for _, name := range words[2:] {
			content[name] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: spec.RefSchema(sectionV3 + "schemas/" + name)}}
		}
		item := doc.Paths.Paths[words[1]]
		if item == nil {
			item = &spec3.Path{}
			doc.Paths.Paths[words[1]] = item
		}
		*methodsV3(item)[words[0]] = &spec3.Operation{OperationProps: spec3.OperationProps{
			OperationId: "in " + text,
			RequestBody: &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Content: content}},
		}}
	}
	return doc
}

func linesOf(text string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); len(words) > 0 && !yield(words) {
				return
			}
		}
	}
}

// schemaOf nests references as real documents do: in properties, lists, maps
// and combinations.
func schemaOf(prefix string, words []string) *spec.Schema {
	schema := &spec.Schema{SchemaProps: spec.SchemaProps{Description: words[0]}}
	for i, word := range words[1:] {
		if group, isKind := strings.CutPrefix(word, "@"); isKind {
			gv, kind, _ := strings.Cut(group, ".")
			group, version, _ := strings.Cut(gv, "/")
			if schema.Extensions == nil {
				schema.Extensions = spec.Extensions{kindsKey: []any{}}
			}
			schema.Extensions[kindsKey] = append(schema.Extensions[kindsKey].([]any), map[string]any{"group": group, "version": version, "kind": kind})
			continue
		}
		nested := spec.RefSchema(prefix + word)
		switch i % 4 {
		case 1:
			nested = spec.ArrayProperty(nested)
		case 2:
			nested = spec.MapProperty(nested)
		case 3:
			nested = &spec.Schema{SchemaProps: spec.SchemaProps{AllOf: []spec.Schema{*nested}}}
		}
		schema.SetProperty(word, *nested)
	}
	return schema
}

func textV2(doc *spec.Swagger) string {
	var lines []string
	for path, item := range doc.Paths.Paths {
		for method, operation := range methodsV2(&item) {
			if *operation != nil {
				lines = append(lines, fmt.Sprint(method, " ", path, " ", strings.Join(refsIn(*operation, definitionsV2), " ")))
			}
		}
	}
	for name, schema := range doc.Definitions {
		lines = append(lines, schemaText(name, &schema, definitionsV2))
	}
	return normal(lines)
}

func textV3(doc *spec3.OpenAPI) string {
	var lines []string
	for path, item := range doc.Paths.Paths {
		for method, operation := range methodsV3(item) {
			if *operation != nil {
				lines = append(lines, fmt.Sprint(method, " ", path, " ", strings.Join(refsIn(*operation, sectionV3+"schemas/"), " ")))
			}
		}
	}
	for name, schema := range doc.Components.Schemas {
		lines = append(lines, schemaText(name, schema, sectionV3+"schemas/"))
	}
	return normal(lines)
}

func schemaText(name string, schema *spec.Schema, prefix string) string {
	words := []string{name, schema.Description}
	if kinds, ok := schema.Extensions[kindsKey].([]any); ok {
		for _, kind := range kinds {
			words = append(words, "@"+kindKey(kind))
		}
	}
	return strings.Join(append(words, refsIn(schema, prefix)...), " ")
}

func refsIn(it piece, prefix string) []string {
	text, err := it.MarshalJSON()
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, ref := range references(text) {
		names = append(names, strings.TrimPrefix(ref, prefix))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var suffixes = regexp.MustCompile(`_[0-9a-f]{12}\b`)

// normal returns the lines as one text. Suffixes are numbered, because tests
// can't know their digits.
func normal(lines []string) string {
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(lines)
	text := strings.Join(lines, "\n")
	numbers := map[string]string{}
	// By what they stand for, so that numbers do not depend on digits.
	for _, line := range slices.SortedFunc(slices.Values(lines), func(a, b string) int {
		return strings.Compare(suffixes.ReplaceAllString(a, ""), suffixes.ReplaceAllString(b, ""))
	}) {
		for _, suffix := range suffixes.FindAllString(line, -1) {
			if numbers[suffix] == "" {
				numbers[suffix] = fmt.Sprintf("_%d", len(numbers)+1)
			}
		}
	}
	lines = strings.Split(suffixes.ReplaceAllStringFunc(text, func(suffix string) string { return numbers[suffix] }), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// cleaned is a text as normal writes it.
func cleaned(text string) string {
	var lines []string
	for words := range linesOf(text) {
		lines = append(lines, strings.Join(words, " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
