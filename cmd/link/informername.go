//go:build !kubernetes_1_36

package link

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// nameInformers sets the name that the server's informers have in metrics, as
// the stock server does. A process can take it once.
func nameInformers(opts *options.CompletedOptions) (err error) {
	if opts.InformerName == nil {
		opts.InformerName, err = cache.NewInformerName("kube-apiserver")
	}
	return err
}
