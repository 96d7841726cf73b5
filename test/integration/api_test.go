package integration

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	validation "k8s.io/kube-openapi/pkg/validation/spec"
)

// Thing is the one kind of object in these tests. Every resource holds some.
type Thing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Data              string `json:"data,omitempty"`
}

// ThingList is a list of things.
type ThingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Thing `json:"items"`
}

// OpenAPIModelName names the type in OpenAPI.
func (Thing) OpenAPIModelName() string { return "test.integration.Thing" }

// DeepCopyObject implements runtime.Object.
func (t *Thing) DeepCopyObject() runtime.Object {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *ThingList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Thing, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Thing)
	}
	return &out
}

// resource is a resource that a server serves: namespaced, in version v1 of its
// group.
type resource struct {
	group, name string
	// subresources are "status", to get and update, and "exec", to connect to.
	subresources []string
}

func (r resource) gv() schema.GroupVersion { return schema.GroupVersion{Group: r.group, Version: "v1"} }

// common is what every server serves, besides leases.
var common = []resource{{name: "basics"}, {group: "common.k8s.io", name: "things"}}

// ours is a resource that some servers lack.
func ours(subresources ...string) resource {
	return resource{group: "ours.k8s.io", name: "things", subresources: subresources}
}

// leases are the identity leases, at every server.
var leases = resource{group: coordinationv1.GroupName, name: "leases"}

// apis are the APIs of one server.
type apis struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	groups map[string]map[string]rest.Storage
}

// newAPIs opens the storage of the resources, which all servers with the same
// backend share.
func newAPIs(backend *storagebackend.Config, resources []resource) (*apis, error) {
	a := &apis{scheme: newScheme(resources), groups: map[string]map[string]rest.Storage{}}
	a.codecs = serializer.NewCodecFactory(a.scheme)
	lease := kind{func() runtime.Object { return &coordinationv1.Lease{} }, func() runtime.Object { return &coordinationv1.LeaseList{} }}
	if _, err := a.add(backend, leases, lease); err != nil {
		return nil, err
	}
	thing := kind{func() runtime.Object { return &Thing{} }, func() runtime.Object { return &ThingList{} }}
	for _, r := range resources {
		store, err := a.add(backend, r, thing)
		if err != nil {
			return nil, err
		}
		for _, sub := range r.subresources {
			a.groups[r.group][r.name+"/"+sub] = map[string]rest.Storage{"status": statusStorage{store}, "exec": execStorage{}}[sub]
		}
	}
	return a, nil
}

func newScheme(resources []resource) *runtime.Scheme {
	scheme := runtime.NewScheme()
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	scheme.AddKnownTypes(internal(leases), &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	for _, r := range resources {
		scheme.AddKnownTypes(r.gv(), &Thing{}, &ThingList{})
		scheme.AddKnownTypes(internal(r), &Thing{}, &ThingList{})
		if r.group != "" {
			metav1.AddToGroupVersion(scheme, r.gv())
		}
		utilruntime.Must(scheme.SetVersionPriority(r.gv()))
	}
	return scheme
}

// internal is the version into which the server decodes. It has the same types.
func internal(r resource) schema.GroupVersion {
	return schema.GroupVersion{Group: r.group, Version: runtime.APIVersionInternal}
}

func (a *apis) add(backend *storagebackend.Config, r resource, k kind) (*store, error) {
	config := *backend
	config.Codec = a.codecs.LegacyCodec(r.gv())
	config.EncodeVersioner = r.gv()
	s, err := newStore(config, r, k)
	if err != nil {
		return nil, err
	}
	if a.groups[r.group] == nil {
		a.groups[r.group] = map[string]rest.Storage{}
	}
	a.groups[r.group][r.name] = s
	return s, nil
}

// install adds the APIs to a server.
func (a *apis) install(server *genericapiserver.GenericAPIServer) error {
	for group, storage := range a.groups {
		info := genericapiserver.NewDefaultAPIGroupInfo(group, a.scheme, runtime.NewParameterCodec(a.scheme), a.codecs)
		info.PrioritizedVersions = []schema.GroupVersion{{Group: group, Version: "v1"}}
		info.VersionedResourcesStorageMap["v1"] = storage
		var err error
		if group == "" {
			err = server.InstallLegacyAPIGroup("/api", &info)
		} else {
			err = server.InstallAPIGroup(&info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openAPI is as much of OpenAPI as a server needs to track the fields of its
// objects.
func (a *apis) openAPI() *openapicommon.OpenAPIV3Config {
	anything := openapicommon.OpenAPIDefinition{Schema: validation.Schema{
		SchemaProps:      validation.SchemaProps{Type: []string{"object"}},
		VendorExtensible: validation.VendorExtensible{Extensions: validation.Extensions{"x-kubernetes-preserve-unknown-fields": true}},
	}}
	return genericapiserver.DefaultOpenAPIV3Config(func(openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		return map[string]openapicommon.OpenAPIDefinition{
			openapiutil.GetCanonicalTypeName(&Thing{}):                anything,
			openapiutil.GetCanonicalTypeName(&coordinationv1.Lease{}): anything,
		}
	}, openapi.NewDefinitionNamer(a.scheme))
}
