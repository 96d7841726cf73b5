package snapshot

import (
	"fmt"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// builtIn are as many groups as a default kube-apiserver serves, and more: each
// has two versions with four resources that have a status.
func builtIn() []apidiscoveryv2.APIGroupDiscovery {
	var groups []apidiscoveryv2.APIGroupDiscovery
	for g := range 70 {
		of := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("group%d.k8s.io", g)}}
		for _, version := range []string{"v1", "v1beta1"} {
			of.Versions = append(of.Versions, apidiscoveryv2.APIVersionDiscovery{Version: version, Resources: severalOf(4)})
		}
		groups = append(groups, of)
	}
	return groups
}

func severalOf(n int) []apidiscoveryv2.APIResourceDiscovery {
	var all []apidiscoveryv2.APIResourceDiscovery
	for i := range n {
		all = append(all, withSub(resource(fmt.Sprintf("resource%d", i), allVerbs...), "status", "get", "patch", "update"))
	}
	return all
}

// customResources adds as many custom resources to each document, and to what is
// excluded.
func customResources(n int, c *Content) {
	excluded := &Exclusions{Grace: time.Minute, Resources: map[schema.GroupVersionResource]time.Time{}}
	var groups []apidiscoveryv2.APIGroupDiscovery
	for g := range n / 10 {
		groups = append(groups, group(fmt.Sprintf("group%d.example.com", g), "v1", severalOf(10)...))
		for _, r := range groups[g].Versions[0].Resources {
			excluded.Resources[schema.GroupVersionResource{Group: groups[g].Name, Version: "v1", Resource: r.Resource}] = time.Time{}
		}
	}
	c.Excluded = excluded
	documents := []*Document{c.Local}
	for _, peer := range c.Peers {
		documents = append(documents, peer.Document)
	}
	for _, d := range documents {
		d.Groups = listOf(fmt.Sprint("and ", n), append(d.Groups.Items, groups...))
	}
}

// ofThree is what a server knows in a cluster of three that serve the same.
func ofThree(change func(*Content)) Content {
	served := func(id string) *Document {
		return &Document{ServerID: id, Checked: checked, Groups: listOf("built in", builtIn())}
	}
	c := Content{Local: served("a"), Ready: true}
	for _, id := range []string{"b", "c"} {
		c.Peers = append(c.Peers, &Peer{ServerID: id, Document: served(id)})
	}
	if change != nil {
		change(&c)
	}
	return c
}

// huge is a peer that lists a hundred thousand resources.
func huge(c *Content) {
	customResources(100, c)
	c.Peers[0].Document.Groups = listOf("huge", append(builtIn(), group("huge.k8s.io", "v1", severalOf(100_000)...)))
}

func listOf(etag string, items []apidiscoveryv2.APIGroupDiscovery) List {
	return *NewList(etag, "", items)
}

// BenchmarkNew makes the snapshot that follows another when no document has
// changed.
func BenchmarkNew(b *testing.B) {
	for _, of := range []struct {
		name   string
		change func(*Content)
	}{
		{"70 groups", nil},
		{"and 2000 custom resources", func(c *Content) { customResources(2_000, c) }},
		{"and 10000 custom resources", func(c *Content) { customResources(10_000, c) }},
		{"and a peer with 100000 resources", huge},
	} {
		c := ofThree(of.change)
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				New(c)
			}
		})
	}
}

func BenchmarkRoute(b *testing.B) {
	s := New(ofThree(huge))
	for _, route := range []struct {
		name     string
		resource Resource
		want     Kind
	}{
		{"local", Resource{"group7.k8s.io", "v1", "resource2", ""}, Local},
		{"peers", Resource{"huge.k8s.io", "v1", "resource2", ""}, Peers},
		{"absent", Resource{"group7.k8s.io", "v1", "nothing", ""}, Absent},
		{"custom", Resource{"group7.example.com", "v1", "nothing", ""}, Absent},
	} {
		b.Run(route.name, func(b *testing.B) {
			b.ReportAllocs()
			var got Route
			for b.Loop() {
				got = s.Route(route.resource, "get")
			}
			if got.Kind != route.want {
				b.Errorf("got %v, want %v", got.Kind, route.want)
			}
		})
	}
}
