package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"peerproxy.internal/test/cluster"
)

// perGroup is how many custom resources there are in a group.
const perGroup = 10

// writers is how many definitions are created at once.
const writers = 8

// fill creates custom resource definitions and waits until every server has
// them in its merged document.
func fill(ctx context.Context, started []*cluster.Server, n int) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	client, err := newClient(started[0], protocols[1])
	if err != nil {
		return err
	}
	numbers := make(chan int)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for i := range numbers {
				if err := create(ctx, client, started[0], i); err != nil {
					fail(err)
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, server := range started {
		if err := waitForAll(ctx, server, n); err != nil {
			return err
		}
	}
	return nil
}

func waitForAll(ctx context.Context, server *cluster.Server, n int) error {
	client, err := newClient(server, protocols[0])
	if err != nil {
		return err
	}
	return poll(ctx, 4*time.Minute, 200*time.Millisecond, func() error {
		a, err := ask(ctx, client, server, merged)
		if err != nil {
			return err
		}
		text, err := plain(a)
		if err != nil {
			return err
		}
		if found := strings.Count(text, `"resource":"`+plural); found < n {
			return fmt.Errorf("the document of %s has %d of %d custom resources", server.Name(), found, n)
		}
		return nil
	})
}

// poll asks until there is no complaint, and returns the last one after the
// limit.
func poll(ctx context.Context, limit, interval time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// plain is the answer's body, decompressed.
func plain(a answer) (string, error) {
	if a.header.Get("Content-Encoding") != "gzip" {
		return string(a.body), nil
	}
	r, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

// plural begins the name of every custom resource here.
const plural = "things"

// resource is the name of the custom resource with the number.
func resource(i int) string { return fmt.Sprintf("%s%d", plural, i) }

// create creates the definition with the number: of a resource with a status, a
// scale and some fields.
func create(ctx context.Context, client *http.Client, server *cluster.Server, i int) error {
	group := fmt.Sprintf("group%d.example.com", i/perGroup)
	object := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	definition := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": resource(i) + "." + group},
		"spec": map[string]any{
			"group": group,
			"scope": "Namespaced",
			"names": map[string]any{
				"plural": resource(i), "singular": fmt.Sprintf("thing%d", i), "kind": fmt.Sprintf("Thing%d", i),
				"shortNames": []string{fmt.Sprintf("t%d", i)}, "categories": []string{"all"},
			},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": object, "status": object}}},
			}},
		},
	}
	body, err := json.Marshal(definition)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL()+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		said, _ := io.ReadAll(response.Body)
		return fmt.Errorf("creating %s: %s %s", resource(i), response.Status, said)
	}
	return nil
}

// settle waits until the servers have taken everything in: until together they
// use less than a fifth of a CPU, or for that many seconds. It returns what they
// used last.
func settle(ctx context.Context, started []*cluster.Server, limit int) (share float64, err error) {
	const interval, enough = time.Second, 0.2
	last, err := used(started...)
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for range limit {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-tick.C:
		}
		now, err := used(started...)
		if err != nil {
			return 0, err
		}
		share = (now - last).Seconds() / interval.Seconds()
		last = now
		if share < enough {
			break
		}
	}
	return share, nil
}

// used is the CPU time that the servers' processes have used (fields 14 and 15
// of proc(5)'s stat, in hundredths of a second).
func used(started ...*cluster.Server) (time.Duration, error) {
	var total time.Duration
	for _, server := range started {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server.Pid()))
		if err != nil {
			return 0, err
		}
		_, fields, _ := strings.Cut(string(stat), ") ")
		var user, system int64
		if _, err := fmt.Sscan(strings.Join(strings.Fields(fields)[11:13], " "), &user, &system); err != nil {
			return 0, err
		}
		total += time.Duration(user+system) * 10 * time.Millisecond
	}
	return total, nil
}
