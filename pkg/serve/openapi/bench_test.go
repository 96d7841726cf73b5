package openapi

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"

	"peerproxy.internal/pkg/serve/merge"
	"peerproxy.internal/pkg/serve/represent"
)

// readOpenAPI reads what a server of Kubernetes serves.
func readOpenAPI(t testing.TB, name string) []byte {
	t.Helper()
	file, err := os.Open("../merge/testdata/openapi/" + name + ".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// withReal gives a server a document of a real one.
func (s *stock) withReal(t testing.TB, name, file string) *stock {
	t.Helper()
	document, err := decodeV3(readOpenAPI(t, file))
	if err != nil {
		t.Fatal(err)
	}
	s.v3.UpdateGroupVersion(name, document)
	return s
}

func TestRealDocuments(t *testing.T) {
	old := newStock("old", "certificates.k8s.io/v1 certificatesigningrequests c").withReal(t, "apis/certificates.k8s.io/v1", "certificates-v1-1.36")
	young := newStock("young", "certificates.k8s.io/v1 certificatesigningrequests c", "certificates.k8s.io/v1 clustertrustbundles c", "certificates.k8s.io/v1 podcertificaterequests p").
		withReal(t, "apis/certificates.k8s.io/v1", "certificates-v1-1.37")
	atOld, atYoung := newCluster(t, old, young), newCluster(t, young, old)
	at := atOld.indexed(t)["apis/certificates.k8s.io/v1"]
	w := atOld.get(t, at)
	document, err := decodeV3(w.Body.Bytes())
	if err != nil || document.Paths.Paths["/apis/certificates.k8s.io/v1/clustertrustbundles"] == nil {
		t.Fatalf("got %d, %v", w.Code, err)
	}
	if other := atYoung.get(t, at); other.Body.String() != w.Body.String() {
		t.Error("the servers disagree")
	}
	if protobuf := atOld.get(t, at, "Accept", acceptProtobufV3); protobuf.Body.Len() == 0 || protobuf.Header().Get("Content-Type") == "application/json" {
		t.Errorf("got no protobuf: %v", protobuf.Header())
	}
}

// manyGroups are a cluster of two servers whose groups all differ.
func manyGroups(b *testing.B, groups int) *cluster {
	var old, young []string
	for i := range groups {
		old = append(old, fmt.Sprintf("group%d/v1 things old", i))
		young = append(young, fmt.Sprintf("group%d/v1 things new", i))
	}
	return newCluster(b, newStock("a", old...), newStock("b", young...))
}

func BenchmarkIndex(b *testing.B) {
	c := manyGroups(b, 70)
	c.indexed(b)
	snap := c.snapshot()
	b.Run("Build", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			local, _ := c.local.index(b.Context())
			next := newIndex("", snap, local, c.peers.indexes(b.Context(), snap))
			if _, err := next.document.bodies[formatJSON][1](); err != nil {
				b.Fatal(err)
			}
		}
	})
	serve := func(b *testing.B, target string, headers ...string) {
		b.ReportAllocs()
		r := newRequest("GET", target, headers...)
		request, _ := c.Parse(r)
		for b.Loop() {
			w := httptest.NewRecorder()
			w.Body = nil
			if c.Serve(w, r, snap, request, c.servers[0]); w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
		}
	}
	b.Run("Serve", func(b *testing.B) { serve(b, pathV3, "Accept-Encoding", "gzip") })
	b.Run("ServeDocument", func(b *testing.B) { serve(b, c.indexed(b)["apis/group7/v1"], "Accept-Encoding", "gzip") })
	b.Run("ServeV2", func(b *testing.B) { serve(b, pathV2, "Accept-Encoding", "gzip") })
}

// BenchmarkRealDocuments takes the steps of making a document one by one.
func BenchmarkRealDocuments(b *testing.B) {
	old, young := readOpenAPI(b, "v2-1.36"), readOpenAPI(b, "v2-1.37")
	var merged []byte
	b.Run("MergeV2", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			merged, _ = mergedOf(b, decodeV2, merge.OpenAPIV2, old, young).MarshalJSON()
		}
	})
	b.Run("ProtobufV2", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := handler.ToProtoBinary(merged); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("GzipV2", func(b *testing.B) {
		for b.Loop() {
			if _, err := represent.Gzip(merged); err != nil {
				b.Fatal(err)
			}
		}
	})
	v3 := [][]byte{readOpenAPI(b, "storage-v1-1.36"), readOpenAPI(b, "storage-v1-1.37")}
	b.Run("MergeV3", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			merged, _ = mergedOf(b, decodeV3, merge.OpenAPIV3, v3...).MarshalJSON()
		}
	})
	b.Run("ProtobufV3", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := handler3.ToV3ProtoBinary(merged); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// merged makes the merged document of texts as a server does.
func mergedOf[D any](b *testing.B, decode func([]byte) (*D, error), merge func([]mergeMember[D]) (*D, error), texts ...[]byte) *D {
	b.Helper()
	var members []mergeMember[D]
	for i, text := range texts {
		document, err := decode(text)
		if err != nil {
			b.Fatal(err)
		}
		members = append(members, mergeMember[D]{ServerID: strconv.Itoa(i), Document: document})
	}
	document, err := merge(members)
	if err != nil {
		b.Fatal(err)
	}
	return document
}

type mergeMember[D any] = merge.OpenAPIMember[D]

// BenchmarkCustom has a cluster of two releases with 2,000 custom resources of
// 90 kB of JSON each, in groups of their own.
func BenchmarkCustom(b *testing.B) {
	const groups = 2000
	old, young := manyCustom(b, groups)
	c := newCluster(b, old.withReal(b, coreName, "core-v1-shared-1.36"), young.withReal(b, coreName, "core-v1-shared-1.37"))
	c.excluded = excludeMany(groups)
	text := string(readOpenAPI(b, "custom-1.36"))
	c.servers[0].fail(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get(hashOption) == "" {
			return nil, nil
		}
		return answers(http.StatusOK, "application/json", text)(r)
	})
	snap := c.snapshot()
	build := func(b *testing.B) {
		if _, err := c.index(b.Context(), snap); err != nil {
			b.Fatal(err)
		}
	}
	build(b)
	b.Run("FirstIndex", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.custom.hashes = nil
			c.latest.Store(nil)
			build(b)
		}
	})
	b.Run("IndexAfterAChange", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for key := range c.custom.hashes {
				delete(c.custom.hashes, key)
				break
			}
			c.latest.Store(nil)
			build(b)
		}
	})
	b.Run("Document", func(b *testing.B) {
		b.ReportAllocs()
		r := newRequest("GET", prefixV3+"apis/group7/v1", "Accept-Encoding", "gzip")
		request, _ := c.Parse(r)
		for b.Loop() {
			c.custom.documents.Clear()
			w := httptest.NewRecorder()
			if c.Serve(w, r, snap, request, c.servers[0]); w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
		}
	})
}
