package merge

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// piece is a pointer to a part of a document: an operation, a schema and so on.
// It is never changed.
type piece = json.Marshaler

// pieces is a document taken apart.
type pieces struct {
	paths map[string]pathItem
	// components are what others refer to, by the reference that names them, such
	// as #/definitions/io.k8s.api.core.v1.Pod.
	components map[string]piece
}

// pathItem is what a document has at a path.
type pathItem struct {
	// shell is the item without its operations.
	shell piece
	// operations are by method.
	operations map[string]piece
	// settle returns an operation of this item, whose shell is own, so that it
	// means the same in another shell.
	settle func(operation, own, other piece) piece
}

// place is where an operation stands; without a method, a whole item.
type place struct{ path, method string }

// part is a member's document, and what is known of its pieces.
type part struct {
	pieces
	// uses are the components that the pieces refer to.
	uses map[place][]string
	// refers are the components that a component refers to.
	refers map[string][]string
	// identities are equal for components that mean the same, whichever document
	// they stand in: with the same name and content, and so all that they refer to.
	identities map[string]string

	// taken are the paths that the document brings, live the components that they
	// use, and those that no path uses at all.
	taken []string
	live  map[string]bool
	// apart are the paths that no other member may bring, rest the components
	// that they alone use.
	apart []string
	rest  map[string]bool
}

func newPart(doc *pieces, takes, excluded func(string) bool) (*part, error) {
	p := &part{pieces: *doc, uses: map[place][]string{}, refers: map[string][]string{}}
	texts := map[string][sha256.Size]byte{}
	for key, component := range p.components {
		text, err := withoutKinds(component).MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", key, err)
		}
		texts[key] = sha256.Sum256(text)
		p.refers[key] = p.componentsIn(text)
	}
	for path, item := range p.paths {
		if err := p.learn(place{path: path}, item.shell); err != nil {
			return nil, err
		}
		for method, operation := range item.operations {
			if err := p.learn(place{path, method}, operation); err != nil {
				return nil, err
			}
		}
	}
	p.sort(takes, excluded)
	p.identities = identities(p.live, p.refers, texts)
	return p, nil
}

// learn notes what a piece at a place uses.
func (p *part) learn(at place, it piece) error {
	text, err := it.MarshalJSON()
	if err != nil {
		return fmt.Errorf("%s %s: %w", at.method, at.path, err)
	}
	p.uses[at] = p.componentsIn(text)
	return nil
}

// componentsIn returns the document's components that a text refers to, sorted.
func (p *part) componentsIn(text []byte) []string {
	found := map[string]bool{}
	for _, ref := range references(text) {
		if key, known := p.resolve(ref); known {
			found[key] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// resolve returns the component that a reference names.
func (p *part) resolve(ref string) (string, bool) {
	if _, found := p.components[ref]; found {
		return ref, true
	}
	key := unescaped(ref)
	_, found := p.components[key]
	return key, found
}

// sort tells apart what is taken, what is excluded, and what is left out.
func (p *part) sort(takes, excluded func(string) bool) {
	for _, path := range slices.Sorted(maps.Keys(p.paths)) {
		switch {
		case excluded != nil && excluded(path):
			p.apart = append(p.apart, path)
		case takes == nil || takes(path):
			p.taken = append(p.taken, path)
		}
	}
	used := p.reachable(p.usedBy(slices.Collect(maps.Keys(p.paths))))
	roots := p.usedBy(p.taken)
	for key := range p.components {
		if !used[key] {
			roots = append(roots, key)
		}
	}
	p.live = p.reachable(roots)
	p.rest = p.reachable(p.usedBy(p.apart))
	maps.DeleteFunc(p.rest, func(key string, _ bool) bool { return p.live[key] })
}

// usedBy returns the components that the items at paths refer to.
func (p *part) usedBy(paths []string) []string {
	var keys []string
	for _, path := range paths {
		keys = append(keys, p.uses[place{path: path}]...)
		for method := range p.paths[path].operations {
			keys = append(keys, p.uses[place{path, method}]...)
		}
	}
	return keys
}

// reachable returns the components that references lead to from some of them.
func (p *part) reachable(from []string) map[string]bool {
	reached := map[string]bool{}
	for len(from) > 0 {
		key := from[len(from)-1]
		from = from[:len(from)-1]
		if !reached[key] {
			reached[key] = true
			from = append(from, p.refers[key]...)
		}
	}
	return reached
}

// withoutKinds returns a schema without the kinds that it stands for, anything
// else as it is. Members that serve other versions name other kinds for the
// same schema.
func withoutKinds(it piece) piece {
	schema, ok := it.(*spec.Schema)
	if !ok || schema.Extensions[kindsKey] == nil {
		return it
	}
	bare := *schema
	bare.Extensions = maps.Clone(schema.Extensions)
	delete(bare.Extensions, kindsKey)
	if len(bare.Extensions) == 0 {
		bare.Extensions = nil
	}
	return &bare
}

// sameText reports whether two pieces are written alike.
func sameText(a, b piece) bool {
	textA, errA := a.MarshalJSON()
	textB, errB := b.MarshalJSON()
	return errA == nil && errB == nil && bytes.Equal(textA, textB)
}

// take adds components to those of a document.
func take[T interface {
	comparable
	piece
}](p *pieces, prefix string, components map[string]T) {
	var absent T
	for name, component := range components {
		if component != absent {
			p.components[prefix+name] = component
		}
	}
}

// given returns the components whose references begin with a prefix, by name.
func given[T piece](p *pieces, prefix string) map[string]T {
	var components map[string]T
	for key, component := range p.components {
		name, found := strings.CutPrefix(key, prefix)
		if !found {
			continue
		}
		if components == nil {
			components = map[string]T{}
		}
		components[name] = component.(T)
	}
	return components
}
