package transport

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"
)

// everyReason tells of each reason whether it is a misconfiguration.
var everyReason = map[Reason]bool{
	ReasonDial:              false,
	ReasonTimeout:           false,
	ReasonTLS:               false,
	ReasonNotSent:           false,
	ReasonUnknownAuthority:  true,
	ReasonNameMismatch:      true,
	ReasonExpired:           true,
	ReasonNotYetValid:       true,
	ReasonClientCertificate: true,
	ReasonUnauthorized:      true,
	ReasonSelf:              true,
	ReasonAnotherServer:     true,
}

func TestMisconfigurationIsTheReasonOfOne(t *testing.T) {
	for reason, is := range everyReason {
		want := Reason("")
		if is {
			want = reason
		}
		err := fmt.Errorf("discovery: %w", &ConnectError{Reason: reason, Err: errors.New("cause")})
		if got := Misconfiguration(err); got != want {
			t.Errorf("%s: got %q, want %q", reason, got, want)
		}
		if is != strings.Contains(err.Error(), ": "+reason.Remedy()+": ") {
			t.Errorf("%s: %v", reason, err)
		}
	}
	for reason := range remedies {
		if !everyReason[reason] {
			t.Errorf("%s is a misconfiguration that the table lacks", reason)
		}
	}
	if got := Misconfiguration(errors.New("answered with status 500")); got != "" {
		t.Errorf("got %q of another error", got)
	}
}

func TestTroubleIsNewsWhenItIsNewAndOnceAMinute(t *testing.T) {
	type failed struct {
		after        time.Duration
		peer, reason string
		news         bool
	}
	var rows [][]failed
	for reason := range everyReason {
		rows = append(rows, []failed{
			{0, "b", "fetch_discovery", true},
			{time.Second, "b", "fetch_discovery", false},
			{2 * time.Second, "b", string(reason), true},
			{3 * time.Second, "c", string(reason), true},
			{61 * time.Second, "b", string(reason), false},
			{62 * time.Second, "b", string(reason), true},
			{63 * time.Second, "c", string(reason), true},
			{64 * time.Second, "b", "fetch_discovery", true},
			{121 * time.Second, "b", string(reason), false},
			{122 * time.Second, "b", string(reason), true},
		})
	}
	for _, row := range rows {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		log := logger.GetSink().(ktesting.Underlier).GetBuffer()
		var troubles Troubles
		for _, f := range row {
			before := len(log.String())
			troubles.Log(logger, time.Unix(1e9, 0).Add(f.after), "It failed", f.peer, f.reason, errors.New("the cause"))
			line := log.String()[before:]
			if news := line != ""; news != f.news {
				t.Errorf("%s of %s after %v: logged %t, want %t", f.reason, f.peer, f.after, news, f.news)
			}
			for _, part := range []string{"It failed", f.peer, f.reason, "the cause"} {
				if f.news && !strings.Contains(line, part) {
					t.Errorf("the line does not say %q: %s", part, line)
				}
			}
		}
	}
}

func TestTroublesForgetWhatIsOld(t *testing.T) {
	var troubles Troubles
	now := time.Unix(1e9, 0)
	for i := range 1000 {
		troubles.isNews(now.Add(time.Duration(i)*time.Second), trouble{fmt.Sprint("peer ", i), "dial"})
	}
	if n := len(troubles.logged); n != 60 {
		t.Errorf("%d are remembered, want those of a minute, 60", n)
	}
}
