package merge

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// kindsKey is the extension that names the kinds a schema stands for: a list of
// maps with group, version and kind.
const kindsKey = "x-kubernetes-group-version-kind"

// kindsOfAll tells which schemas of the merged document stand for a kind.
type kindsOfAll map[string]claim

// claim is the first member that has a schema for a kind, and the names that its
// schemas for the kind have in the merged document.
type claim struct {
	member int
	kind   any
	names  []string
}

// uniteKinds gives every schema the kinds that it stands for at the first member
// that knows the kind: clients look schemas up by kind, and some refuse a
// document in which two stand for the same
// (k8s.io/apimachinery/pkg/util/managedfields, NewGVKParser).
func (u *apiUnion) uniteKinds() {
	claims := kindsOfAll{}
	for i, p := range u.parts {
		for _, key := range slices.Sorted(maps.Keys(p.live)) {
			if name := u.name(i, key); u.merged.components[name] != nil {
				claims.add(i, name, kindsOf(p.components[key]))
			}
		}
	}
	for i, p := range u.parts {
		for _, key := range slices.Sorted(maps.Keys(p.rest)) {
			if from := len(u.parts) + i; u.from[key] == from {
				claims.add(from, key, kindsOf(p.components[key]))
			}
		}
	}
	lists := claims.lists()
	for name, component := range u.merged.components {
		if schema, ok := component.(*spec.Schema); ok && !sameKinds(kindsOf(schema), lists[name]) {
			u.merged.components[name] = withKindsOf(schema, lists[name])
		}
	}
}

func (c kindsOfAll) add(member int, name string, kinds []any) {
	for _, kind := range kinds {
		key := kindKey(kind)
		known, found := c[key]
		switch {
		case !found:
			c[key] = claim{member, kind, []string{name}}
		case known.member == member && !slices.Contains(known.names, name):
			known.names = append(known.names, name)
			c[key] = known
		}
	}
}

// lists returns the kinds of each schema, sorted.
func (c kindsOfAll) lists() map[string][]any {
	lists := map[string][]any{}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		for _, name := range c[key].names {
			lists[name] = append(lists[name], c[key].kind)
		}
	}
	return lists
}

// sameKinds reports whether two lists have the same kinds, in any order.
func sameKinds(a, b []any) bool {
	keys := func(list []any) []string {
		var keys []string
		for _, kind := range list {
			keys = append(keys, kindKey(kind))
		}
		slices.Sort(keys)
		return slices.Compact(keys)
	}
	return slices.Equal(keys(a), keys(b))
}

// kindsOf returns the kinds that a component stands for.
func kindsOf(component piece) []any {
	schema, ok := component.(*spec.Schema)
	if !ok {
		return nil
	}
	list, _ := schema.Extensions[kindsKey].([]any)
	return list
}

func (u *apiUnion) isNewKind(kind any) bool { return !u.known[kindKey(kind)] }

func kindKey(kind any) string {
	fields, ok := kind.(map[string]any)
	if !ok {
		return fmt.Sprint(kind)
	}
	return fmt.Sprintf("%v/%v.%v", fields["group"], fields["version"], fields["kind"])
}

func withKindsOf(schema *spec.Schema, list []any) *spec.Schema {
	changed := *schema
	changed.Extensions = maps.Clone(schema.Extensions)
	if len(list) == 0 {
		delete(changed.Extensions, kindsKey)
		return &changed
	}
	if changed.Extensions == nil {
		changed.Extensions = spec.Extensions{}
	}
	changed.Extensions[kindsKey] = list
	return &changed
}
