package transport_test

import (
	"errors"
	"io/fs"
	"testing"

	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

func TestNewNamesTheFileThatIsWrong(t *testing.T) {
	pki := peertest.NewPKI(t)
	good := configFor(t, pki)
	other := pki.ProxyClient(t)
	empty := peertest.WriteFile(t, "empty", nil)
	torn := peertest.WriteFile(t, "torn", pki.Cluster.PEM[:len(pki.Cluster.PEM)/2])
	tests := []struct {
		name   string
		change func(*transport.Config)
		file   transport.File
		is     error
	}{
		{"CA bundle not named", func(c *transport.Config) { c.CAFile = "" }, transport.FileCA, nil},
		{"CA bundle missing", func(c *transport.Config) { c.CAFile += ".not" }, transport.FileCA, fs.ErrNotExist},
		{"CA bundle empty", func(c *transport.Config) { c.CAFile = empty }, transport.FileCA, nil},
		{"CA bundle half written", func(c *transport.Config) { c.CAFile = torn }, transport.FileCA, nil},
		{"certificate missing", func(c *transport.Config) { c.CertFile += ".not" }, transport.FileCert, fs.ErrNotExist},
		{"certificate empty", func(c *transport.Config) { c.CertFile = empty }, transport.FileCert, nil},
		{"certificate is a key", func(c *transport.Config) { c.CertFile = c.KeyFile }, transport.FileCert, nil},
		{"key missing", func(c *transport.Config) { c.KeyFile += ".not" }, transport.FileKey, fs.ErrNotExist},
		{"key empty", func(c *transport.Config) { c.KeyFile = empty }, transport.FileKey, nil},
		{"key is another's", func(c *transport.Config) { c.KeyFile = peertest.WriteFile(t, "key", other.Key) }, transport.FileKey, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := good
			test.change(&config)
			_, err := transport.New(config)
			var trouble *transport.FileError
			if !errors.As(err, &trouble) {
				t.Fatalf("got %v, want a FileError", err)
			}
			if trouble.File != test.file {
				t.Errorf("blames the %s: %v", trouble.File, err)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %v", err, test.is)
			}
		})
	}
	if _, err := transport.New(good); err != nil {
		t.Errorf("good files: %v", err)
	}
}
