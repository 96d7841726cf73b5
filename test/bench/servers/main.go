// Command servers measures what serving merged discovery costs real
// kube-apiservers: this project's, two versions that are peers, and stock ones,
// in one cluster and one run, so that the ratios between them are fair though
// the machine is busy. `make bench-servers` builds what it needs and runs it, on
// Linux and as root.
//
// It prints how many requests a second each server answers, and the CPU time that
// an answer takes the server: for /healthz, which costs little more than the
// handler chain, for the merged /apis (aggregated, JSON, gzip), and for the same
// when the client has it already (304). Clients have one connection each and share
// the machine with the servers. Then it prints how long it takes until a new
// custom resource is in the merged document of each server.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"peerproxy.internal/test/cluster"
)

// options say what is measured.
type options struct {
	crds    int
	rounds  int
	round   time.Duration
	changes int
	profile string
}

// clients is how many clients ask at once.
const clients = 8

// The servers. Each of ours is compared with the stock one two places on.
var servers = []struct{ name, binary string }{
	{"ours-137", "kube-apiserver-v1.37"},
	{"ours-136", "kube-apiserver-v1.36"},
	{"stock-137", "stock-kube-apiserver-v1.37"},
	{"stock-136", "stock-kube-apiserver-v1.36"},
}

// ours is how many of the servers are this project's.
const ours = 2

func main() {
	var o options
	pflag.IntVar(&o.crds, "crds", 300, "how many custom resource definitions there are")
	pflag.IntVar(&o.rounds, "rounds", 5, "how often each server is measured; the median counts")
	pflag.DurationVar(&o.round, "round", time.Second, "how long each measurement takes")
	pflag.IntVar(&o.changes, "changes", 7, "how many custom resource definitions are created afterwards, one by one")
	pflag.StringVar(&o.profile, "profile", "", "file for a CPU profile of the first server while it serves the merged document")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	progress := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	c, err := cluster.Start(ctx, cluster.Config{Progress: progress})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := c.Stop(); err == nil {
			err = stopErr
		}
	}()
	started, err := start(ctx, c)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fill(ctx, started, o.crds); err != nil {
		return err
	}
	progress("%d custom resource definitions: in every document after %v", o.crds, time.Since(began).Round(time.Millisecond))
	share, err := settle(ctx, started, 60)
	if err != nil {
		return err
	}
	progress("the servers use %.0f %% of a CPU after %v", 100*share, time.Since(began).Round(time.Second))
	fmt.Fprintf(out, "%d CPUs, %d custom resource definitions, %d clients, median of %d rounds of %v\n", runtime.NumCPU(), o.crds, clients, o.rounds, o.round)
	for _, protocol := range protocols {
		if err := measure(ctx, out, o, started, protocol); err != nil {
			return err
		}
	}
	if o.profile != "" {
		if err := profile(ctx, started[0], o.profile); err != nil {
			return err
		}
	}
	return measureChanges(ctx, out, started, o.changes)
}

func start(ctx context.Context, c *cluster.Cluster) ([]*cluster.Server, error) {
	var configs []cluster.ServerConfig
	for _, server := range servers {
		binary, err := cluster.FindBinary("bin/" + server.binary)
		if err != nil {
			return nil, err
		}
		configs = append(configs, cluster.ServerConfig{Name: server.name, Binary: binary})
	}
	return c.StartServers(ctx, configs...)
}
