package transport_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

func TestAnAnswerOfAnotherServerIsNone(t *testing.T) {
	pki := peertest.NewPKI(t)
	var says *string
	peer := (&peertest.Peer{ID: "c", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if says != nil {
			w.Header().Set(transport.ServerHeader, *says)
		}
		_, _ = w.Write([]byte("a document"))
	})}).Start(t, pki)
	asServer := transport.AsServer(running(t, configFor(t, pki)))
	for _, tc := range []struct {
		name  string
		asked string
		says  *string
		taken bool
	}{
		{"a stock server", "b", nil, true},
		{"an empty name", "b", new(""), true},
		{"the one that is asked", "b", new("b"), true},
		{"another", "b", new("c"), false},
		{"its name alone begins alike", "b", new("b2"), false},
		{"a name that never ends", "b", new(strings.Repeat("b", 1<<16)), false},
		{"no one was asked by name", "", new("c"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			says = tc.says
			req := newRequest(t, "GET", peer.Address(), "")
			if tc.asked != "" {
				req.Header.Set(transport.ServerHeader, tc.asked)
			}
			res, err := asServer.RoundTrip(req)
			if tc.taken {
				if err != nil {
					t.Fatal(err)
				}
				if got := readAll(t, res); got != "a document" {
					t.Errorf("got %q", got)
				}
				return
			}
			var connect *transport.ConnectError
			if !errors.As(err, &connect) || connect.Reason != transport.ReasonAnotherServer {
				t.Fatalf("got %v, want a ConnectError of reason another_server", err)
			}
			if text := err.Error(); !strings.Contains(text, `in the place of "b"`) || len(text) > 600 {
				t.Errorf("it says: %s", text)
			}
		})
	}
}
