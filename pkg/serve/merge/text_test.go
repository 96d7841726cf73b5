package merge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"peerproxy.internal/pkg/snapshot"
)

// Tests write a list as text, a line per resource:
//
//	group/version resource verb,verb subresource:verb,verb
//
// A star after the version marks it as stale. Without a resource the line is an
// empty version, without a version an empty group.

func parse(t testing.TB, text string) []apidiscoveryv2.APIGroupDiscovery {
	t.Helper()
	var items []apidiscoveryv2.APIGroupDiscovery
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		group, version, _ := strings.Cut(words[0], "/")
		g := child(&items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == group })
		g.Name = group
		if version == "" {
			continue
		}
		name, stale := strings.CutSuffix(version, "*")
		v := child(&g.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == name })
		v.Version, v.Freshness = name, apidiscoveryv2.DiscoveryFreshnessCurrent
		if stale {
			v.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		if len(words) > 2 {
			v.Resources = append(v.Resources, parseResource(words[1], words[2], words[3:]))
		}
	}
	return items
}

func parseResource(name, verbs string, subresources []string) apidiscoveryv2.APIResourceDiscovery {
	r := apidiscoveryv2.APIResourceDiscovery{
		Resource:         name,
		ResponseKind:     &metav1.GroupVersionKind{Kind: name},
		Scope:            apidiscoveryv2.ScopeNamespace,
		SingularResource: strings.TrimSuffix(name, "s"),
		Verbs:            strings.Split(verbs, ","),
	}
	for _, word := range subresources {
		sub, verbs, _ := strings.Cut(word, ":")
		r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource:  sub,
			ResponseKind: &metav1.GroupVersionKind{Kind: name},
			Verbs:        strings.Split(verbs, ","),
		})
	}
	return r
}

func child[T any](items *[]T, is func(T) bool) *T {
	i := slices.IndexFunc(*items, is)
	if i < 0 {
		*items = append(*items, *new(T))
		i = len(*items) - 1
	}
	return &(*items)[i]
}

// render is the reverse of parse.
func render(items []apidiscoveryv2.APIGroupDiscovery) string {
	var text strings.Builder
	for _, g := range items {
		if len(g.Versions) == 0 {
			fmt.Fprintln(&text, g.Name)
		}
		for _, v := range g.Versions {
			gv := g.Name + "/" + v.Version
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				gv += "*"
			}
			if len(v.Resources) == 0 {
				fmt.Fprintln(&text, gv)
			}
			for _, r := range v.Resources {
				fmt.Fprint(&text, gv, " ", r.Resource, " ", strings.Join(r.Verbs, ","))
				for _, sub := range r.Subresources {
					fmt.Fprint(&text, " ", sub.Subresource, ":", strings.Join(sub.Verbs, ","))
				}
				fmt.Fprintln(&text)
			}
		}
	}
	return text.String()
}

// trimmed is text with its lines as render writes them.
func trimmed(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			fmt.Fprintln(&out, strings.Join(words, " "))
		}
	}
	return out.String()
}

// member is one server of a test's cluster.
type member struct {
	id    string
	state snapshot.State
	items []apidiscoveryv2.APIGroupDiscovery
}

// seenFrom returns the sources as the server with the ID has them.
func seenFrom(id string, members []member, excluded *snapshot.Exclusions) []snapshot.Source {
	content := snapshot.Content{Excluded: excluded}
	for _, m := range members {
		doc := &snapshot.Document{ServerID: m.id, Groups: snapshot.List{ETag: m.id, Items: m.items}}
		if m.id == id {
			content.Local = doc
			continue
		}
		content.Peers = append(content.Peers, &snapshot.Peer{ServerID: m.id, State: m.state, Document: doc})
	}
	return snapshot.New(content).View(snapshot.PathAPIs).Sources
}

// excluding returns exclusions of the words, each group/version/resource or
// group/version.
func excluding(words ...string) *snapshot.Exclusions {
	excluded := &snapshot.Exclusions{
		Resources:     map[schema.GroupVersionResource]time.Time{},
		GroupVersions: map[schema.GroupVersion]time.Time{},
	}
	for _, word := range words {
		part := strings.Split(word, "/")
		gv := schema.GroupVersion{Group: part[0], Version: part[1]}
		if len(part) == 2 {
			excluded.GroupVersions[gv] = time.Time{}
		} else {
			excluded.Resources[gv.WithResource(part[2])] = time.Time{}
		}
	}
	return excluded
}
