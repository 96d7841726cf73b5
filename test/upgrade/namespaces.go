package upgrade

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// goneTimeout is how long the deletion of a namespace may take.
const goneTimeout = time.Minute

func namespaces() *object {
	return &object{
		gvr:     schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		content: map[string]any{"apiVersion": "v1", "kind": "Namespace"},
	}
}

// certificateRequests are the namespaced objects that only the new version has.
// Each holds an empty certificate signing request that proves possession of a key.
func certificateRequests() (*object, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	return &object{
		gvr:   schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "podcertificaterequests"},
		fresh: true,
		content: map[string]any{
			"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
			"spec": map[string]any{
				"signerName": "example.com/signer",
				"podName":    "pod", "podUID": "pod-uid",
				"serviceAccountName": "account", "serviceAccountUID": "account-uid",
				"nodeName": "node", "nodeUID": "node-uid",
				"maxExpirationSeconds": int64(86400),
				"stubPKCS10Request":    base64.StdEncoding.EncodeToString(stub),
			},
		},
	}, nil
}

// CertificateRequest returns a PodCertificateRequest of certificates.k8s.io/v1: a
// namespaced object of a kind that Kubernetes 1.37 has and 1.36 has not.
func CertificateRequest(name string) (*unstructured.Unstructured, error) {
	o, err := certificateRequests()
	if err != nil {
		return nil, err
	}
	return o.named(name), nil
}

// beginNamespaces starts clients that make namespaces with objects in them and
// delete them again, and look in etcd for what was left behind.
func (l *Load) beginNamespaces(ctx context.Context) error {
	requests, err := certificateRequests()
	if err != nil {
		return err
	}
	for i := range namespacesAtATime {
		c, err := l.newClient()
		if err != nil {
			return err
		}
		n := &nester{load: l, client: c, contents: []*object{configMaps(), requests}}
		next := 0
		l.every(ctx, namespacePeriod, func() {
			next++
			n.live(ctx, fmt.Sprintf("come-and-go-%d-%d", i, next))
		})
	}
	return nil
}

// nester makes namespaces and deletes them again.
type nester struct {
	load     *Load
	client   *client
	contents []*object
	// known is true once it made an object that only the new version has.
	known bool
}

// live takes one namespace through its life.
func (n *nester) live(ctx context.Context, name string) {
	done, fresh := n.load.epoch.Use()
	defer done()
	all := namespaces()
	t := &target{what: "namespaces/" + name}
	err := n.load.do(ctx, t, false, "POST", func(ctx context.Context) error {
		_, err := all.of(n.client).Create(ctx, all.named(name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return
	}
	for _, o := range n.contents {
		if !o.fresh || fresh {
			n.fill(ctx, o, name)
		}
	}
	err = n.load.do(ctx, t, false, "DELETE", func(ctx context.Context) error {
		return all.of(n.client).Delete(ctx, name, metav1.DeleteOptions{})
	})
	if err != nil || !n.gone(ctx, name) {
		return
	}
	n.load.counts.Add(Namespaces)
	n.lookForOrphans(ctx, name)
}

// fill makes an object in the namespace.
func (n *nester) fill(ctx context.Context, o *object, namespace string) {
	in := *o
	in.namespace = namespace
	t := &target{what: o.gvr.Resource + " in " + namespace, fresh: o.fresh, seen: n.known}
	err := n.load.do(ctx, t, false, "POST", func(ctx context.Context) error {
		_, err := in.of(n.client).Create(ctx, in.named("object"), metav1.CreateOptions{})
		return err
	})
	n.known = n.known || o.fresh && err == nil
}

// gone waits until there is no such namespace any more.
func (n *nester) gone(ctx context.Context, name string) (gone bool) {
	limit, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	until(limit, func() bool {
		_, err := namespaces().of(n.client).Get(limit, name, metav1.GetOptions{})
		gone = apierrors.IsNotFound(err)
		return gone
	})
	if !gone && ctx.Err() == nil {
		n.load.counts.Note(Stuck, "%s: %s", name, n.why(ctx, name))
	}
	return gone
}

// why is what the namespace controller says.
func (n *nester) why(ctx context.Context, name string) string {
	found, err := namespaces().of(n.client).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(found.Object["status"])
}

// lookForOrphans counts what a deleted namespace has left behind.
func (n *nester) lookForOrphans(ctx context.Context, name string) {
	keys, err := LeftIn(ctx, n.load.etcd, name)
	switch {
	case ctx.Err() != nil: // the run is over
	case err != nil:
		n.load.counts.Note(Orphans, "%s can't be looked into: %v", name, err)
	}
	for _, key := range keys {
		n.load.counts.Note(Orphans, "%s", key)
	}
}

// LeftIn returns the keys in etcd of all objects in a namespace. No server is
// asked: of what was forgotten none may know.
func LeftIn(ctx context.Context, etcd *clientv3.Client, namespace string) ([]string, error) {
	found, err := etcd.Get(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, kv := range found.Kvs {
		if key := string(kv.Key); strings.Contains(key, "/"+namespace+"/") {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
