package merge

import (
	"slices"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// sectionV3 begins the references to components of a kind.
const sectionV3 = "#/components/"

// OpenAPIV3 merges the members' documents of one group-version: it returns
// every path, operation and component that a member brings. The order of the
// members does not matter, their server IDs must differ. The result shares
// memory with the documents: read only.
//
// Where members bring different operations of a path, or different components
// of a name, those of the settled member with the lowest server ID are taken;
// what starting members have is taken only where no one else has it. What the
// rest of another member's document refers to keeps its meaning: where the name
// is taken it gets another one, made of a hash of its content and of all that
// it refers to.
//
// The error is [ErrNoDocument], or a [*DocumentError] that names the member.
func OpenAPIV3(members []OpenAPIMember[spec3.OpenAPI]) (*spec3.OpenAPI, error) {
	return mergeOpenAPI(members, apartV3, togetherV3)
}

func apartV3(doc *spec3.OpenAPI) *pieces {
	p := &pieces{paths: map[string]pathItem{}, components: map[string]piece{}}
	if doc.Paths != nil {
		for path, item := range doc.Paths.Paths {
			if item != nil {
				p.paths[path] = itemV3(*item)
			}
		}
	}
	if c := doc.Components; c != nil {
		take(p, sectionV3+"schemas/", c.Schemas)
		take(p, sectionV3+"securitySchemes/", c.SecuritySchemes)
		take(p, sectionV3+"responses/", c.Responses)
		take(p, sectionV3+"parameters/", c.Parameters)
		take(p, sectionV3+"examples/", c.Examples)
		take(p, sectionV3+"requestBodies/", c.RequestBodies)
		take(p, sectionV3+"links/", c.Links)
		take(p, sectionV3+"headers/", c.Headers)
	}
	return p
}

func togetherV3(first *spec3.OpenAPI, p *pieces) *spec3.OpenAPI {
	merged := *first
	if len(p.paths) > 0 || first.Paths != nil {
		merged.Paths = pathsV3(first.Paths, p)
	}
	if len(p.components) > 0 {
		merged.Components = &spec3.Components{
			Schemas:         given[*spec.Schema](p, sectionV3+"schemas/"),
			SecuritySchemes: given[*spec3.SecurityScheme](p, sectionV3+"securitySchemes/"),
			Responses:       given[*spec3.Response](p, sectionV3+"responses/"),
			Parameters:      given[*spec3.Parameter](p, sectionV3+"parameters/"),
			Examples:        given[*spec3.Example](p, sectionV3+"examples/"),
			RequestBodies:   given[*spec3.RequestBody](p, sectionV3+"requestBodies/"),
			Links:           given[*spec3.Link](p, sectionV3+"links/"),
			Headers:         given[*spec3.Header](p, sectionV3+"headers/"),
		}
	}
	return &merged
}

func pathsV3(first *spec3.Paths, p *pieces) *spec3.Paths {
	merged := &spec3.Paths{Paths: make(map[string]*spec3.Path, len(p.paths))}
	if first != nil {
		merged.VendorExtensible = first.VendorExtensible
	}
	for path, item := range p.paths {
		whole := *item.shell.(*spec3.Path)
		for method, operation := range methodsV3(&whole) {
			if taken, found := item.operations[method]; found {
				*operation = taken.(*spec3.Operation)
			}
		}
		merged.Paths[path] = &whole
	}
	return merged
}

func itemV3(item spec3.Path) pathItem {
	taken := pathItem{operations: map[string]piece{}, settle: settleV3}
	for method, operation := range methodsV3(&item) {
		if *operation != nil {
			taken.operations[method] = *operation
			*operation = nil
		}
	}
	taken.shell = &item
	return taken
}

// methodsV3 returns where an item has its operations.
func methodsV3(item *spec3.Path) map[string]**spec3.Operation {
	return map[string]**spec3.Operation{
		"get": &item.Get, "put": &item.Put, "post": &item.Post, "delete": &item.Delete,
		"options": &item.Options, "head": &item.Head, "patch": &item.Patch, "trace": &item.Trace,
	}
}

// settleV3 gives an operation the parameters of its own path that the other one
// lacks. Those of an operation come before those of its path (OpenAPI 3.0, Path
// Item Object). Parameters that are references have no name of their own: two
// are of one name if they are the same reference.
func settleV3(operation, own, other piece) piece {
	settled := *operation.(*spec3.Operation)
	settled.Parameters = slices.Clone(settled.Parameters)
	for _, parameter := range own.(*spec3.Path).Parameters {
		if parameter == nil {
			continue
		}
		isSame := func(p *spec3.Parameter) bool { return p != nil && sameText(p, parameter) }
		isNamed := func(p *spec3.Parameter) bool {
			return p != nil && p.Name == parameter.Name && p.In == parameter.In && p.Ref.String() == parameter.Ref.String()
		}
		if !slices.ContainsFunc(other.(*spec3.Path).Parameters, isSame) && !slices.ContainsFunc(settled.Parameters, isNamed) {
			settled.Parameters = append(settled.Parameters, parameter)
		}
	}
	return &settled
}
