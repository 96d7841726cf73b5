package transport_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// configFor names files with the cluster's certificates.
func configFor(t testing.TB, pki *peertest.PKI) transport.Config {
	t.Helper()
	own := pki.ProxyClient(t)
	return transport.Config{
		CAFile:   peertest.WriteFile(t, "ca.crt", pki.Cluster.PEM),
		CertFile: peertest.WriteFile(t, "proxy.crt", own.Cert),
		KeyFile:  peertest.WriteFile(t, "proxy.key", own.Key),
	}
}

// running returns a transport that runs until the test ends.
func running(t testing.TB, config transport.Config) *transport.Transport {
	t.Helper()
	tr, err := transport.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := tr.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return tr
}

func newRequest(t testing.TB, method, address, body string) *http.Request {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+"/apis/g/v1/things", reader)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// get returns the body of an answer that has to be 200.
func get(t testing.TB, rt http.RoundTripper, address string) string {
	t.Helper()
	res, err := rt.RoundTrip(newRequest(t, "GET", address, ""))
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, res)
}

func readAll(t testing.TB, res *http.Response) string {
	t.Helper()
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, body)
	}
	return string(body)
}
