package link

import (
	"reflect"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

func TestCustomResources(t *testing.T) {
	definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com",
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Served: true},
			{Name: "v1beta1"},
			{Name: "v2", Served: true},
		},
	}}
	served := []schema.GroupVersionResource{
		{Group: "example.com", Version: "v1", Resource: "widgets"},
		{Group: "example.com", Version: "v2", Resource: "widgets"},
	}
	for _, tc := range []struct {
		name string
		obj  any
		want []schema.GroupVersionResource
	}{
		{"the versions that are served", definition, served},
		{"a deletion that was seen late", cache.DeletedFinalStateUnknown{Obj: definition}, served},
		{"another object", "none", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := CustomResources(tc.obj); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
