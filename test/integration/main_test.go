// Package integration tests the peer proxy inside whole API servers: generic
// ones of k8s.io/apiserver, several in this process, over one real etcd.
//
// The proxy is linked in as cmd/link does it with a kube-apiserver: innermost in
// the default handler chain, driven by the same hooks. Each test has a control
// plane of its own, by a prefix of its own in the shared etcd. Members that lie,
// hang or break are scripted TLS servers with a record in etcd.
package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"peerproxy.internal/test/cluster"
)

// shared is where all tests have their etcd and their certificates from.
var shared *cluster.Cluster

// logged is what the servers have logged so far; with -v they log to standard
// error instead.
var logged servedLog

type servedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *servedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// says reports whether some line holds all the parts.
func (l *servedLog) says(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return true
		}
	}
	return testing.Verbose()
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if !testing.Verbose() {
		klog.LogToStderr(false)
		klog.SetOutput(&logged)
	}
	// The tests wait more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		return fail(err)
	}
	var err error
	if shared, err = cluster.Start(context.Background(), cluster.Config{}); err != nil {
		return fail(err)
	}
	code := m.Run()
	if err := shared.Stop(); err != nil {
		return fail(err)
	}
	// The hook that writes the record polls /readyz under no context, and pauses
	// for as long as Retry-After says. A connection of a server's own client that
	// is new when the server stops stays until client-go finds it idle, for 90 s.
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if err = goleak.Find(); err == nil {
			return code
		}
	}
	return fail(err)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
