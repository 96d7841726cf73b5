package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// refToken begins a reference in compact JSON. It can't stand within a string,
// where its quotation marks would be escaped; and a property that is called
// $ref has an object for its value.
var refToken = []byte(`"$ref":"`)

// references yields every reference in compact JSON, with where its string
// begins and ends.
func references(text []byte) func(yield func(span, string) bool) {
	return func(yield func(span, string) bool) {
		for at := 0; ; {
			next := bytes.Index(text[at:], refToken)
			if next < 0 {
				return
			}
			begin := at + next + len(refToken) - 1
			at = begin + stringLength(text[begin:])
			var ref string
			if json.Unmarshal(text[begin:at], &ref) == nil && !yield(span{begin, at}, ref) {
				return
			}
		}
	}
}

type span struct{ begin, end int }

// rewriteReferences returns compact JSON with every reference replaced by what f
// makes of it.
func rewriteReferences(text []byte, f func(ref string) string) []byte {
	var changed []byte
	done := 0
	for at, ref := range references(text) {
		changed = append(changed, text[done:at.begin]...)
		changed = append(changed, quote(f(ref))...)
		done = at.end
	}
	return append(changed, text[done:]...)
}

// stringLength is the length of the JSON string that a text begins with.
func stringLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func quote(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // unreachable: a string is always valid
	}
	return text
}

// unescaped is a reference with its JSON pointer escapes undone (RFC 6901,
// section 3).
func unescaped(ref string) string {
	if !strings.Contains(ref, "~") {
		return ref
	}
	return strings.ReplaceAll(strings.ReplaceAll(ref, "~1", "/"), "~0", "~")
}

// rewritten returns a copy of a piece in which every reference is replaced by
// what f makes of it.
func rewritten(it piece, f func(ref string) string) (piece, error) {
	text, err := it.MarshalJSON()
	if err != nil {
		return nil, err
	}
	copied := reflect.New(reflect.TypeOf(it).Elem()).Interface()
	if err := json.Unmarshal(rewriteReferences(text, f), copied); err != nil {
		return nil, fmt.Errorf("rewrite references: %w", err)
	}
	return copied.(piece), nil
}
