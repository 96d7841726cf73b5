package transport_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// In HTTP/2 they share what the first has dialled; in HTTP/1.1 each needs its own.
func TestManyRequestsAtOnce(t *testing.T) {
	const many = 100
	for _, http1 := range []bool{false, true} {
		var together sync.WaitGroup
		together.Add(many)
		pki := peertest.NewPKI(t)
		peer := &peertest.Peer{HTTP1: http1, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			together.Done()
			together.Wait()
		})}
		peer.Start(t, pki)
		tr := running(t, configFor(t, pki))
		var requests sync.WaitGroup
		for range many {
			requests.Go(func() { get(t, tr, peer.Address()) })
		}
		requests.Wait()
		switch n := peer.Connections(); {
		case http1 && n < many:
			t.Errorf("%d connections over HTTP/1.1", n)
		case !http1 && n > many/4:
			t.Errorf("%d connections over HTTP/2", n)
		}
	}
}

func TestDialThatFailsFailsForAllWhoWait(t *testing.T) {
	const many = 50
	config := configFor(t, peertest.NewPKI(t))
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		config.Dial = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			time.Sleep(time.Second)
			return nil, errors.New("unreachable")
		}
		tr := running(t, config)
		start := time.Now()
		var requests sync.WaitGroup
		for range many {
			requests.Go(func() {
				_, err := tr.RoundTrip(newRequest(t, "GET", "peer:6443", ""))
				wantReason(t, err, transport.ReasonDial)
			})
		}
		requests.Wait()
		if took := time.Since(start); dials.Load() != 1 || took != time.Second {
			t.Errorf("%d dials, %v", dials.Load(), took)
		}
	})
}

func TestDialThatWasGivenUpFailsForNoOneElse(t *testing.T) {
	config := configFor(t, peertest.NewPKI(t))
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		config.Dial = func(context.Context, string, string) (net.Conn, error) {
			n := dials.Add(1)
			time.Sleep(time.Second)
			if n == 1 {
				return nil, context.Canceled
			}
			return nil, errors.New("unreachable")
		}
		tr := running(t, config)
		var requests sync.WaitGroup
		requests.Go(func() { _, _ = tr.RoundTrip(newRequest(t, "GET", "peer:6443", "")) })
		synctest.Wait()
		for range 10 {
			requests.Go(func() {
				if _, err := tr.RoundTrip(newRequest(t, "GET", "peer:6443", "")); errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		}
		requests.Wait()
		if dials.Load() != 2 {
			t.Errorf("%d dials", dials.Load())
		}
	})
}

// A dial to one address holds up none to another.
func TestDialsToDifferentPeersDoNotWaitForEachOther(t *testing.T) {
	config := configFor(t, peertest.NewPKI(t))
	synctest.Test(t, func(t *testing.T) {
		config.Dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			if address == "slow:6443" {
				<-ctx.Done()
			}
			return nil, errors.New("unreachable")
		}
		tr := running(t, config)
		var requests sync.WaitGroup
		requests.Go(func() { _, _ = tr.RoundTrip(newRequest(t, "GET", "slow:6443", "")) })
		synctest.Wait()
		start := time.Now()
		_, _ = tr.RoundTrip(newRequest(t, "GET", "peer:6443", ""))
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		requests.Wait()
	})
}

// Neither a request that has given up nor one that was answered dials late.
func TestNoOneDialsForARequestThatIsOver(t *testing.T) {
	const many = 20
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	serving := (&peertest.Peer{}).Start(t, pki)
	serving.Stop()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		defer l.Close()
		serving.ServeAlso(l)
		defer serving.Stop()
		var dials atomic.Int32
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			time.Sleep(time.Second)
			return l.dial(ctx, network, address)
		}
		tr := running(t, config)
		var requests sync.WaitGroup
		requests.Go(func() { get(t, tr, "peer:6443") })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		for range many {
			req := newRequest(t, "GET", "peer:6443", "").WithContext(ctx)
			requests.Go(func() {
				if _, err := tr.RoundTrip(req); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		requests.Wait()
		time.Sleep(time.Minute)
		if dials.Load() != 1 {
			t.Errorf("%d dials", dials.Load())
		}
	})
}
