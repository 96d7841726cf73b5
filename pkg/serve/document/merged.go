package document

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"peerproxy.internal/pkg/snapshot"
)

// merged is what all members serve together at a path, as one view has it.
type merged struct {
	key    string
	groups func() []apidiscoveryv2.APIGroupDiscovery
	// document is the aggregated one.
	document *document
}

func (s *Server) newMerged(view snapshot.View) *merged {
	groups := sync.OnceValue(func() []apidiscoveryv2.APIGroupDiscovery { return s.merge(view.Sources) })
	return &merged{
		key:      view.Key,
		groups:   groups,
		document: s.newDocument(aggregatedList(groups), sync.OnceValues(func() ([]string, error) { return listTag(groups()) })),
	}
}

// aggregatedList is the content of aggregated discovery.
type aggregatedList func() []apidiscoveryv2.APIGroupDiscovery

func (groups aggregatedList) object() runtime.Object {
	return &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: Aggregated.String(), APIVersion: groupVersion.String()},
		Items:    groups(),
	}
}

// listTag computes the entity tag as upstream does: of the list's JSON without
// its type.
func listTag(groups []apidiscoveryv2.APIGroupDiscovery) ([]string, error) {
	data, err := json.Marshal(apidiscoveryv2.APIGroupDiscoveryList{Items: groups})
	if err != nil {
		return nil, fmt.Errorf("computing the merged document's entity tag: %w", err)
	}
	return []string{fmt.Sprintf(`"%X"`, sha512.Sum512(data))}, nil
}

// latest returns what p holds if that fits, else what next makes of it, which it
// puts in its place, and whether it fitted. The values of calls at the same time
// are the same.
func latest[T any](p *atomic.Pointer[T], fits func(*T) bool, next func(last *T) *T) (value *T, fitted bool) {
	for {
		last := p.Load()
		if last != nil && fits(last) {
			return last, true
		}
		value := next(last)
		if p.CompareAndSwap(last, value) {
			return value, false
		}
	}
}
