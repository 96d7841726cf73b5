package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// checkAgreement checks, when all is well and has been for long enough, that all
// servers give out the same documents, and that these hold what all of them
// serve.
func (w *world) checkAgreement() {
	for i, asked := range []ask{documents[0], documents[1], documents[3], documents[5]} {
		var first *outcome
		for _, id := range slices.Sorted(maps.Keys(w.lives)) {
			if w.lives[id].ending || w.lives[id].brand != "" {
				continue
			}
			o := &outcome{id: fmt.Sprintf("agreement %d at %s", i, id)}
			w.lives[id].send(asked, o)
			if first == nil {
				first = o
				w.checkUnion(o)
			}
			if o.code != first.code || !bytes.Equal(o.body, first.body) || o.header.Get("Etag") != first.header.Get("Etag") {
				w.violate("%s and %s differ:\n%s\n%s", first.id, o.id, first.body, o.body)
			}
		}
	}
}

// checkUnion checks that an aggregated document is what all servers serve.
func (w *world) checkUnion(o *outcome) {
	listed, err := listedIn(o)
	if err != nil || o.code >= 300 && listed != nil {
		w.violate("%s: %d, %v", o.id, o.code, err)
	}
	if listed == nil {
		return
	}
	union := table{}
	for _, l := range w.lives {
		if l.ending {
			continue
		}
		for r, verbs := range l.chain.serves() {
			if (o.ask.path == "/api") == (r.group == "") {
				union[r] = append(union[r], verbs...)
			}
		}
	}
	for _, t := range []table{listed, union} {
		for r := range t {
			slices.Sort(t[r])
			t[r] = slices.Compact(t[r])
		}
	}
	for r := range listed {
		if union[r] == nil {
			w.violate("%s: lists %s, which no one serves", o.id, r)
		}
	}
	for r, verbs := range union {
		if !slices.Equal(verbs, listed[r]) {
			w.violate("%s: lists %v of %s, not %v", o.id, listed[r], r, verbs)
		}
	}
}
