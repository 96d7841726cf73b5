package house

import (
	"slices"
	"testing"
)

// TestTable checks the import table itself: no way leads from a room back to
// it, and none from one wing into the other.
func TestTable(t *testing.T) {
	for _, from := range rooms {
		for _, to := range reachable(from.dir) {
			if to == from.dir {
				t.Errorf("%s reaches itself", from.dir)
			}
			if within(from.dir, "pkg/observe") && within(to, "pkg/serve") ||
				within(from.dir, "pkg/serve") && within(to, "pkg/observe") {
				t.Errorf("%s reaches %s in the other wing", from.dir, to)
			}
		}
	}
}

// reachable returns the rooms that a package in dir may come to link.
func reachable(dir string) []string {
	var seen []string
	pending := []string{dir}
	for len(pending) > 0 {
		current := pending[0]
		pending = pending[1:]
		row := slices.IndexFunc(rooms, func(r room) bool { return r.dir == current })
		for _, next := range rooms {
			if next.dir == current || !rooms[row].allowsInside(next.dir) || slices.Contains(seen, next.dir) {
				continue
			}
			seen = append(seen, next.dir)
			pending = append(pending, next.dir)
		}
	}
	return seen
}
