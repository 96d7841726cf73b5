package merge

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

	"peerproxy.internal/pkg/snapshot"
)

var update = flag.Bool("update", false, "write the golden files anew")

// readList reads an excerpt of what a server of Kubernetes lists.
func readList(t *testing.T, name string) []apidiscoveryv2.APIGroupDiscovery {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// upgrade is a cluster in the middle of an upgrade: an old and a new server, one
// that starts, one that died, a custom resource of which the dead one still
// lists a version that is gone.
func upgrade(t *testing.T) ([]member, *snapshot.Exclusions) {
	widgets := "example.com/v1 widgets list,create,get,patch status:get,update"
	members := []member{
		{id: "apiserver-old", items: append(readList(t, "v1.36.json"), parse(t, widgets)...)},
		{id: "apiserver-new", items: append(readList(t, "v1.37.json"), parse(t, widgets)...)},
		{id: "apiserver-dead", state: unreachable, items: parse(t, `
			example.com/v1alpha1 widgets list,get
			autoscaling/v2beta2 horizontalpodautoscalers list,get`)},
		{id: "apiserver-early", state: starting, items: slices.Concat(parse(t, "lifecycle.k8s.io/v1alpha1 evictionrequests list,get"), readList(t, "v1.37.json"))},
	}
	return members, excluding("example.com/v1/widgets", "example.com/v1alpha1/widgets")
}

func TestUpgrade(t *testing.T) {
	members, excluded := upgrade(t)
	at := map[string]apidiscoveryv2.APIGroupDiscoveryList{}
	for _, id := range []string{"apiserver-old", "apiserver-new"} {
		at[id] = apidiscoveryv2.APIGroupDiscoveryList{Items: Discovery(seenFrom(id, members, excluded))}
	}
	if diff := cmp.Diff(at["apiserver-old"], at["apiserver-new"]); diff != "" {
		t.Errorf("the servers disagree:\n%s", diff)
	}
	checkGolden(t, "upgrade.json", at["apiserver-old"])
}

// checkGolden compares a document with the file in testdata.
func checkGolden(t *testing.T, name string, document any) {
	t.Helper()
	data, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got := string(data) + "\n"
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got), -update writes it anew:\n%s", diff)
	}
}
