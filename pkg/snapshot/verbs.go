package snapshot

// Verbs is a set of request verbs, as the server's RequestInfo resolver and
// discovery documents name them.
type Verbs uint16

// VerbsOf returns the set of the named verbs. Names that can't be routed are
// left out.
func VerbsOf(names ...string) Verbs {
	var set Verbs
	for _, name := range names {
		set |= verbOf(name)
	}
	return set
}

// Has reports whether the set holds every verb of o, and o is not empty.
func (v Verbs) Has(o Verbs) bool { return o != 0 && v&o == o }

// verbOf returns the set of one verb that can be routed. RequestInfo has two more,
// the empty one (OPTIONS and unknown methods) and "proxy" (a legacy path prefix);
// no discovery document lists either.
func verbOf(name string) Verbs {
	switch name {
	case "get":
		return 1 << 0
	case "list":
		return 1 << 1
	case "watch":
		return 1 << 2
	case "create":
		return 1 << 3
	case "update":
		return 1 << 4
	case "patch":
		return 1 << 5
	case "delete":
		return 1 << 6
	case "deletecollection":
		return 1 << 7
	}
	return 0
}
