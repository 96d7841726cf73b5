// Command kube-apiserver is the Kubernetes API server with this project's peer
// proxy linked in. It has all flags of the stock server, and without
// --peer-ca-file it behaves as one.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // CronJobs name time zones; the host may have none

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/flagz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the stock server's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
	"k8s.io/component-base/term"
	utilversion "k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"peerproxy.internal/cmd/link"
	peeroptions "peerproxy.internal/pkg/options"
)

func main() {
	os.Exit(cli.Run(newCommand()))
}

// newCommand returns the command; it differs from the stock one in the flags
// under "peer proxy" and in run.
func newCommand() *cobra.Command {
	var own peeroptions.Options
	stock := options.NewServerRunOptions()
	ctx := genericapiserver.SetupSignalContext()
	gates := stock.GenericServerRunOptions.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)

	cmd := &cobra.Command{
		Use:          "kube-apiserver",
		Short:        "The Kubernetes API server, with a peer proxy for control planes of mixed versions",
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			// The server must not log the warnings that it sends to itself.
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return stock.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(stock.Logs, gates); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())
			completed, err := stock.Complete(ctx)
			if err != nil {
				return err
			}
			errs := append(completed.Validate(), link.Validate(completed, own)...)
			if err := utilerrors.NewAggregate(errs); err != nil {
				return err
			}
			gates.(featuregate.MutableFeatureGate).AddMetrics()
			stock.GenericServerRunOptions.ComponentGlobalsRegistry.AddMetrics()
			return run(ctx, completed, own)
		},
		Args: cobra.NoArgs,
	}
	cmd.SetContext(ctx)

	sets := stock.Flags()
	own.AddFlags(sets.FlagSet("peer proxy"))
	stock.Flagz = flagz.NamedFlagSetsReader{FlagSets: sets}
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}

func init() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
}

// run serves until ctx ends.
func run(ctx context.Context, opts options.CompletedOptions, own peeroptions.Options) error {
	klog.FromContext(ctx).Info("Starting kube-apiserver", "version", utilversion.Get(), "GOGC", os.Getenv("GOGC"), "GOMAXPROCS", os.Getenv("GOMAXPROCS"))
	config, err := link.NewConfig(opts, own)
	if err != nil {
		return err
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return fmt.Errorf("create the server chain: %w", err)
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare the server: %w", err)
	}
	return prepared.Run(ctx)
}
