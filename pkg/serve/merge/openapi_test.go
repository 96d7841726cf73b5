package merge

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"peerproxy.internal/pkg/snapshot"
)

func under(prefixes ...string) func(string) bool {
	return func(path string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	}
}

func not(f func(string) bool) func(string) bool { return func(path string) bool { return !f(path) } }

func TestOpenAPI(t *testing.T) {
	for _, test := range []struct {
		name    string
		members []apiMember
		want    string
	}{{
		name: "paths and schemas of all",
		members: []apiMember{
			{id: "a", text: "get /a A\n A x"},
			{id: "b", text: "get /b B\n B x"},
		},
		want: `
			get /a A
			get /b B
			A x
			B x`,
	}, {
		name: "operations of one path are united, the lowest server ID wins",
		members: []apiMember{
			{id: "b", text: "get /p B\n put /p B\n B x"},
			{id: "a", text: "get /p A\n post /p A\n A x"},
		},
		want: `
			get /p A
			post /p A
			put /p B
			A x
			B x`,
	}, {
		name: "a starting member wins over no one",
		members: []apiMember{
			{id: "a", state: snapshot.StateStarting, text: "get /p A\n A old"},
			{id: "b", text: "get /p A\n A new"},
		},
		want: `
			get /p A
			A new`,
	}, {
		name: "what differs is kept under another name where it is used",
		members: []apiMember{
			{id: "a", text: "get /a S\n S old"},
			{id: "b", text: "get /a S\n get /b S\n S new"},
		},
		want: `
			get /a S
			get /b S_1
			S old
			S_1 new`,
	}, {
		name: "what differs and is not used is left out",
		members: []apiMember{
			{id: "a", text: "get /a S\n S old"},
			{id: "b", text: "get /a S\n S new"},
		},
		want: `
			get /a S
			S old`,
	}, {
		name: "a schema that refers to one that differs differs too",
		members: []apiMember{
			{id: "a", text: "get /a List\n List x Item\n Item x Meta\n Meta old"},
			{id: "b", text: "get /a List\n get /b List\n List x Item\n Item x Meta\n Meta new"},
		},
		want: `
			get /a List
			get /b List_3
			List x Item
			Item x Meta
			Meta old
			List_3 x Item_1
			Item_1 x Meta_2
			Meta_2 new`,
	}, {
		name: "a new schema refers to what its author means",
		members: []apiMember{
			{id: "a", text: "get /a Old\n Old x Meta\n Meta old"},
			{id: "b", text: "get /b New\n New x Meta Same\n Meta new\n Same x"},
			{id: "c", text: "get /c Newer\n Newer x Meta Same\n Meta new\n Same x"},
		},
		want: `
			get /a Old
			get /b New
			get /c Newer
			Old x Meta
			New x Meta_1 Same
			Newer x Meta_1 Same
			Meta old
			Meta_1 new
			Same x`,
	}, {
		name: "schemas that refer to themselves in circles",
		members: []apiMember{
			{id: "a", text: "get /a A\n A x B A\n B x C\n C x A"},
			{id: "b", text: "get /b A\n A x B A\n B x C\n C x A"},
			{id: "c", text: "get /c A\n A x B A\n B x C\n C other A"},
		},
		want: `
			get /a A
			get /b A
			get /c A_1
			A x A B
			B x C
			C x A
			A_1 x A_1 B_2
			B_2 x C_3
			C_3 other A_1`,
	}, {
		name: "references to what is not there stay",
		members: []apiMember{
			{id: "a", text: "get /a A Gone\n A x Lost"},
			{id: "b", text: "get /b B\n B x"},
		},
		want: `
			get /a A Gone
			get /b B
			A x Lost
			B x`,
	}, {
		name: "kinds are united and do not make a difference",
		members: []apiMember{
			{id: "a", text: "delete /a Options\n Options x @apps/v1.O @batch/v1.O"},
			{id: "b", text: "delete /b Options\n Options x @apps/v1.O @new/v1.O"},
		},
		want: `
			delete /a Options
			delete /b Options
			Options x @apps/v1.O @batch/v1.O @new/v1.O`,
	}, {
		name: "no kind stands at two schemas",
		members: []apiMember{
			{id: "a", text: "get /a Thing\n Thing old @g/v1.T"},
			{id: "b", text: "get /b Thing\n get /c Moved\n Thing new @g/v1.T @g/v2.T\n Moved x @g/v1.T @g/v1.U"},
		},
		want: `
			get /a Thing
			get /b Thing_1
			get /c Moved
			Thing old @g/v1.T
			Thing_1 new @g/v2.T
			Moved x @g/v1.U`,
	}, {
		name: "what is not taken goes with all that it alone uses",
		members: []apiMember{
			{id: "a", text: "get /a A\n A x"},
			{id: "b", takes: not(under("/crd")), text: "get /b B\n get /crd C\n B x Meta\n C x Meta Own\n Own x\n Meta x\n Orphan x Kept\n Kept x"},
		},
		want: `
			get /a A
			get /b B
			A x
			B x Meta
			Meta x
			Orphan x Kept
			Kept x`,
	}, {
		name: "what is excluded comes from this server, and means by a name what all mean",
		members: []apiMember{
			{id: "a", takes: not(under("/crd")), text: "get /a A\n get /crd C\n A x Meta\n C stale Meta\n Meta old"},
			{id: "b", excluded: under("/crd"), text: "get /b B\n get /crd C\n B x Meta\n C x Meta Own\n Own x\n Meta new"},
		},
		want: `
			get /a A
			get /b B
			get /crd C
			A x Meta
			B x Meta_1
			C x Meta Own
			Own x
			Meta old
			Meta_1 new`,
	}} {
		for version, in := range bothVersions {
			t.Run(version+" "+test.name, func(t *testing.T) {
				if diff := cmp.Diff(cleaned(test.want), in.merge(t, test.members...)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestOpenAPITakesNoNameOfOthers(t *testing.T) {
	members := []apiMember{
		{id: "a", text: "get /a S\n S old"},
		{id: "b", text: "get /b S\n S new"},
	}
	merged, err := OpenAPIV3(documentsOf(members, parseV3))
	if err != nil {
		t.Fatal(err)
	}
	var taken string
	for name := range merged.Components.Schemas {
		taken = max(taken, name)
	}
	members = append(members, apiMember{id: "c", text: "get /c " + taken + "\n" + taken + " mine"})
	if merged, err = OpenAPIV3(documentsOf(members, parseV3)); err != nil {
		t.Fatal(err)
	}
	if got := merged.Components.Schemas[taken].Description; got != "mine" {
		t.Errorf("%s is %q", taken, got)
	}
	if got := merged.Components.Schemas[taken+"_"]; got == nil || got.Description != "new" {
		t.Errorf("%s_ is %v", taken, got)
	}
}

func TestOpenAPIWithNothingToMerge(t *testing.T) {
	if _, err := OpenAPIV3(nil); !errors.Is(err, ErrNoDocument) {
		t.Errorf("got %v", err)
	}
	if _, err := OpenAPIV2([]OpenAPIMember[spec.Swagger]{{ServerID: "a"}}); !errors.Is(err, ErrNoDocument) {
		t.Errorf("got %v", err)
	}
	only := &spec3.OpenAPI{}
	if got, err := OpenAPIV3([]OpenAPIMember[spec3.OpenAPI]{{ServerID: "b"}, {ServerID: "a", Document: only}}); got != only || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func parse3(t testing.TB, text string) *spec3.OpenAPI {
	t.Helper()
	doc := &spec3.OpenAPI{}
	if err := doc.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return doc
}

func parse2(t testing.TB, text string) *spec.Swagger {
	t.Helper()
	doc := &spec.Swagger{}
	if err := doc.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestOpenAPIV3Components(t *testing.T) {
	old := `{"openapi":"3.0.0","info":{"title":"K","version":"1"},"paths":{"/a":{"get":{"responses":{"200":{"$ref":"#/components/responses/R"}}}}},
		"components":{"schemas":{"S~1s":{"type":"string"}},"responses":{"R":{"description":"old"}},"securitySchemes":{"Bearer":{"type":"http","scheme":"old"}}}}`
	young := `{"openapi":"3.0.0","info":{"title":"K","version":"2"},"paths":{"/b":{"get":{
			"parameters":[{"$ref":"#/components/parameters/P"}],
			"requestBody":{"$ref":"#/components/requestBodies/B"},
			"responses":{"200":{"$ref":"#/components/responses/R"},"default":{"description":"d","headers":{"X":{"$ref":"#/components/headers/H"}}}}}}},
		"components":{"schemas":{"S~1s":{"type":"object","properties":{"$ref":{"type":"string"}}}},
			"responses":{"R":{"description":"new","content":{"application/json":{"schema":{"$ref":"#/components/schemas/S~1s"}}},"links":{"L":{"$ref":"#/components/links/L"}}}},
			"parameters":{"P":{"name":"p","in":"query","examples":{"E":{"$ref":"#/components/examples/E"}}}},
			"requestBodies":{"B":{"content":{"*/*":{"schema":{"$ref":"#/components/schemas/S~1s"}}}}},
			"headers":{"H":{"description":"h"}},"links":{"L":{"description":"l"}},"examples":{"E":{"summary":"e"}},
			"securitySchemes":{"Bearer":{"type":"http","scheme":"new"}}}}`
	merged, err := OpenAPIV3([]OpenAPIMember[spec3.OpenAPI]{
		{ServerID: "a", Document: parse3(t, old)}, {ServerID: "b", Document: parse3(t, young)},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := merged.Components
	operation := merged.Paths.Paths["/b"].Get
	response := operation.Responses.StatusCodeResponses[200].Ref.String()
	renamed := c.Responses[strings.TrimPrefix(response, "#/components/responses/")]
	if renamed == nil || renamed.Description != "new" || c.Responses["R"].Description != "old" {
		t.Fatalf("the response is %q", response)
	}
	schema := renamed.Content["application/json"].Schema.Ref.String()
	if got := c.Schemas[strings.TrimPrefix(schema, "#/components/schemas/")]; got == nil || !got.Type.Contains("object") {
		t.Errorf("its schema is %q", schema)
	}
	if got := c.RequestBodies["B"].Content["*/*"].Schema.Ref.String(); got != schema {
		t.Errorf("the body's schema is %q, not %q", got, schema)
	}
	for what, found := range map[string]bool{
		"parameter":       c.Parameters["P"] != nil,
		"header":          c.Headers["H"] != nil,
		"link":            c.Links["L"] != nil,
		"example":         c.Examples["E"] != nil,
		"first scheme":    len(c.SecuritySchemes) == 1 && c.SecuritySchemes["Bearer"].Scheme == "old",
		"first's version": merged.Info.Version == "1",
	} {
		if !found {
			t.Errorf("the %s is lost", what)
		}
	}
}

func TestOpenAPIParametersOfPaths(t *testing.T) {
	old := `{"paths":{"/p":{"parameters":[{"name":"ns","in":"path"},{"name":"pretty","in":"query"}],"get":{}}}}`
	young := `{"paths":{"/p":{"parameters":[{"name":"ns","in":"path"},{"name":"pretty","in":"query","description":"new"},{"name":"own","in":"query","description":"of the path"}],
		"get":{},"put":{"parameters":[{"name":"own","in":"query"}]}}}}`
	v3, err := OpenAPIV3([]OpenAPIMember[spec3.OpenAPI]{{ServerID: "a", Document: parse3(t, old)}, {ServerID: "b", Document: parse3(t, young)}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range v3.Paths.Paths["/p"].Put.Parameters {
		names = append(names, p.Name+p.Description)
	}
	if want := []string{"own", "prettynew"}; !slices.Equal(names, want) || v3.Paths.Paths["/p"].Get.Parameters != nil {
		t.Errorf("v3: got %v, want %v", names, want)
	}
	v2, err := OpenAPIV2([]OpenAPIMember[spec.Swagger]{{ServerID: "a", Document: parse2(t, old)}, {ServerID: "b", Document: parse2(t, young)}})
	if err != nil {
		t.Fatal(err)
	}
	names = nil
	for _, p := range v2.Paths.Paths["/p"].Put.Parameters {
		names = append(names, p.Name+p.Description)
	}
	if want := []string{"own", "prettynew"}; !slices.Equal(names, want) {
		t.Errorf("v2: got %v, want %v", names, want)
	}
}

func TestOpenAPIV2SharedParameters(t *testing.T) {
	old := `{"swagger":"2.0","paths":{"/a":{"parameters":[{"$ref":"#/parameters/pretty"}],"get":{"responses":{"200":{"$ref":"#/responses/R"}}}}},
		"parameters":{"pretty":{"name":"pretty","in":"query"}},"responses":{"R":{"description":"old"}},"securityDefinitions":{"B":{"type":"apiKey"}}}`
	young := `{"swagger":"2.0","paths":{"/a":{"parameters":[{"$ref":"#/parameters/pretty"}],"put":{"responses":{"200":{"$ref":"#/responses/R"}}}}},
		"parameters":{"pretty":{"name":"pretty","in":"query","description":"new"}},"responses":{"R":{"description":"new"}}}`
	merged, err := OpenAPIV2([]OpenAPIMember[spec.Swagger]{{ServerID: "a", Document: parse2(t, old)}, {ServerID: "b", Document: parse2(t, young)}})
	if err != nil {
		t.Fatal(err)
	}
	put := merged.Paths.Paths["/a"].Put
	if len(put.Parameters) != 1 {
		t.Fatalf("got parameters %v", put.Parameters)
	}
	ref := put.Parameters[0].Ref.String()
	if got := merged.Parameters[strings.TrimPrefix(ref, parametersV2)]; got.Description != "new" {
		t.Errorf("%s is %v", ref, got)
	}
	response := put.Responses.StatusCodeResponses[200]
	if got := merged.Responses[strings.TrimPrefix(response.Ref.String(), responsesV2)]; got.Description != "new" {
		t.Errorf("%s is %v", response.Ref.String(), got)
	}
	if len(merged.SecurityDefinitions) != 1 {
		t.Errorf("got security definitions %v", merged.SecurityDefinitions)
	}
}
