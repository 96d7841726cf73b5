package sim

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	// The other handler spreads errors over time: over that of the whole process,
	// which is 27 years ahead of a bubble's, or that of another bubble.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// setting is a number from the environment.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return number
}

// enough is after how many failed seeds the rest is not tried.
const enough = 3

// TestSim plays the scripts of SEEDS seeds, from FIRST on; or that of SEED alone,
// and tells all that happens.
func TestSim(t *testing.T) {
	first, count := setting(t, "FIRST", 1), setting(t, "SEEDS", 20)
	var verbose io.Writer
	if one := setting(t, "SEED", 0); one > 0 {
		first, count, verbose = one, 1, t.Output()
	}
	pki := newPKI(t)
	var failed atomic.Int32
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			if failed.Load() >= enough {
				t.Skip("enough has failed")
			}
			synctest.Test(t, func(t *testing.T) {
				trace, wrong := play(t, pki, newScript(seed), verbose)
				if wrong > 0 {
					failed.Add(1)
					t.Errorf("%d times a law was broken; again: make sim SEED=%d\n%s", wrong, seed, strings.Join(trace, "\n"))
				}
			})
		})
	}
}
