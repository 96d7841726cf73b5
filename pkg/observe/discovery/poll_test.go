package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
)

// misconfigurations are the reasons that have a remedy.
var misconfigurations = []transport.Reason{
	transport.ReasonUnknownAuthority, transport.ReasonNameMismatch, transport.ReasonExpired, transport.ReasonNotYetValid,
	transport.ReasonClientCertificate, transport.ReasonUnauthorized, transport.ReasonSelf, transport.ReasonAnotherServer,
}

func TestLabelOfAFailureIsItsCauseWhereThatIsAMisconfiguration(t *testing.T) {
	for _, reason := range misconfigurations {
		if got := labelOf(fmt.Errorf("discovery: %w", &transport.ConnectError{Reason: reason})); got != string(reason) {
			t.Errorf("%s: got %q", reason, got)
		}
	}
	for _, err := range []error{
		errors.New("answered with status 500"),
		&transport.ConnectError{Reason: transport.ReasonDial},
		&transport.ConnectError{Reason: transport.ReasonTimeout},
		&transport.ConnectError{Reason: transport.ReasonTLS},
		&transport.ConnectError{Reason: transport.ReasonNotSent},
	} {
		if got := labelOf(err); got != "fetch_discovery" {
			t.Errorf("%v: got %q", err, got)
		}
	}
}

func TestOwnFailuresAreShownAtFirstAndThenSeldom(t *testing.T) {
	shown := map[int]bool{1: true, 64: true, 128: true}
	for failures := 1; failures < 192; failures++ {
		if got := verbosity(failures) == 0; got != shown[failures] {
			t.Errorf("failure %d: shown %t", failures, got)
		}
	}
}

// A peer that refuses connections while it restarts, and then comes with a
// certificate that is no good, has never said what it serves: no request goes to
// it that would tell.
func TestAMisconfigurationThatIsNotTheFirstFailureIsLogged(t *testing.T) {
	for _, reason := range misconfigurations {
		t.Run(string(reason), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
				log := logger.GetSink().(ktesting.Underlier).GetBuffer()
				logged := func() int { return strings.Count(log.String(), fmt.Sprintf("reason=%q", reason)) }
				ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
				refuses := time.Now().Add(5 * time.Second)
				p := Poller{
					Server: Server{ID: "b", Host: "b", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
						if time.Now().Before(refuses) {
							return nil, &transport.ConnectError{Reason: transport.ReasonDial, Err: errors.New("connection refused")}
						}
						return nil, &transport.ConnectError{Reason: reason, Err: errors.New("cause")}
					})},
					Deliver: func(*snapshot.Document) { t.Error("a document") },
					Clock:   clock.RealClock{},
					Random:  func(n int) int { return n / 2 },
				}
				done := make(chan struct{})
				go func() { p.Run(ctx); close(done) }()
				time.Sleep(4 * time.Second)
				if n := strings.Count(log.String(), "\n"); n != 1 {
					t.Errorf("%d lines of a peer that refuses connections, want 1: %s", n, log.String())
				}
				time.Sleep(16 * time.Second)
				if text := log.String(); logged() == 0 || !strings.Contains(text, reason.Remedy()) {
					t.Errorf("the cause and what to do are not in the log: %s", text)
				}
				before := logged()
				time.Sleep(10 * time.Minute)
				if lines := logged() - before; lines < 8 || lines > 10 {
					t.Errorf("%d lines in ten minutes, want one a minute", lines)
				}
				stop()
				<-done
			})
		})
	}
}
