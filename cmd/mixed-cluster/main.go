// Command mixed-cluster runs a Kubernetes control plane of mixed versions on
// this machine, until Ctrl-C: etcd and any number of kube-apiservers on
// loopback, with certificates, users and kubeconfigs of their own.
//
//	mixed-cluster --server new=v1.37 --server old=v1.37,emulated=1.36
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"peerproxy.internal/test/cluster"
)

const usage = `mixed-cluster runs a Kubernetes control plane of mixed versions on this machine,
until Ctrl-C: etcd and any number of kube-apiservers on loopback.

  mixed-cluster [--dir DIR] [--server NAME=BINARY[,KEY=VALUE]...]...

  mixed-cluster --server new=v1.37 --server old=v1.37,emulated=1.36
  mixed-cluster --server new=v1.37 --server old=/path/to/a/stock/kube-apiserver

BINARY is a release that "make build" has built, as v1.37, or the path of any
kube-apiserver. Stock ones need root, for a host name of their own.

  KEY=VALUE             what it does
  emulated=1.36         serve the APIs of that release
  peers=off             run without the peer proxy (no --peer-ca-file)
  runtime-config=K=V    turn an API version on or off, as api/all=true
  audit=on              write an audit log of every request
  id=apiserver-X        the server ID, instead of apiserver-NAME
  v=4                   log level
  flag.NAME=VALUE       any flag of kube-apiserver; if repeated, joined by commas

Flags:
`

// defaultServers are what runs when nothing is asked for.
var defaultServers = []string{"new=v1.37", "old=v1.37,emulated=1.36"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mixed-cluster:", err)
		os.Exit(1)
	}
}

// run starts the cluster and keeps it until the context ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	dir, configs, err := parse(args)
	if err != nil {
		return err
	}
	if err := cluster.Check(ctx, configs...); err != nil {
		return orInterrupted(ctx, err)
	}
	c, err := cluster.Start(ctx, cluster.Config{Dir: dir, Progress: func(format string, args ...any) {
		fmt.Fprintf(out, format+"\n", args...)
	}})
	if err != nil {
		return orInterrupted(ctx, err)
	}
	servers, err := c.StartServers(ctx, configs...)
	if err != nil {
		if dir == "" {
			err = fmt.Errorf("%w\n(run it with --dir DIR to keep the logs)", err)
		}
		return errors.Join(orInterrupted(ctx, err), c.Stop())
	}
	printUse(ctx, out, c, servers, dir != "")
	watch(ctx, out, servers)
	fmt.Fprintln(out, "\nStopping.")
	return c.Stop()
}

// orInterrupted is the error, unless the user ended what failed.
func orInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

func parse(args []string) (dir string, configs []cluster.ServerConfig, err error) {
	flags := pflag.NewFlagSet("mixed-cluster", pflag.ContinueOnError)
	flags.SortFlags = false
	specs := flags.StringArray("server", defaultServers, "a server to run, NAME=BINARY[,KEY=VALUE]...; may be repeated")
	flags.StringVar(&dir, "dir", "", "an empty or new directory for kubeconfigs, logs, certificates and data; it is kept (default: a temporary one)")
	flags.Usage = func() {
		fmt.Fprint(os.Stdout, usage)
		fmt.Fprint(os.Stdout, flags.FlagUsages())
	}
	if err := flags.Parse(args); err != nil {
		return "", nil, err
	}
	if flags.NArg() > 0 {
		return "", nil, fmt.Errorf("unexpected argument %q: give servers as --server name=binary", flags.Arg(0))
	}
	for _, spec := range *specs {
		config, err := cluster.ParseServer(spec)
		if err != nil {
			return "", nil, err
		}
		if config.Binary, err = cluster.FindBinary(config.Binary, binaryDirs()...); err != nil {
			return "", nil, fmt.Errorf("server %q: %w", spec, err)
		}
		configs = append(configs, config)
	}
	return dir, configs, nil
}

// binaryDirs are where releases are looked for.
func binaryDirs() []string {
	self, err := os.Executable()
	if err != nil {
		return []string{"bin"}
	}
	return []string{filepath.Dir(self), "bin"}
}

// watch returns when the context ends, and tells meanwhile of servers that end
// by themselves, or are killed by someone who wants to see what happens.
func watch(ctx context.Context, out io.Writer, servers []*cluster.Server) {
	ended := make(chan *cluster.Server, len(servers))
	for _, s := range servers {
		go func() {
			select {
			case <-s.Done():
				ended <- s
			case <-ctx.Done():
			}
		}()
	}
	for {
		select {
		case s := <-ended:
			fmt.Fprintf(out, "\n%v\nThe others go on.\n", s.Err())
		case <-ctx.Done():
			return
		}
	}
}
