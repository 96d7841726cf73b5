package upgrade

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// beginDiscovering starts a client that reads aggregated discovery of whichever
// server's turn it is, and looks for what goes and comes back.
func (l *Load) beginDiscovering(ctx context.Context) error {
	c, err := l.newRestlessClient()
	if err != nil {
		return err
	}
	for _, path := range []string{"/api", "/apis"} {
		known := presence{}
		t := &target{what: path}
		l.every(ctx, discoveryPeriod, func() { l.discover(ctx, c, t, known) })
	}
	return nil
}

// discover reads a document and counts a flip if something in it was gone the last
// time. What is about to go for good, after the epoch, may do so here sooner than
// there.
func (l *Load) discover(ctx context.Context, c *client, t *target, known presence) {
	var list apidiscoveryv2.APIGroupDiscoveryList
	err := l.do(ctx, t, true, "GET", func(ctx context.Context) error {
		body, err := c.get(ctx, t.what, acceptAggregated)
		if err != nil {
			return err
		}
		return json.Unmarshal(body, &list)
	})
	if err != nil {
		return
	}
	l.counts.Add(Discoveries)
	if back := known.observe(resourcesOf(&list)); len(back) > 0 && !l.epoch.Over() {
		l.counts.Note(Flips, "%s: gone and back: %s", t.what, strings.Join(back, ", "))
	}
}

// resourcesOf are the names of all resources and subresources in a document,
// those of a stale version left out, as client-go does.
func resourcesOf(list *apidiscoveryv2.APIGroupDiscoveryList) map[string]bool {
	names := map[string]bool{}
	for _, group := range list.Items {
		for _, version := range group.Versions {
			if version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				continue
			}
			for _, resource := range version.Resources {
				name := strings.Join([]string{group.Name, version.Version, resource.Resource}, "/")
				names[name] = true
				for _, sub := range resource.Subresources {
					names[name+"/"+sub.Subresource] = true
				}
			}
		}
	}
	return names
}

// presence holds, for each name that was ever there, whether it was the last time.
type presence map[string]bool

// observe takes in the names that are there now and returns those that were there
// before, were not the last time, and are again.
func (p presence) observe(now map[string]bool) (back []string) {
	for name := range now {
		if present, known := p[name]; known && !present {
			back = append(back, name)
		}
	}
	for name := range p {
		p[name] = false
	}
	maps.Copy(p, now)
	slices.Sort(back)
	return back
}
