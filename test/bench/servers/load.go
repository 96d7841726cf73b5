package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"peerproxy.internal/test/cluster"
)

// protocol is a version of HTTP.
type protocol struct {
	name string
	h2   bool
}

var protocols = []protocol{{"HTTP/1.1", false}, {"HTTP/2", true}}

// newClient returns a client that keeps one connection.
func newClient(server *cluster.Server, p protocol) (*http.Client, error) {
	config, err := rest.TLSConfigFor(server.AdminConfig())
	if err != nil {
		return nil, err
	}
	var speaks http.Protocols
	speaks.SetHTTP1(!p.h2)
	speaks.SetHTTP2(p.h2)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: config,
		Protocols:       &speaks,
		MaxConnsPerHost: 1,
		// What comes compressed is not to be decompressed here, at the servers' cost.
		DisableCompression: true,
	}}, nil
}

// question is a request that is asked again and again, and the answer's code.
type question struct {
	path   string
	header http.Header
	code   int
}

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var (
	healthz = question{path: "/healthz", code: http.StatusOK}
	merged  = question{path: "/apis", code: http.StatusOK, header: http.Header{"Accept": {aggregated}, "Accept-Encoding": {"gzip"}}}
)

// known is the merged document for a client that has the one with the tag.
func known(tag string) question {
	header := merged.header.Clone()
	header.Set("If-None-Match", tag)
	return question{path: merged.path, header: header, code: http.StatusNotModified}
}

// answer is what a server said.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// ask asks once and keeps the answer.
func ask(ctx context.Context, client *http.Client, server *cluster.Server, q question) (answer, error) {
	response, err := do(ctx, client, server, q)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, body}, err
}

func do(ctx context.Context, client *http.Client, server *cluster.Server, q question) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL()+q.path, nil)
	if err != nil {
		return nil, err
	}
	request.Header = q.header
	return client.Do(request)
}

// load asks a server with all clients at once for a time and returns how many
// answers there were.
func load(ctx context.Context, all []*http.Client, server *cluster.Server, q question, d time.Duration) (int64, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var answers atomic.Int64
	var running sync.WaitGroup
	began := time.Now()
	for _, client := range all {
		running.Go(func() {
			for time.Since(began) < d {
				if err := askOnly(ctx, client, server, q); err != nil {
					fail(err)
					return
				}
				answers.Add(1)
			}
		})
	}
	running.Wait()
	return answers.Load(), context.Cause(ctx)
}

// askOnly asks once and throws the answer away.
func askOnly(ctx context.Context, client *http.Client, server *cluster.Server, q question) error {
	response, err := do(ctx, client, server, q)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != q.code {
		return fmt.Errorf("%s at %s: got %d, want %d", q.path, server.Name(), response.StatusCode, q.code)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// profiled is how long a profile is taken.
const profiled = 10 * time.Second

// profile takes a CPU profile of a server that serves the merged document.
func profile(ctx context.Context, server *cluster.Server, file string) error {
	all, err := newClients(server, protocols[0])
	if err != nil {
		return err
	}
	profiler, err := newClient(server, protocols[0])
	if err != nil {
		return err
	}
	var loaded sync.WaitGroup
	var loadErr error
	loaded.Go(func() { _, loadErr = load(ctx, all, server, merged, profiled) })
	taken, err := ask(ctx, profiler, server, question{path: "/debug/pprof/profile?seconds=8"})
	loaded.Wait()
	switch {
	case err != nil:
		return err
	case loadErr != nil:
		return loadErr
	case taken.code != http.StatusOK:
		return fmt.Errorf("a profile of %s: %d %s", server.Name(), taken.code, taken.body)
	}
	return os.WriteFile(file, taken.body, 0o644)
}
