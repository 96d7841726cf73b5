package merge

import (
	"fmt"
	"strings"
	"testing"

	"peerproxy.internal/pkg/snapshot"
)

// BenchmarkDiscovery merges three members with 300 groups each, of which the
// third has one more version.
func BenchmarkDiscovery(b *testing.B) {
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, "group%d.example.com/v1 things create,delete,deletecollection,get,list,patch,update,watch status:get,patch,update\n", i)
	}
	var sources []snapshot.Source
	for i, extra := range []string{"", "", "group7.example.com/v2 things get\n"} {
		list := &snapshot.List{Items: parse(b, text.String()+extra)}
		sources = append(sources, snapshot.Source{ServerID: fmt.Sprint(i), Whole: list, Own: list})
	}
	b.ReportAllocs()
	for b.Loop() {
		Discovery(sources)
	}
}
