// Package e2e tests real kube-apiservers of two Kubernetes versions over one
// etcd: this project's with each other, and with stock ones. It runs the
// binaries in bin; `make build` makes them. Stock servers take their ID from
// the host name, so the tests need Linux and root.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"peerproxy.internal/test/cluster"
)

// The binaries under test.
const (
	ours137  = "kube-apiserver-v1.37"
	ours136  = "kube-apiserver-v1.36"
	stock137 = "stock-kube-apiserver-v1.37"
	stock136 = "stock-kube-apiserver-v1.36"
)

func bin(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	return path
}

// start starts a cluster of the servers given as name=binary[,key=value]...,
// the binary by its name in bin.
func start(t *testing.T, specs ...string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: artifacts(t), Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	add(t, c, specs...)
	return c
}

// add starts more servers in a cluster.
func add(t *testing.T, c *cluster.Cluster, specs ...string) {
	t.Helper()
	var configs []cluster.ServerConfig
	for _, spec := range specs {
		config, err := cluster.ParseServer(spec)
		if err != nil {
			t.Fatal(err)
		}
		config.Binary = bin(t, config.Binary)
		configs = append(configs, config)
	}
	if _, err := c.StartServers(t.Context(), configs...); err != nil {
		t.Fatal(err)
	}
}

// artifacts is where a cluster's files go: to E2E_ARTIFACTS if that is set, so
// that logs outlive a failed run.
func artifacts(t *testing.T) string {
	root := os.Getenv("E2E_ARTIFACTS")
	if root == "" {
		return ""
	}
	return filepath.Join(root, strings.ReplaceAll(t.Name(), "/", "_"))
}

// client is access to one server.
type client struct {
	t       *testing.T
	server  *cluster.Server
	config  *rest.Config
	http    *http.Client
	dynamic dynamic.Interface
}

// as returns access to a server as a user; without one, as the admin.
func as(t *testing.T, s *cluster.Server, userAndGroups ...string) *client {
	t.Helper()
	config := s.AdminConfig()
	if len(userAndGroups) > 0 {
		var err error
		if config, err = s.ConfigFor(userAndGroups[0], userAndGroups[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t: t, server: s, config: config, http: httpClient, dynamic: dyn}
}

// answer is what a server said.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// do sends one request, without a retry.
func (c *client) do(method, path, body string, header ...string) answer {
	c.t.Helper()
	a, err := c.try(c.t.Context(), method, path, body, header...)
	if err != nil {
		c.t.Fatalf("%s %s at %s: %v", method, path, c.server.Name(), err)
	}
	return a
}

func (c *client) try(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server.URL()+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{code: response.StatusCode, header: response.Header, body: content}, err
}

// want fails the test unless the answer has the code.
func (c *client) want(code int, method, path, body string, header ...string) answer {
	c.t.Helper()
	a := c.do(method, path, body, header...)
	if a.code != code {
		c.t.Fatalf("%s %s at %s: got %d, want %d\n%s", method, path, c.server.Name(), a.code, code, a.body)
	}
	return a
}

// object is the answer's body.
func (a answer) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(a.body, &object.Object); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return object
}

// kubectl runs the real kubectl against a server and returns what it printed.
func kubectl(t *testing.T, s *cluster.Server, stdin string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), bin(t, "kubectl"), append([]string{"--kubeconfig", s.Kubeconfig(), "--cache-dir", t.TempDir()}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	return out.String(), err
}

func mustKubectl(t *testing.T, s *cluster.Server, stdin string, args ...string) string {
	t.Helper()
	out, err := kubectl(t, s, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s at %s: %v\n%s", strings.Join(args, " "), s.Name(), err, out)
	}
	return out
}

// within asks again and again until f has no complaint, and fails the test
// with the last one after the limit. It returns how long it took.
func within(t *testing.T, limit time.Duration, f func() error) time.Duration {
	t.Helper()
	began := time.Now()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := f()
		took := time.Since(began)
		if err == nil {
			return took
		}
		if took > limit {
			t.Fatalf("not within %v: %v", limit, err)
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// until is within for an answer's code.
func (c *client) until(limit time.Duration, code int, method, path, body string, header ...string) time.Duration {
	c.t.Helper()
	return within(c.t, limit, func() error {
		a, err := c.try(c.t.Context(), method, path, body, header...)
		if err != nil {
			return err
		}
		if a.code != code {
			return fmt.Errorf("%s %s at %s: got %d, want %d: %.300s", method, path, c.server.Name(), a.code, code, a.body)
		}
		return nil
	})
}

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var bundles = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "clustertrustbundles"}

// bundlesPath is served by 1.37 alone.
const bundlesPath = "/apis/certificates.k8s.io/v1/clustertrustbundles"
