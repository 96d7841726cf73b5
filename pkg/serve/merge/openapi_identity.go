package merge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// identities returns what the components mean: two components of whichever
// documents have the same identity if they, and all that references lead to
// from them, have the same names and texts. References may go in circles; those
// to components that are not there count as text alone. The time it takes grows
// with the number of references, whatever they are.
func identities(components map[string]bool, refers map[string][]string, texts map[string][sha256.Size]byte) map[string]string {
	found := make(map[string]string, len(components))
	for _, circle := range circles(components, refers) {
		slices.Sort(circle)
		within := map[string]bool{}
		beyond := map[string]bool{}
		for _, key := range circle {
			within[key] = true
		}
		h := sha256.New()
		for _, key := range circle {
			fmt.Fprintf(h, "%q %x\n", key, texts[key])
			for _, next := range refers[key] {
				if !within[next] && components[next] {
					beyond[found[next]] = true
				}
			}
		}
		for _, identity := range slices.Sorted(maps.Keys(beyond)) {
			fmt.Fprintln(h, identity)
		}
		sum := h.Sum(nil)
		for _, key := range circle {
			own := sha256.Sum256(fmt.Appendf(nil, "%q %x", key, sum))
			found[key] = hex.EncodeToString(own[:])
		}
	}
	return found
}

// circles returns the strongly connected components of the graph, each after
// all that references lead to from it: Tarjan's algorithm, with a stack of its
// own instead of recursion, because a peer decides how deep it goes.
func circles(components map[string]bool, refers map[string][]string) [][]string {
	s := search{components: components, refers: refers, index: map[string]int{}, low: map[string]int{}, waiting: map[string]bool{}}
	for _, key := range slices.SortedFunc(maps.Keys(components), cmp.Compare[string]) {
		if s.index[key] == 0 {
			s.visit(key)
		}
	}
	return s.found
}

type search struct {
	components map[string]bool
	refers     map[string][]string
	// index counts the visited from 1, low is the lowest index known to be
	// reachable.
	index, low map[string]int
	stack      []string
	waiting    map[string]bool
	found      [][]string
}

// frame is a component on its way, and how many of its references are done.
type frame struct {
	key  string
	done int
}

func (s *search) visit(root string) {
	path := []frame{s.enter(root)}
	for len(path) > 0 {
		top := &path[len(path)-1]
		if top.done < len(s.refers[top.key]) {
			next := s.refers[top.key][top.done]
			top.done++
			switch {
			case !s.components[next]:
			case s.index[next] == 0:
				path = append(path, s.enter(next))
			case s.waiting[next]:
				s.low[top.key] = min(s.low[top.key], s.index[next])
			}
			continue
		}
		key := top.key
		path = path[:len(path)-1]
		if len(path) > 0 {
			below := path[len(path)-1].key
			s.low[below] = min(s.low[below], s.low[key])
		}
		s.leave(key)
	}
}

func (s *search) enter(key string) frame {
	s.index[key] = len(s.index) + 1
	s.low[key] = s.index[key]
	s.stack = append(s.stack, key)
	s.waiting[key] = true
	return frame{key: key}
}

// leave takes a circle off the stack if key is its first.
func (s *search) leave(key string) {
	if s.low[key] != s.index[key] {
		return
	}
	begin := len(s.stack) - 1
	for s.stack[begin] != key {
		begin--
	}
	circle := slices.Clone(s.stack[begin:])
	s.stack = s.stack[:begin]
	for _, member := range circle {
		s.waiting[member] = false
	}
	s.found = append(s.found, circle)
}
