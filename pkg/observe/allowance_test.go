package observe

import (
	"fmt"
	"testing"
	"time"
)

func TestAnAllowanceIsBounded(t *testing.T) {
	limits := Allowance{Longest: 30 * time.Second, Window: 10 * time.Minute}
	type look struct {
		at          time.Duration
		missing     bool
		incarnation string
		want        bool
	}
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"a document that is there leaves no doubt", []look{{0, false, "1", false}}},
		{"a missing document is doubted for 30 s", []look{{0, true, "1", true}, {29 * time.Second, true, "1", true}, {30 * time.Second, true, "1", false}}},
		{"and not again for the same incarnation, however long it stays missing", []look{{0, true, "1", true}, {30 * time.Second, true, "1", false}, {time.Hour, true, "1", false}}},
		{"a document that came ends it", []look{{0, true, "1", true}, {time.Second, false, "1", false}}},
		{"what was not used is there for the next incarnation", []look{{0, true, "1", true}, {10 * time.Second, false, "1", false}, {time.Minute, true, "2", true}, {79 * time.Second, true, "2", true}, {80 * time.Second, true, "2", false}}},
		{"a crash loop gets 30 s in ten minutes", []look{{0, true, "1", true}, {20 * time.Second, true, "2", true}, {30 * time.Second, true, "2", false}, {40 * time.Second, true, "3", false}, {5 * time.Minute, true, "4", false}}},
		{"what was spent counts for a window after it", []look{{0, true, "1", true}, {time.Second, false, "1", false}, {9*time.Minute + 30*time.Second, true, "2", true}, {9*time.Minute + 59*time.Second, true, "2", false}, {10*time.Minute + 2*time.Second, true, "3", true}, {10*time.Minute + 3*time.Second, true, "3", false}}},
		{"a new window is a new account", []look{{0, true, "1", true}, {time.Minute, false, "1", false}, {11 * time.Minute, true, "2", true}, {11*time.Minute + 29*time.Second, true, "2", true}, {11*time.Minute + 30*time.Second, true, "2", false}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var d Account
			for _, look := range tc.looks {
				got, until := d.use(look.missing, look.incarnation, start.Add(look.at), limits)
				if got != look.want {
					t.Errorf("after %v: got %t, want %t", look.at, got, look.want)
				}
				if got && !until.After(start.Add(look.at)) {
					t.Errorf("after %v: it ends at %v, in the past", look.at, until)
				}
			}
		})
	}
}

func TestAnAccountDoesNotGrowWithEachIncarnation(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var a Account
	for i := range 5000 {
		a.use(true, fmt.Sprint(i), start.Add(time.Duration(i)*100*time.Millisecond), Allowance{Longest: 30 * time.Second, Window: 10 * time.Minute})
	}
	if len(a.spent) > 1 {
		t.Errorf("%d uses are remembered, want one", len(a.spent))
	}
}
