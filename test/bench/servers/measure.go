package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"peerproxy.internal/test/cluster"
)

// subject is a server under measurement.
type subject struct {
	server *cluster.Server
	all    []*http.Client
	// asks are what it is asked. By it and by round, rates are the answers a
	// second, costs the microseconds of CPU time that each took the server.
	asks         []question
	rates, costs [][]float64
}

// The places of what is asked.
const (
	ofHealthz = iota
	ofMerged
	ofKnown
)

// measure lets the servers take turns, so that what else the machine does falls
// on all of them, and prints a table.
func measure(ctx context.Context, out io.Writer, o options, started []*cluster.Server, p protocol) error {
	var subjects []*subject
	for _, server := range started {
		s, err := newSubject(ctx, server, p)
		if err != nil {
			return err
		}
		subjects = append(subjects, s)
	}
	// The first round warms up.
	for round := range o.rounds + 1 {
		for _, s := range subjects {
			for i, q := range s.asks {
				rate, cost, err := s.load(ctx, q, o.round)
				if err != nil {
					return err
				}
				if round > 0 {
					s.rates[i], s.costs[i] = append(s.rates[i], rate), append(s.costs[i], cost)
				}
			}
		}
	}
	return printRates(out, p, subjects)
}

func (s *subject) load(ctx context.Context, q question, d time.Duration) (rate, cost float64, err error) {
	began := time.Now()
	before, err := used(s.server)
	if err != nil {
		return 0, 0, err
	}
	answers, err := load(ctx, s.all, s.server, q, d)
	if err != nil {
		return 0, 0, err
	}
	after, err := used(s.server)
	return float64(answers) / time.Since(began).Seconds(), float64((after - before).Microseconds()) / float64(answers), err
}

func newSubject(ctx context.Context, server *cluster.Server, p protocol) (*subject, error) {
	all, err := newClients(server, p)
	if err != nil {
		return nil, err
	}
	document, err := ask(ctx, all[0], server, merged)
	if err != nil {
		return nil, err
	}
	if document.code != merged.code {
		return nil, fmt.Errorf("the document of %s: %d %s", server.Name(), document.code, document.body)
	}
	asks := []question{ofHealthz: healthz, ofMerged: merged, ofKnown: known(document.header.Get("ETag"))}
	return &subject{server: server, all: all, asks: asks, rates: make([][]float64, len(asks)), costs: make([][]float64, len(asks))}, nil
}

func newClients(server *cluster.Server, p protocol) ([]*http.Client, error) {
	all := make([]*http.Client, clients)
	for i := range all {
		var err error
		if all[i], err = newClient(server, p); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func printRates(out io.Writer, p protocol, subjects []*subject) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\n%s\t/healthz\tCPU\tmerged /apis\tCPU\tof /healthz\tof stock's\t304\tCPU\tof stock's\t\n", p.name)
	for i, s := range subjects {
		stock := subjects[ours+i%ours]
		fmt.Fprintf(table, "%s\t%s\t%s\t%.2f\t%.1f\t%s\t%.1f\t\n", s.server.Name(),
			s.text(ofHealthz), s.text(ofMerged),
			ratio(s.rates[ofMerged], s.rates[ofHealthz]), ratio(s.rates[ofMerged], stock.rates[ofMerged]),
			s.text(ofKnown), ratio(s.rates[ofKnown], stock.rates[ofKnown]))
	}
	return table.Flush()
}

// text is two cells of the table.
func (s *subject) text(i int) string {
	return fmt.Sprintf("%.0f/s\t%.0f µs", median(s.rates[i]), median(s.costs[i]))
}

// ratio is the median of the ratios of each round.
func ratio(of, to []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return median(ratios)
}

func median[T float64 | int64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
