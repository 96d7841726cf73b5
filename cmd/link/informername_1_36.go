//go:build kubernetes_1_36

package link

import "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

// nameInformers does nothing: informers have no name in Kubernetes 1.36.
func nameInformers(*options.CompletedOptions) error { return nil }
