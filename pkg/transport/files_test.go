package transport_test

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
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
	secondTorn := peertest.WriteFile(t, "torn", slices.Concat(pki.FrontProxy.PEM, pki.Cluster.PEM[:len(pki.Cluster.PEM)/2]))
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
		{"second CA half written", func(c *transport.Config) { c.CAFile = secondTorn }, transport.FileCA, nil},
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

func TestWhatABundleMayHoldBesidesCAs(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	with := map[string][]byte{
		"comments":     slices.Concat([]byte("# The CA\n"), pki.Cluster.PEM, []byte("\n# -----BEGIN no block\n")),
		"another CA":   slices.Concat(pki.Cluster.PEM, pki.FrontProxy.PEM),
		"a key":        slices.Concat(pki.ProxyClient(t).Key, pki.Cluster.PEM),
		"line endings": bytes.ReplaceAll(pki.Cluster.PEM, []byte("\n"), []byte("\r\n")),
	}
	for what, content := range with {
		config.CAFile = peertest.WriteFile(t, "ca.crt", content)
		if errs := config.Check(); len(errs) != 0 {
			t.Errorf("with %s: %v", what, errs)
		}
	}
}

func TestCheckTellsOfEachFile(t *testing.T) {
	config := configFor(t, peertest.NewPKI(t))
	config.CAFile = config.KeyFile
	config.CertFile = config.KeyFile
	errs := config.Check()
	if len(errs) != 2 || errs[0].File != transport.FileCA || errs[1].File != transport.FileCert {
		t.Errorf("got %v, want trouble with the CA bundle and the certificate", errs)
	}
}
