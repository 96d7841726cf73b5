package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/observe/lease"
)

// Each change is one line in the log, at the default verbosity, and in the metric
// at once.
func TestAPeersStateIsInTheMetricAndEachChangeInTheLog(t *testing.T) {
	metrics.Register()
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		log, seen := logger.GetSink().(ktesting.Underlier).GetBuffer(), 0
		c := &cluster{listed: true, serves: map[string]string{"local": "one", "b:1": "two", "c:1": "three"}}
		o := newObserver(c)
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		done := make(chan error)
		go func() { done <- o.Run(ctx) }()
		defer func() { stop(); <-done }()

		early := at("c", "c:1", "c_1")
		early.Record.Starting, early.Record.Incarnation = true, "c_1"
		lost := at("b", "b:1", "b_1")
		lost.Record = nil
		for _, step := range []struct {
			name    string
			members []lease.Member
			wait    time.Duration
			// counts are those of serving, starting, unreachable, departed.
			counts [4]int
			log    []string
		}{
			{"none", nil, 0, [4]int{}, nil},
			{"one comes, and another starts", []lease.Member{at("b", "b:1", "b_1"), early}, 0, [4]int{1, 1},
				[]string{"b Serving b:1", "c Starting c:1"}},
			{"nothing changes", []lease.Member{at("b", "b:1", "b_1"), early}, time.Minute, [4]int{1, 1}, nil},
			{"both are ready", []lease.Member{at("b", "b:1", "b_1"), at("c", "c:1", "c_1")}, 0, [4]int{2},
				[]string{"c Serving c:1"}},
			{"one is lost", []lease.Member{lost, at("c", "c:1", "c_1")}, 0, [4]int{1, 0, 1},
				[]string{"b Unreachable b:1"}},
			{"it has left", []lease.Member{at("c", "c:1", "c_1")}, 0, [4]int{1, 0, 0, 1},
				[]string{"b Departed b:1"}},
			{"it is forgotten", []lease.Member{at("c", "c:1", "c_1")}, limits.DepartureGrace, [4]int{1},
				[]string{"b is gone"}},
		} {
			c.set(func() { c.members = step.members })
			time.Sleep(step.wait)
			synctest.Wait()
			checkPeers(t, step.name, step.counts)
			lines := log.Data()
			if got := stateChanges(lines[seen:]); !slices.Equal(got, step.log) {
				t.Errorf("%s: the log has %q, want %q", step.name, got, step.log)
			}
			seen = len(lines)
		}
	})
}

// checkPeers compares the metric.
func checkPeers(t *testing.T, name string, want [4]int) {
	t.Helper()
	text := `
# HELP apiserver_peer_proxy_peers [ALPHA] Number of peer kube-apiservers that this kube-apiserver knows, by 'state': serving, starting, unreachable or departed.
# TYPE apiserver_peer_proxy_peers gauge
`
	for i, state := range []string{"serving", "starting", "unreachable", "departed"} {
		text += fmt.Sprintf("apiserver_peer_proxy_peers{state=%q} %d\n", state, want[i])
	}
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(text), "apiserver_peer_proxy_peers"); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// stateChanges returns what lines of the log say of peers' states.
func stateChanges(lines ktesting.Log) []string {
	var changes []string
	for _, line := range lines {
		values := map[any]any{}
		for i := 0; i+1 < len(line.ParameterKVList); i += 2 {
			values[line.ParameterKVList[i]] = line.ParameterKVList[i+1]
		}
		switch line.Message {
		case "A peer's state has changed":
			changes = append(changes, fmt.Sprint(values["peer"], " ", values["state"], " ", values["address"]))
		case "A peer takes no part any more":
			changes = append(changes, fmt.Sprint(values["peer"], " is gone"))
		}
	}
	return changes
}
