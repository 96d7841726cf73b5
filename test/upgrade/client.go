package upgrade

import (
	"context"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// requestTimeout bounds a request of a client, its retries included.
const requestTimeout = 30 * time.Second

// client is a client with connections of its own.
type client struct {
	dynamic dynamic.Interface
	rest    rest.Interface
}

// newClient returns a client with HTTP/2 and connections that stay, as client-go
// has by default. Each one gets a connection to whichever server's turn it is.
func (l *Load) newClient(changes ...func(*rest.Config)) (*client, error) {
	config := rest.CopyConfig(l.config)
	for _, change := range changes {
		change(config)
	}
	// client-go shares the connections of clients with equal settings.
	config.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return l.clientFor(config)
}

// newRestlessClient returns a client that asks each time over a connection of
// its own, so that the servers answer in turn.
func (l *Load) newRestlessClient() (*client, error) {
	tlsConfig, err := rest.TLSConfigFor(l.config)
	if err != nil {
		return nil, err
	}
	return l.clientFor(&rest.Config{
		Host:      l.config.Host,
		QPS:       -1,
		Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true},
	})
}

func (l *Load) clientFor(config *rest.Config) (*client, error) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &retryCounter{next: next, counts: l.counts} })
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients = append(l.clients, httpClient)
	return &client{dynamic: dynamicClient, rest: discoveryClient.RESTClient()}, nil
}

// get returns the body of what is at path, after client-go's retries.
func (c *client) get(ctx context.Context, path string, accept string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.rest.Get().AbsPath(path).SetHeader("Accept", accept).Do(ctx).Raw()
}

// retryCounter counts the answers with Retry-After: client-go sends such a request
// again, whatever its method.
type retryCounter struct {
	next   http.RoundTripper
	counts *Counts
}

// RoundTrip implements http.RoundTripper.
func (r *retryCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil && response.Header.Get("Retry-After") != "" {
		kind := RetriedUnsafe
		if request.Method == http.MethodGet {
			kind = RetriedSafe
		}
		r.counts.Note(kind, "%s %s: %d", request.Method, request.URL.Path, response.StatusCode)
	}
	return response, err
}

// WrappedRoundTripper lets client-go close the idle connections behind it.
func (r *retryCounter) WrappedRoundTripper() http.RoundTripper { return r.next }
