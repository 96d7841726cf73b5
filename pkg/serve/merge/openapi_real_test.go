package merge

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// readOpenAPI reads what a server of Kubernetes serves.
func readOpenAPI(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "openapi", name+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func realV3(t testing.TB, name string) *spec3.OpenAPI { return parse3(t, string(readOpenAPI(t, name))) }
func realV2(t testing.TB, name string) *spec.Swagger  { return parse2(t, string(readOpenAPI(t, name))) }

// TestOpenAPIOfRealServers holds the merged documents of 1.36 and 1.37 against
// summaries: which paths and schemas they have, and which were renamed.
func TestOpenAPIOfRealServers(t *testing.T) {
	for _, name := range []string{"certificates-v1", "storage-v1"} {
		old, young := realV3(t, name+"-1.36"), realV3(t, name+"-1.37")
		propertiesV3.check(t, newRandom(), []OpenAPIMember[spec3.OpenAPI]{{ServerID: "b", Document: old}, {ServerID: "a", Document: young}})
		merged, err := OpenAPIV3([]OpenAPIMember[spec3.OpenAPI]{{ServerID: "a", Document: old}, {ServerID: "b", Document: young}})
		if err != nil {
			t.Fatal(err)
		}
		checkGolden(t, filepath.Join("openapi", name+"-merged.json"), summary(apartV3(merged)))
		wantProtobuf(t, name, merged.MarshalJSON, handler3.ToV3ProtoBinary)
	}
	old, young := realV2(t, "v2-1.36"), realV2(t, "v2-1.37")
	members := []OpenAPIMember[spec.Swagger]{{ServerID: "a", Document: old}, {ServerID: "b", Document: young}}
	merged, err := OpenAPIV2(members)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, filepath.Join("openapi", "v2-merged.json"), summary(apartV2(merged)))
	wantProtobuf(t, "v2", merged.MarshalJSON, handler.ToProtoBinary)
}

func wantProtobuf(t *testing.T, name string, toJSON func() ([]byte, error), toProtobuf func([]byte) ([]byte, error)) {
	t.Helper()
	text, err := toJSON()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := toProtobuf(text); err != nil {
		t.Errorf("%s can't be written as protobuf: %v", name, err)
	}
}

func summary(p *pieces) map[string]any {
	paths := map[string][]string{}
	for path, item := range p.paths {
		paths[path] = slices.Sorted(maps.Keys(item.operations))
	}
	return map[string]any{"paths": paths, "components": slices.Sorted(maps.Keys(p.components))}
}

// TestMergedOpenAPIValidates types objects by the schemas as server-side apply
// does: it knows a schema by its kind, and refuses unknown fields.
func TestMergedOpenAPIValidates(t *testing.T) {
	old, young := realV3(t, "certificates-v1-1.36"), realV3(t, "certificates-v1-1.37")
	objects := map[string]string{
		"ClusterTrustBundle":        `{"signerName": "example.com/s", "trustBundle": "text"}`,
		"CertificateSigningRequest": `{"signerName": "example.com/s", "request": "dGV4dA==", "usages": ["client auth"]}`,
		"PodCertificateRequest":     `{"signerName": "example.com/s", "podName": "p", "podUID": "u"}`,
	}
	for _, ids := range [][2]string{{"a", "b"}, {"b", "a"}} {
		merged, err := OpenAPIV3([]OpenAPIMember[spec3.OpenAPI]{{ServerID: ids[0], Document: old}, {ServerID: ids[1], Document: young}})
		if err != nil {
			t.Fatal(err)
		}
		types, err := managedfields.NewTypeConverter(merged.Components.Schemas, false)
		if err != nil {
			t.Fatal(err)
		}
		for kind, fields := range objects {
			right := `{"apiVersion": "certificates.k8s.io/v1", "kind": "` + kind + `", "metadata": {"name": "test", "labels": {"a": "b"}}, "spec": ` + fields + "}"
			if _, err := types.ObjectToTyped(objectOf(t, right)); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			wrong := strings.Replace(right, "labels", "lapels", 1)
			if _, err := types.ObjectToTyped(objectOf(t, wrong)); err == nil {
				t.Errorf("%s with an unknown field is valid", kind)
			}
		}
	}
}

func objectOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return object
}

func BenchmarkOpenAPI(b *testing.B) {
	v2 := []OpenAPIMember[spec.Swagger]{{ServerID: "a", Document: realV2(b, "v2-1.36")}, {ServerID: "b", Document: realV2(b, "v2-1.37")}}
	b.Run("v2", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := OpenAPIV2(v2); err != nil {
				b.Fatal(err)
			}
		}
	})
	v3 := []OpenAPIMember[spec3.OpenAPI]{{ServerID: "a", Document: realV3(b, "storage-v1-1.36")}, {ServerID: "b", Document: realV3(b, "storage-v1-1.37")}}
	b.Run("v3", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := OpenAPIV3(v3); err != nil {
				b.Fatal(err)
			}
		}
	})
}
