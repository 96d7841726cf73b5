package link_test

import (
	"context"

	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"peerproxy.internal/cmd/link"
	peeroptions "peerproxy.internal/pkg/options"
)

// A kube-apiserver runs with the peer proxy when link.NewConfig makes its
// configuration instead of app.NewConfig.
func ExampleNewConfig() {
	run := func(ctx context.Context, opts options.CompletedOptions, own peeroptions.Options) error {
		config, err := link.NewConfig(opts, own) // in the place of app.NewConfig(opts)
		if err != nil {
			return err
		}
		completed, err := config.Complete()
		if err != nil {
			return err
		}
		server, err := app.CreateServerChain(completed)
		if err != nil {
			return err
		}
		prepared, err := server.PrepareRun()
		if err != nil {
			return err
		}
		return prepared.Run(ctx)
	}
	_ = run
}
