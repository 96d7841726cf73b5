package merge

import (
	"bytes"
	"testing"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

var openAPISeeds = []string{
	`{}`,
	`null`,
	`{"openapi":"3.0.0","paths":{"/a":{"get":{"parameters":[null],"responses":{"200":{"$ref":"#/components/schemas/A"}}},"parameters":[null]}},"components":{"schemas":{"A":{"properties":{"b":{"$ref":"#/components/schemas/B"}}},"B":null}}}`,
	`{"openapi":"3.0.0","paths":{"/a":null,"/b":{"put":{},"get":null}},"components":{"schemas":{"A":{"$ref":"#/components/schemas/A"},"B":{"x-kubernetes-group-version-kind":[{"group":"g","kind":"K","version":"v"},7]}}}}`,
	`{"swagger":"2.0","paths":{"/a":{"get":{"parameters":[{"$ref":"#/parameters/p"}]}}},"definitions":{"A":{"items":[{"$ref":"#/definitions/B"}]},"B":{"allOf":[{"$ref":"#/definitions/A"}]}},"parameters":{"p":{"name":"p","in":"query"}}}`,
	`{"swagger":"2.0","paths":{"/a":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/A~1a"}}}}}},"definitions":{"A/a":{"x-kubernetes-group-version-kind":{}},"A":{"default":{"$ref":"#/definitions/A"}}}}`,
}

func fuzzOpenAPI[D any](f *testing.F, decode func([]byte) (*D, error), v ofVersion[D]) {
	for _, a := range openAPISeeds {
		for _, b := range openAPISeeds {
			f.Add([]byte(a), []byte(b), "/a")
		}
	}
	f.Fuzz(func(t *testing.T, a, b []byte, own string) {
		first, errA := decode(a)
		second, errB := decode(b)
		if errA != nil || errB != nil {
			return
		}
		isOwn := func(path string) bool { return path == own }
		members := []OpenAPIMember[D]{{ServerID: "a", Document: first, Excluded: isOwn}, {ServerID: "b", Document: second, Takes: not(isOwn)}}
		before := v.texts(t, members)
		merged, err := v.merge(members)
		if err != nil {
			return
		}
		text, err := v.marshal(merged)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(text); err != nil {
			t.Fatalf("can't be read again: %v\n%s", err, text)
		}
		members[0], members[1] = members[1], members[0]
		v.wantSame(t, "in another order", members, text)
		members[0], members[1] = members[1], members[0]
		for i, after := range v.texts(t, members) {
			if !bytes.Equal(before[i], after) {
				t.Fatal("a document was changed")
			}
		}
	})
}

func FuzzOpenAPIV3(f *testing.F) {
	fuzzOpenAPI(f, func(text []byte) (*spec3.OpenAPI, error) {
		d := &spec3.OpenAPI{}
		return d, d.UnmarshalJSON(text)
	}, propertiesV3)
}

func FuzzOpenAPIV2(f *testing.F) {
	fuzzOpenAPI(f, func(text []byte) (*spec.Swagger, error) {
		d := &spec.Swagger{}
		return d, d.UnmarshalJSON(text)
	}, propertiesV2)
}
