package openapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/snapshot"
	"peerproxy.internal/pkg/transport"
)

// counted returns the failed fetches that were counted so far, by the cause or
// what was fetched.
func counted(t *testing.T) map[string]int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() != "apiserver_peer_openapi_sync_errors_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			counts[metric.GetLabel()[0].GetValue()] = int(metric.GetCounter().GetValue())
		}
	}
	return counts
}

// misleads is what the transport says of an answer of another server.
func misleads(*http.Request) (*http.Response, error) {
	return nil, &transport.ConnectError{Reason: transport.ReasonAnotherServer, Err: errors.New("c answers in the place of b")}
}

func TestFailedFetchesAreCounted(t *testing.T) {
	metrics.Register()
	for name, test := range map[string]struct {
		trouble func(*http.Request) (*http.Response, error)
		ask     func(c *cluster)
		want    map[string]int
	}{
		"nothing fails": {
			trouble: nil,
			ask:     func(c *cluster) { c.get(t, prefixV3+"apis/apps/v1"); c.get(t, pathV2) },
			want:    map[string]int{},
		},
		"the index": {
			trouble: refuses,
			ask:     func(c *cluster) { c.get(t, pathV3); c.get(t, pathV3) },
			want:    map[string]int{"fetch_index": 1},
		},
		"a document of v3": {
			trouble: forDocuments(refuses),
			ask:     func(c *cluster) { c.get(t, prefixV3+"apis/apps/v1") },
			want:    map[string]int{"fetch_v3": 1},
		},
		"that of v2": {
			trouble: forDocuments(answers(200, "text/html", "")),
			ask:     func(c *cluster) { c.get(t, pathV2) },
			want:    map[string]int{"fetch_v2": 1},
		},
		"another server has the index": {
			trouble: misleads,
			ask:     func(c *cluster) { c.get(t, pathV3) },
			want:    map[string]int{"another_server": 1},
		},
		"another server has the documents": {
			trouble: forDocuments(misleads),
			ask:     func(c *cluster) { c.get(t, prefixV3+"apis/apps/v1") },
			want:    map[string]int{"another_server": 1},
		},
		"the server stops": {
			trouble: forDocuments(hangs),
			ask:     func(c *cluster) { c.get(t, prefixV3+"apis/apps/v1"); c.stop(); c.ended.Wait() },
			want:    map[string]int{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := twoServers(t)
				c.servers[1].fail(test.trouble)
				before := counted(t)
				test.ask(c)
				got := counted(t)
				maps.DeleteFunc(got, func(kind string, n int) bool { return n == before[kind] })
				for kind := range got {
					got[kind] -= before[kind]
				}
				if fmt.Sprint(got) != fmt.Sprint(test.want) {
					t.Errorf("counted %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestAMisconfigurationIsLoggedOnceAMinute(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	log := logger.GetSink().(ktesting.Underlier).GetBuffer()
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	p := &peers{clock: clock.RealClock{}}
	peer := &snapshot.Peer{ServerID: "b"}
	_, misled := misleads(nil)
	for range 3 {
		p.noteError(ctx, peer, "fetch_index", errRefused)
		p.noteError(ctx, peer, "fetch_index", fmt.Errorf("/openapi/v3: %w", misled))
	}
	stop()
	p.noteError(ctx, &snapshot.Peer{ServerID: "c"}, "fetch_index", misled)
	got := log.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, transport.ReasonAnotherServer.Remedy()) || !strings.Contains(got, `peer="b" reason="another_server"`) {
		t.Errorf("logged: %s", got)
	}
}

// The transport takes no answer of another server than the request names.
func TestAPeerIsAskedByItsName(t *testing.T) {
	var asked []string
	note := roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, fmt.Sprintf("%q", r.Header[transport.ServerHeader]))
		return answers(200, "application/json", "{}")(r)
	})
	p := &peers{transport: note}
	for _, o := range []origin{p.at(&snapshot.Peer{ServerID: "b", Address: "192.0.2.1:6443"}), {host: "local", transport: note}} {
		if _, err := o.fetch(t.Context(), http.MethodGet, url.URL{Path: pathV3}, maxIndexBytes); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(asked, " "); got != `["b"] []` {
		t.Errorf("asked %s, want b by its name, and this server by none", got)
	}
}
