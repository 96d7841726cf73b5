package document

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"peerproxy.internal/pkg/snapshot"
)

// Standing is what a snapshot knows of a document.
type Standing int

// The standings of a document.
const (
	// Listed: it can be served.
	Listed Standing = iota
	// Stale: it is about a group-version that only members out of reach serve.
	Stale
	// Backed: it is about a group-version of an aggregated API, whose backend
	// answers for itself.
	Backed
	// Missing: no member serves what it is about.
	Missing
	// InDoubt: no one known serves it, and what some member serves is not known.
	InDoubt
)

// Answer is a document that was looked for.
type Answer struct {
	// Standing tells what is known of it.
	Standing Standing
	// document is set if it is Listed.
	document *document
}

// Look returns the document that a request asks for, merged of what all members
// in the snapshot serve.
func (s *Server) Look(snap *snapshot.Snapshot, request Request) Answer {
	view := snap.View(request.Path)
	if request.Kind == Aggregated {
		all, known := s.mergedOf(request.Path, view)
		if known {
			aggregated.PeerAggregatedCacheHitsCounter.Inc()
		} else {
			aggregated.PeerAggregatedCacheMissesCounter.Inc()
		}
		return Answer{Standing: Listed, document: all.document}
	}
	documents, _ := latest(&s.legacy[request.Path],
		func(l *legacy) bool { return l.key == view.Key },
		func(last *legacy) *legacy {
			all, _ := s.mergedOf(request.Path, view)
			return s.newLegacy(view.Key, all.groups, backedIn(view), last)
		})
	standing, doc := documents.documents().find(request.Kind, request.GroupVersion)
	if standing == Missing && snap.InDoubt(request.GroupVersion) {
		standing = InDoubt
	}
	return Answer{Standing: standing, document: doc}
}

// LookAlone returns the document that a request for Groups or a Group asks for,
// made of what this server alone serves. The snapshot must know that.
func (s *Server) LookAlone(snap *snapshot.Snapshot, request Request) Answer {
	list := request.Path.Of(snap.Local())
	documents, _ := latest(&s.alone,
		func(l *legacy) bool { return l.key == list.ETag },
		func(last *legacy) *legacy {
			groups := func() []apidiscoveryv2.APIGroupDiscovery { return list.Items }
			return s.newLegacy(list.ETag, groups, func(schema.GroupVersion) bool { return false }, last)
		})
	standing, doc := documents.documents().find(request.Kind, request.GroupVersion)
	return Answer{Standing: standing, document: doc}
}

// mergedOf returns what the view's members serve together, and whether that was
// known. The first to ask for a new content puts it in the place of the old one.
func (s *Server) mergedOf(path snapshot.Path, view snapshot.View) (all *merged, known bool) {
	return latest(&s.merged[path],
		func(m *merged) bool { return m.key == view.Key },
		func(*merged) *merged { return s.newMerged(view) })
}
