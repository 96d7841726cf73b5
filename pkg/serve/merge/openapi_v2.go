package merge

import (
	"slices"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The beginnings of references to components. Security definitions are never
// referred to.
const (
	definitionsV2         = "#/definitions/"
	parametersV2          = "#/parameters/"
	responsesV2           = "#/responses/"
	securityDefinitionsV2 = "#/securityDefinitions/"
)

// OpenAPIV2 merges the members' whole documents, by the rules of [OpenAPIV3].
//
// It does not use k8s.io/kube-openapi/pkg/aggregator, which merges the parts of
// one server: that takes a whole path from one side, counts the names that it
// gives to definitions, so that they depend on what came before, and does not
// see that two definitions of equal text refer to different ones.
func OpenAPIV2(members []OpenAPIMember[spec.Swagger]) (*spec.Swagger, error) {
	return mergeOpenAPI(members, apartV2, togetherV2)
}

func apartV2(doc *spec.Swagger) *pieces {
	p := &pieces{paths: map[string]pathItem{}, components: map[string]piece{}}
	if doc.Paths != nil {
		for path, item := range doc.Paths.Paths {
			p.paths[path] = itemV2(item)
		}
	}
	take(p, definitionsV2, pointers(doc.Definitions))
	take(p, parametersV2, pointers(doc.Parameters))
	take(p, responsesV2, pointers(doc.Responses))
	take(p, securityDefinitionsV2, doc.SecurityDefinitions)
	return p
}

func togetherV2(first *spec.Swagger, p *pieces) *spec.Swagger {
	merged := *first
	if len(p.paths) > 0 || first.Paths != nil {
		merged.Paths = pathsV2(first.Paths, p)
	}
	merged.Definitions = values(given[*spec.Schema](p, definitionsV2))
	merged.Parameters = values(given[*spec.Parameter](p, parametersV2))
	merged.Responses = values(given[*spec.Response](p, responsesV2))
	merged.SecurityDefinitions = given[*spec.SecurityScheme](p, securityDefinitionsV2)
	return &merged
}

func pathsV2(first *spec.Paths, p *pieces) *spec.Paths {
	merged := &spec.Paths{Paths: make(map[string]spec.PathItem, len(p.paths))}
	if first != nil {
		merged.VendorExtensible = first.VendorExtensible
	}
	for path, item := range p.paths {
		whole := *item.shell.(*spec.PathItem)
		for method, operation := range methodsV2(&whole) {
			if taken, found := item.operations[method]; found {
				*operation = taken.(*spec.Operation)
			}
		}
		merged.Paths[path] = whole
	}
	return merged
}

func itemV2(item spec.PathItem) pathItem {
	taken := pathItem{operations: map[string]piece{}, settle: settleV2}
	for method, operation := range methodsV2(&item) {
		if *operation != nil {
			taken.operations[method] = *operation
			*operation = nil
		}
	}
	taken.shell = &item
	return taken
}

// methodsV2 returns where an item has its operations.
func methodsV2(item *spec.PathItem) map[string]**spec.Operation {
	return map[string]**spec.Operation{
		"get": &item.Get, "put": &item.Put, "post": &item.Post, "delete": &item.Delete,
		"options": &item.Options, "head": &item.Head, "patch": &item.Patch,
	}
}

// settleV2 does what settleV3 does.
func settleV2(operation, own, other piece) piece {
	settled := *operation.(*spec.Operation)
	settled.Parameters = slices.Clone(settled.Parameters)
	for _, parameter := range own.(*spec.PathItem).Parameters {
		isSame := func(p spec.Parameter) bool { return sameText(&p, &parameter) }
		isNamed := func(p spec.Parameter) bool {
			return p.Name == parameter.Name && p.In == parameter.In && p.Ref.String() == parameter.Ref.String()
		}
		if !slices.ContainsFunc(other.(*spec.PathItem).Parameters, isSame) && !slices.ContainsFunc(settled.Parameters, isNamed) {
			settled.Parameters = append(settled.Parameters, parameter)
		}
	}
	return &settled
}

func pointers[T any](components map[string]T) map[string]*T {
	taken := make(map[string]*T, len(components))
	for name, component := range components {
		taken[name] = &component
	}
	return taken
}

func values[T any](components map[string]*T) map[string]T {
	if components == nil {
		return nil
	}
	given := make(map[string]T, len(components))
	for name, component := range components {
		given[name] = *component
	}
	return given
}
