package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Schemas are the schemas of a document of OpenAPI v3, as compact JSON by name.
type Schemas map[string][]byte

var errNoCompactJSON = errors.New("it is not compact JSON with schemas")

// SchemasV3 returns the schemas of a document of OpenAPI v3. They share memory.
func SchemasV3(document []byte) (Schemas, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, document); err != nil {
		return nil, fmt.Errorf("read the schemas of an OpenAPI document: %w", err)
	}
	schemas, _, err := schemasIn(compact.Bytes())
	return schemas, err
}

// OpenAPIV3Custom returns a server's document of custom resources as servers of
// any release make it: what the document shares with those of built-in
// resources (metadata, Status, Scale), each release describes in its own words,
// and here it is described as in shared. All else stays as it is, byte by byte,
// but for schemas that nothing leads to any more. Names that shared has mean what
// they mean there, as they do where [OpenAPIV3] merges excluded paths.
//
// The document must be compact JSON, as Kubernetes writes it.
func OpenAPIV3Custom(document []byte, shared Schemas) ([]byte, error) {
	own, at, err := schemasIn(document)
	if err != nil {
		return nil, err
	}
	schemas := maps.Clone(own)
	maps.Copy(schemas, shared)
	needed := schemas.reachable(document[:at.begin], document[at.end:])

	text := make([]byte, 0, len(document))
	text = append(text, document[:at.begin]...)
	separator := byte('{')
	for _, name := range needed {
		text = append(text, separator)
		text = append(text, quote(name)...)
		text = append(text, ':')
		text = append(text, schemas[name]...)
		separator = ','
	}
	if len(needed) == 0 {
		text = append(text, separator)
	}
	text = append(text, '}')
	return append(text, document[at.end:]...), nil
}

// reachable returns the names of the schemas that references lead to from the
// texts, sorted.
func (s Schemas) reachable(texts ...[]byte) []string {
	reached := map[string]bool{}
	for len(texts) > 0 {
		text := texts[len(texts)-1]
		texts = texts[:len(texts)-1]
		for _, ref := range references(text) {
			name, isSchema := strings.CutPrefix(ref, sectionV3+"schemas/")
			if s[name] == nil {
				name = unescaped(name)
			}
			if isSchema && s[name] != nil && !reached[name] {
				reached[name] = true
				texts = append(texts, s[name])
			}
		}
	}
	return slices.Sorted(maps.Keys(reached))
}

// schemasIn returns the schemas of a document in compact JSON, and where the
// object that holds them stands.
func schemasIn(document []byte) (Schemas, span, error) {
	at := span{0, len(document)}
	for _, name := range []string{"components", "schemas"} {
		fields, err := fieldsOf(document, at)
		if err != nil {
			return nil, span{}, err
		}
		var found bool
		if at, found = fields[name]; !found {
			return nil, span{}, errNoCompactJSON
		}
	}
	fields, err := fieldsOf(document, at)
	if err != nil {
		return nil, span{}, err
	}
	schemas := make(Schemas, len(fields))
	for name, value := range fields {
		schemas[name] = document[value.begin:value.end:value.end]
	}
	return schemas, at, nil
}

// fieldsOf returns where the values of an object stand in compact JSON. It skips
// over them instead of decoding them: a server may have thousands of documents.
func fieldsOf(text []byte, object span) (map[string]span, error) {
	if object.end-object.begin < len("{}") || text[object.begin] != '{' || text[object.end-1] != '}' {
		return nil, errNoCompactJSON
	}
	fields := map[string]span{}
	end := object.end - 1
	for at := object.begin + 1; at < end; at++ {
		colon := at + stringLength(text[at:end])
		var name string
		if colon >= end || text[colon] != ':' || json.Unmarshal(text[at:colon], &name) != nil {
			return nil, errNoCompactJSON
		}
		at = colon + 1 + valueLength(text[colon+1:end]) // at the comma, or the end
		fields[name] = span{colon + 1, at}
	}
	return fields, nil
}

// valueLength is the length of the value that a text in compact JSON begins
// with.
func valueLength(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringLength(text[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}
