package upgrade

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

var full = flag.Bool("full", false, "the long upgrade, there and back, of three kinds of servers")

func TestMain(m *testing.M) {
	// What informers complain of is what is counted.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

func bin(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make upgrade-test`, or make the target of that name", err)
	}
	return path
}

// ours is the plan for this project's servers.
func ours(t *testing.T) Plan {
	return Plan{
		Name:        "this project",
		Old:         bin(t, "kube-apiserver-v1.36"),
		New:         bin(t, "kube-apiserver-v1.37"),
		Controllers: bin(t, "kube-controller-manager-v1.37"),
		Progress:    t.Logf,
		Dir:         artifacts(t),
	}
}

// withoutProxy is the same with the mixed version proxy turned off.
func withoutProxy(t *testing.T) Plan {
	plan := ours(t)
	plan.Name, plan.PeersOff = "this project, proxy off", true
	return plan
}

// stock is the plan for unchanged servers.
func stock(t *testing.T) Plan {
	plan := ours(t)
	plan.Name, plan.Old, plan.New = "stock", bin(t, "stock-kube-apiserver-v1.36"), bin(t, "stock-kube-apiserver-v1.37")
	return plan
}

// artifacts is where a run's files go: to UPGRADE_ARTIFACTS if that is set, so
// that logs outlive it.
func artifacts(t *testing.T) string {
	root := os.Getenv("UPGRADE_ARTIFACTS")
	if root == "" {
		return ""
	}
	return filepath.Join(root, strings.ReplaceAll(t.Name(), "/", "_"))
}

func TestAnUpgradeUnderLoadHarmsNoClient(t *testing.T) {
	plan := ours(t)
	plan.Settle = 5 * time.Second
	result, err := plan.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	Report(t.Output(), result)
	Examples(t.Output(), result)
	wantNoHarm(t, result)
}

// wantNoHarm fails the test unless all kinds of clients did something, and nothing
// of it went wrong. A write may be answered with a 504: a lost answer is one to a
// request that may have been executed, and no one may send it again. Whether it
// was executed twice all the same is counted.
func wantNoHarm(t *testing.T, result *Result) {
	t.Helper()
	for _, kind := range []Kind{WrongAbsent, FailedSafe, FailedUnsafe, BrokenUnsafe, OtherUnsafe, Twice, FailedWalks, Flips, Missed, Orphans, Stuck, Killed} {
		if n := result.Counts.Of(kind); n > 0 {
			t.Errorf("%s: %d", kind, n)
		}
	}
	for _, kind := range []Kind{SafeRequests, UnsafeRequests, Walks, Discoveries, Events, Namespaces} {
		if result.Counts.Of(kind) == 0 {
			t.Errorf("%s: none", kind)
		}
	}
}

// TestReport makes the report of the long upgrade: there and back. Of this
// project's servers it wants that they harm no client.
func TestReport(t *testing.T) {
	if !*full {
		t.Skip("it takes nine minutes: make upgrade-test runs it")
	}
	var results []*Result
	for _, run := range []struct {
		name     string
		plan     func(*testing.T) Plan
		harmless bool
	}{{"ours", ours, true}, {"off", withoutProxy, false}, {"stock", stock, false}} {
		t.Run(run.name, func(t *testing.T) {
			plan := run.plan(t)
			plan.Back, plan.Settle = true, 10*time.Second
			result, err := plan.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			Examples(t.Output(), result)
			results = append(results, result)
			if run.harmless {
				wantNoHarm(t, result)
			}
		})
	}
	Report(os.Stdout, results...)
}
