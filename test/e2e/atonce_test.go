package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"peerproxy.internal/test/cluster"
)

// What a script uses right after it has defined it works as soon as at a server
// that has no peers, and is in the discovery of all. How soon depends on the load
// of the machine, so that is told, and not judged. What holds always: what this
// server's own discovery has, the merged one has as soon as it may not rely on an
// earlier reading any more.
func TestACustomResourceIsUsedInTheScriptThatDefinesIt(t *testing.T) {
	c := start(t, "new="+ours137, "old="+ours136, "stock="+stock137+",peers=off")
	as(t, c.Server("old")).until(5*time.Second, 200, "GET", bundlesPath, "")
	const rounds = 5
	var creations sync.WaitGroup
	defer creations.Wait()
	for _, server := range []*cluster.Server{c.Server("new"), c.Server("old"), c.Server("stock")} {
		var usable, listed []time.Duration
		for round := range rounds {
			u, l := script(t, as(t, server), fmt.Sprintf("%sscripts%ds", server.Name(), round), &creations)
			usable, listed = append(usable, u), append(listed, l)
		}
		slices.Sort(usable)
		slices.Sort(listed)
		t.Logf("%s: usable %v after the definition is established, in discovery after %v (medians; at most %v, %v)",
			server.Name(), usable[rounds/2], listed[rounds/2], usable[rounds-1], listed[rounds-1])
	}
}

// reliedOn is longer than a merged document relies on a reading of the own one.
const reliedOn = 60 * time.Millisecond

// script creates a definition, waits until it is established, and at once creates
// an object, in the background: a kube-apiserver keeps the first creation waiting
// for two seconds. It returns how long after the definition was established the
// resource was there, and in discovery.
func script(t *testing.T, c *client, plural string, creations *sync.WaitGroup) (usable, listed time.Duration) {
	t.Helper()
	createCRD(t, c, plural)
	within(t, 10*time.Second, func() error { return isEstablished(t, c, plural) })
	began := time.Now()
	path, name := "/apis/example.com/v1/"+plural, "example.com/v1/"+plural
	kind := strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
	usable = c.until(5*time.Second, 200, "GET", path, "")
	creations.Go(func() {
		a, err := c.try(t.Context(), "POST", path, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":%q,"metadata":{"name":"one"}}`, kind))
		if err != nil || a.code != 201 {
			t.Errorf("POST %s at %s: %v, %d %s", path, c.server.Name(), err, a.code, a.body)
		}
	})
	waitUntilListed(t, c, name)
	return usable, time.Since(began)
}

// waitUntilListed returns when a server's discovery has a resource.
func waitUntilListed(t *testing.T, c *client, name string) {
	t.Helper()
	var own time.Time // when the server's own discovery had it
	within(t, 5*time.Second, func() error {
		asked := time.Now()
		err := lists(t, c, name, aggregated)
		switch {
		case err == nil:
		case own.IsZero() && lists(t, c, name, aggregated+";profile=nopeer") == nil:
			own = time.Now()
		case !own.IsZero() && asked.Sub(own) > reliedOn:
			t.Fatalf("%v, %v after its own had it", err, asked.Sub(own))
		}
		return err
	})
}

func isEstablished(t *testing.T, c *client, plural string) error {
	t.Helper()
	var definition struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	body := c.want(200, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+plural+".example.com", "").body
	if err := json.Unmarshal(body, &definition); err != nil {
		t.Fatal(err)
	}
	for _, condition := range definition.Status.Conditions {
		if condition.Type == "Established" && condition.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("%s is not established", plural)
}

// lists complains if a server's discovery lacks a resource.
func lists(t *testing.T, c *client, name, accept string) error {
	t.Helper()
	if !names(t, c.want(200, "GET", "/apis", "", "Accept", accept).body)[name] {
		return fmt.Errorf("the discovery of %s (%s) lacks %s", c.server.Name(), accept, name)
	}
	return nil
}
