package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestClusterCleansUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		dir  string
		kept bool
	}{
		{"temporary", "", false},
		{"given", filepath.Join(t.TempDir(), "new"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Start(t.Context(), Config{Dir: tc.dir, Progress: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			useEtcd(t, c.EtcdURL())
			for range 2 {
				if err := c.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(c.Dir); errors.Is(err, fs.ErrNotExist) == tc.kept {
				t.Errorf("%s: %v, want kept: %v", c.Dir, err, tc.kept)
			}
		})
	}
}

func useEtcd(t *testing.T, url string) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
}

func TestClusterRefusesADirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Dir: dir})
	wantError(t, err, dir, "not empty")
}

func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port, err := freePort(loopback)
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < firstPort || port >= lastPort {
			t.Fatalf("port %d again or out of range", port)
		}
		seen[port] = true
	}
}

func TestLastLines(t *testing.T) {
	many := strings.Repeat("line\n", 50)
	for _, tc := range []struct{ name, output, want string }{
		{"short", "a\nb\n", "a\nb"},
		{"nothing", "", ""},
		{"long", many, strings.TrimSpace(strings.Repeat("line\n", tailLines))},
		{"klog error", "I0101 fine\nE0101 broken\nI0101 fine\n", "E0101 broken"},
		{"usage after the error", "Error: bad flag\nUsage:\n" + many, "Error: bad flag"},
		{"panic", "panic: oh\n\ngoroutine 1 [running]:\n" + many, "panic: oh"},
	} {
		if got := lastLines(tc.output); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
