package upgrade

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// object is a kind of object that clients make, watch and delete.
type object struct {
	gvr       schema.GroupVersionResource
	namespace string // where it is made, empty for one of the whole cluster
	fresh     bool   // only the new version has it
	content   map[string]any
}

func configMaps() *object {
	return &object{
		gvr:       schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		namespace: metav1.NamespaceDefault,
		content:   map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"key": "value"}},
	}
}

func trustBundles(pem []byte) *object {
	return &object{
		gvr:   schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "clustertrustbundles"},
		fresh: true,
		content: map[string]any{
			"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
			"spec": map[string]any{"trustBundle": string(pem)},
		},
	}
}

func csiNodes() *object {
	return &object{
		gvr: schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csinodes"},
		content: map[string]any{
			"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
			"spec": map[string]any{"drivers": []any{}},
		},
	}
}

func (o *object) of(c *client) dynamic.ResourceInterface {
	if o.namespace == "" {
		return c.dynamic.Resource(o.gvr)
	}
	return c.dynamic.Resource(o.gvr).Namespace(o.namespace)
}

func (o *object) named(name string) *unstructured.Unstructured {
	made := (&unstructured.Unstructured{Object: o.content}).DeepCopy()
	made.SetName(name)
	return made
}

// fixture is the name of objects that are there all the time.
const fixture = "fixture"

// reading is one request of a reader.
type reading struct {
	target
	read func(ctx context.Context, c *client) error
}

// readings are all requests of a reader.
func (l *Load) readings() []*reading {
	var all []*reading
	for _, path := range []string{
		"/api/v1/namespaces/default/configmaps",
		"/api/v1/namespaces/default/configmaps/" + fixture,
		"/api/v1/nodes",
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
		"/apis/storage.k8s.io/v1/csinodes/" + fixture,
	} {
		all = append(all, reads(path, false))
	}
	for _, path := range []string{
		"/apis/storage.k8s.io/v1/csinodes/" + fixture + "/status",
		"/apis/storagemigration.k8s.io/v1/storageversionmigrations",
		"/apis/certificates.k8s.io/v1/clustertrustbundles",
		"/apis/certificates.k8s.io/v1/clustertrustbundles/" + fixture,
		"/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests",
	} {
		all = append(all, reads(path, true))
	}
	return all
}

func reads(path string, fresh bool) *reading {
	return &reading{target{what: path, fresh: fresh}, func(ctx context.Context, c *client) error {
		return c.rest.Get().AbsPath(path).Do(ctx).Error()
	}}
}

// beginReading makes what is there all the time, and starts the readers.
func (l *Load) beginReading(ctx context.Context) error {
	maker, err := l.newClient()
	if err != nil {
		return err
	}
	for _, o := range []*object{configMaps(), csiNodes()} {
		if _, err := o.of(maker).Create(ctx, o.named(fixture), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("making a fixture of %v: %w", o.gvr, err)
		}
	}
	l.running.Go(func() { l.makeFresh(ctx, maker) })
	for range readers {
		c, err := l.newClient()
		if err != nil {
			return err
		}
		all, next := l.readings(), 0
		l.every(ctx, readPeriod, func() {
			r := all[next%len(all)]
			next++
			_ = l.do(ctx, &r.target, true, "GET", func(ctx context.Context) error { return r.read(ctx, c) }) // it is counted
		})
	}
	return nil
}

// makeFresh makes the fixtures that only the new version can have, as soon as it
// can.
func (l *Load) makeFresh(ctx context.Context, c *client) {
	select {
	case <-ctx.Done():
		return
	case <-l.epoch.Begun():
	}
	for _, o := range l.objects {
		if !o.fresh {
			continue
		}
		t := &target{what: o.gvr.Resource, fresh: true}
		until(ctx, func() bool {
			return l.do(ctx, t, false, "POST", func(ctx context.Context) error {
				_, err := o.of(c).Create(ctx, o.named(fixture), metav1.CreateOptions{})
				return err
			}) == nil
		})
	}
}
