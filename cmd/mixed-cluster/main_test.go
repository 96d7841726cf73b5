package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeServer is a program that has a kube-apiserver's help and does nothing else.
func fakeServer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kube-apiserver")
	script := "#!/bin/sh\necho '--etcd-servers kube=1.34..1.37(default:1.37)'\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMistakesAreFoundBeforeAnythingStarts(t *testing.T) {
	binary := fakeServer(t)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"a name twice", []string{"--server=a=" + binary, "--server=a=" + binary}, `two servers are named "a"`},
		{"a release", []string{"--server=a=" + binary + ",emulated=1.20"}, "can emulate 1.34 to 1.37"},
		{"an argument", []string{"a=" + binary}, "unexpected argument"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			var out bytes.Buffer
			err := run(t.Context(), append(tc.args, "--dir="+dir), &out)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "--dir DIR") {
				t.Errorf("got %v, want %q alone", err, tc.want)
			}
			if out.Len() > 0 {
				t.Errorf("something was done: %s", &out)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s: %v", dir, err)
			}
		})
	}
}
