package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"peerproxy.internal/test/cluster"
)

// printUse tells what runs and how to use it.
func printUse(ctx context.Context, out io.Writer, c *cluster.Cluster, servers []*cluster.Server, kept bool) {
	fmt.Fprint(out, "\nThe cluster is up.\n\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  SERVER\tVERSION\tSERVER ID\tURL\tKUBECONFIG")
	for _, s := range servers {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", s.Name(), describeVersion(ctx, s), s.ID(), s.URL(), s.Kubeconfig())
	}
	_ = table.Flush() // it fails where printing would

	example := servers[min(1, len(servers)-1)]
	fmt.Fprintf(out, `
Use it from another terminal:

  export KUBECONFIG=%s
  kubectl get --raw /apis
  kubectl get leases -n kube-system -l apiserver.kubernetes.io/identity=kube-apiserver

Logs are in %s, etcd answers at %s.
%s
`, example.Kubeconfig(), c.Dir, c.EtcdURL(), ending(kept))
}

func ending(kept bool) string {
	if kept {
		return "Ctrl-C stops it all; the directory stays."
	}
	return "Ctrl-C stops it all and removes the directory."
}

func describeVersion(ctx context.Context, s *cluster.Server) string {
	info, err := s.Version(ctx)
	if err != nil {
		return "unknown: " + err.Error()
	}
	emulated := info.EmulationMajor + "." + info.EmulationMinor
	if info.EmulationMajor == "" || emulated == info.Major+"."+info.Minor {
		return info.GitVersion
	}
	return info.GitVersion + " as " + emulated
}
