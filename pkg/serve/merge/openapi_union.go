package merge

import (
	"maps"
	"slices"
)

// suffixLength is how many digits of its identity the name of a component gets
// where another member has the name.
const suffixLength = 12

// apiUnion is what several documents have together.
type apiUnion struct {
	parts  []*part
	merged pieces
	// owners tell which member's component has a name as it is: the first
	// member's that has one.
	owners map[string]owner
	// renamed are the identities of the components that have another name.
	renamed map[string]string
	// from tells which member each merged component was taken from.
	from map[string]int
	// known are the kinds that schemas of the members before stand for.
	known map[string]bool
}

type owner struct {
	member   int
	identity string
}

// newUnionOf merges the parts. Of each operation the first member's is taken,
// and so of each component of a name. A later member's component that means
// something else is taken under another name, which depends on its meaning
// alone, if it stands for a kind of its own or if what is taken from this member
// refers to it.
func newUnionOf(parts []*part) (*pieces, error) {
	u := &apiUnion{
		parts:   parts,
		merged:  pieces{paths: map[string]pathItem{}, components: map[string]piece{}},
		owners:  map[string]owner{},
		renamed: map[string]string{},
		from:    map[string]int{},
		known:   map[string]bool{},
	}
	for i, p := range parts {
		for key := range p.live {
			if _, found := u.owners[key]; !found {
				u.owners[key] = owner{i, p.identities[key]}
			}
		}
	}
	for i := range parts {
		if err := u.add(i); err != nil {
			return nil, err
		}
	}
	for i := range parts {
		u.addRest(i)
	}
	u.uniteKinds()
	return &u.merged, nil
}

// add takes from a member what no member before it has.
func (u *apiUnion) add(member int) error {
	p := u.parts[member]
	var needed []string
	for _, path := range p.taken {
		used, err := u.addItem(member, path)
		if err != nil {
			return err
		}
		needed = append(needed, used...)
	}
	for _, key := range slices.Sorted(maps.Keys(p.live)) {
		if u.owners[key].member == member || slices.ContainsFunc(kindsOf(p.components[key]), u.isNewKind) {
			needed = append(needed, key)
		}
	}
	for key := range p.live {
		for _, kind := range kindsOf(p.components[key]) {
			u.known[kindKey(kind)] = true
		}
	}
	return u.addComponents(member, needed)
}

// addItem takes the operations at a path, and returns the components that they
// use.
func (u *apiUnion) addItem(member int, path string) ([]string, error) {
	p := u.parts[member]
	item := p.paths[path]
	merged, found := u.merged.paths[path]
	shell, err := u.renaming(member, item.shell, p.uses[place{path: path}])
	if err != nil {
		return nil, err
	}
	var needed []string
	if !found {
		merged = pathItem{shell: shell, operations: map[string]piece{}}
		needed = append(needed, p.uses[place{path: path}]...)
	}
	for _, method := range slices.Sorted(maps.Keys(item.operations)) {
		if merged.operations[method] != nil {
			continue
		}
		operation, err := u.renaming(member, item.operations[method], p.uses[place{path, method}])
		if err != nil {
			return nil, err
		}
		if found {
			operation = item.settle(operation, shell, merged.shell)
			needed = append(needed, p.uses[place{path: path}]...)
		}
		merged.operations[method] = operation
		needed = append(needed, p.uses[place{path, method}]...)
	}
	u.merged.paths[path] = merged
	return needed, nil
}

// addComponents takes components, and all that they refer to, under their names
// in the merged document.
func (u *apiUnion) addComponents(member int, needed []string) error {
	p := u.parts[member]
	seen := map[string]bool{}
	for len(needed) > 0 {
		key := needed[len(needed)-1]
		needed = needed[:len(needed)-1]
		if seen[key] {
			continue
		}
		seen[key] = true
		if owner := u.owners[key]; owner.member != member && owner.identity == p.identities[key] {
			continue // all that it refers to comes with the owner's
		}
		needed = append(needed, p.refers[key]...)
		name := u.name(member, key)
		if u.merged.components[name] != nil {
			continue
		}
		component, err := u.renaming(member, p.components[key], p.refers[key])
		if err != nil {
			return err
		}
		u.merged.components[name] = component
		u.from[name] = member
	}
	return nil
}

// name returns the name that a member's component has in the merged document.
func (u *apiUnion) name(member int, key string) string {
	identity := u.parts[member].identities[key]
	if u.owners[key].identity == identity {
		return key
	}
	name := key + "_" + identity[:suffixLength]
	for u.isTaken(name, identity) {
		name += "_"
	}
	u.renamed[name] = identity
	return name
}

func (u *apiUnion) isTaken(name, identity string) bool {
	if _, found := u.owners[name]; found {
		return true
	}
	other, found := u.renamed[name]
	return found && other != identity
}

// renaming returns a member's piece, which uses the given components, with its
// references renamed.
func (u *apiUnion) renaming(member int, it piece, uses []string) (piece, error) {
	p := u.parts[member]
	isRenamed := func(key string) bool { return p.live[key] && u.name(member, key) != key }
	if !slices.ContainsFunc(uses, isRenamed) {
		return it, nil
	}
	return rewritten(it, func(ref string) string {
		key, known := p.resolve(ref)
		if !known || !isRenamed(key) {
			return ref
		}
		return ref + u.name(member, key)[len(key):]
	})
}

// addRest takes what a member alone may bring. Nothing of it is renamed: a name
// that is there already means what is there.
func (u *apiUnion) addRest(member int) {
	p := u.parts[member]
	for _, path := range p.apart {
		if _, found := u.merged.paths[path]; !found {
			u.merged.paths[path] = p.paths[path]
		}
	}
	for key := range p.rest {
		if u.merged.components[key] == nil {
			u.merged.components[key] = p.components[key]
			u.from[key] = len(u.parts) + member
		}
	}
}
