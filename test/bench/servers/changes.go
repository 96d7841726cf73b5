package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"peerproxy.internal/test/cluster"
)

// firstChange is the number of the first definition created here; each has a
// group of its own.
const firstChange = 1_000_000

// patience is how long a document may lack a new resource. Stock servers now and
// then do not show one before something else changes; that counts as this long.
const patience = 5 * time.Second

// measureChanges creates custom resource definitions one by one and prints how
// long it takes, from the answer to the creation, until each server's merged
// document has the resource.
func measureChanges(ctx context.Context, out io.Writer, started []*cluster.Server, changes int) error {
	took := make([][]int64, len(started))
	for change := range changes {
		// Through each server once in a while.
		through := started[change%len(started)]
		client, err := newClient(through, protocols[0])
		if err != nil {
			return err
		}
		number := firstChange + change*perGroup
		all, err := waitForChange(ctx, started, number, func() error { return create(ctx, client, through, number) })
		if err != nil {
			return err
		}
		for i, t := range all {
			took[i] = append(took[i], t.Milliseconds())
		}
		if _, err := settle(ctx, started, 3); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\na new custom resource\tin merged /apis after (median)\teach\t\n")
	for i, server := range started {
		fmt.Fprintf(table, "%s\t%d ms\t%v\t\n", server.Name(), median(took[i]), took[i])
	}
	return table.Flush()
}

// waitForChange makes a change and returns how long after it each server has
// the resource with the number.
func waitForChange(ctx context.Context, started []*cluster.Server, number int, change func() error) ([]time.Duration, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	watchers := make([]*watcher, len(started))
	for i, server := range started {
		client, err := newClient(server, protocols[0])
		if err != nil {
			return nil, err
		}
		watchers[i] = &watcher{client: client, server: server, number: number}
		if _, err := watchers[i].look(ctx); err != nil {
			return nil, err
		}
	}
	if err := change(); err != nil {
		return nil, err
	}
	began := time.Now()
	took := make([]time.Duration, len(started))
	var running sync.WaitGroup
	for i, w := range watchers {
		running.Go(func() {
			if err := w.wait(ctx); err != nil {
				fail(err)
			}
			took[i] = min(time.Since(began), patience)
		})
	}
	running.Wait()
	return took, context.Cause(ctx)
}

// watcher looks for a resource in the document of one server. It asks as a
// client with a cache does, so that looking costs the server next to nothing.
type watcher struct {
	client *http.Client
	server *cluster.Server
	number int
	tag    string
}

// errMissing says that the document lacks the resource.
var errMissing = errors.New("the document lacks the new resource")

// wait returns once the document has the resource, or after patience.
func (w *watcher) wait(ctx context.Context) error {
	err := poll(ctx, patience, 2*time.Millisecond, func() error {
		found, err := w.look(ctx)
		if err == nil && !found {
			err = errMissing
		}
		return err
	})
	if errors.Is(err, errMissing) && ctx.Err() == nil {
		return nil
	}
	return err
}

func (w *watcher) look(ctx context.Context) (found bool, err error) {
	a, err := ask(ctx, w.client, w.server, known(w.tag))
	if err != nil || a.code == http.StatusNotModified {
		return false, err
	}
	w.tag = a.header.Get("ETag")
	text, err := plain(a)
	return strings.Contains(text, `"`+resource(w.number)+`"`), err
}
