package link

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// CustomResources returns the resources that a custom resource definition
// owns, one for each version that it serves.
func CustomResources(obj any) []schema.GroupVersionResource {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	definition, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil
	}
	var owned []schema.GroupVersionResource
	for _, version := range definition.Spec.Versions {
		if version.Served {
			owned = append(owned, schema.GroupVersionResource{
				Group:    definition.Spec.Group,
				Version:  version.Name,
				Resource: definition.Spec.Names.Plural,
			})
		}
	}
	return owned
}
