package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// pollInterval is how often a starting server is asked whether it is ready,
// pollTimeout how long one answer may take.
const pollInterval, pollTimeout = 50 * time.Millisecond, 2 * time.Second

// WaitReady waits until the server answers /readyz with 200, at most 2
// minutes. It fails at once when the process ends.
func (s *Server) WaitReady(ctx context.Context) error {
	p := s.current()
	if p == nil {
		return s.errorf("%w", errNotRunning)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := s.httpClient()
	if err != nil {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	last := "it has not answered yet"
	for {
		select {
		case <-p.done:
			return s.Err()
		case <-ctx.Done():
			return s.errorf("waiting for it to be ready: %w; last answer: %s", context.Cause(ctx), last)
		case <-tick.C:
			err := ask(ctx, client, s.URL()+"/readyz", nil)
			if err == nil {
				return nil
			}
			if ctx.Err() == nil {
				last = err.Error()
			}
		}
	}
}

// Ready asks the server once whether it is ready, as a load balancer does, and
// returns why not.
func (s *Server) Ready(ctx context.Context) error {
	client, err := s.httpClient()
	if err != nil {
		return err
	}
	return ask(ctx, client, s.URL()+"/readyz", nil)
}

// Version asks the server what it is: its release and, where it emulates
// another, that.
func (s *Server) Version(ctx context.Context) (version.Info, error) {
	var info version.Info
	client, err := s.httpClient()
	if err != nil {
		return info, err
	}
	err = ask(ctx, client, s.URL()+"/version", &info)
	return info, err
}

// httpClient has the admin's rights and keeps no connection.
func (s *Server) httpClient() (*http.Client, error) {
	tlsConfig, err := rest.TLSConfigFor(s.admin)
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	return &http.Client{Transport: transport, Timeout: pollTimeout}, nil
}

// ask sends a GET and decodes the JSON of a 200 into answer, if that is given.
// Anything else is an error.
func ask(ctx context.Context, client *http.Client, url string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, failures(string(body)))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(body, answer)
}

// failures are the lines of a /readyz answer that name what is not ready, or
// the whole of another answer.
func failures(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	if len(failed) > 0 {
		return strings.Join(failed, "; ")
	}
	return strings.TrimSpace(body)
}
