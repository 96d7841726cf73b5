package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseServer(t *testing.T) {
	for _, tc := range []struct {
		spec string
		want ServerConfig
	}{
		{"new=v1.37", ServerConfig{Name: "new", Binary: "v1.37"}},
		{"old-2=/a/b=c", ServerConfig{Name: "old-2", Binary: "/a/b=c"}},
		{"old=v1.37,emulated=1.36", ServerConfig{Name: "old", Binary: "v1.37", EmulatedVersion: "1.36"}},
		{"a=v1.37,peers=off,audit=on,v=4", ServerConfig{Name: "a", Binary: "v1.37", PeersOff: true, Audit: true, Verbosity: 4}},
		{"a=v1.37,peers=on,id=apiserver-x", ServerConfig{Name: "a", Binary: "v1.37", ID: "apiserver-x"}},
		{"a=v1.37,runtime-config=api/all=true,runtime-config=batch/v1=false", ServerConfig{Name: "a", Binary: "v1.37", RuntimeConfig: "api/all=true,batch/v1=false"}},
		{"a=v1.37,flag.feature-gates=A=true,flag.feature-gates=B=false,flag.--x=", ServerConfig{
			Name: "a", Binary: "v1.37", Flags: map[string]string{"feature-gates": "A=true,B=false", "x": ""},
		}},
	} {
		got, err := ParseServer(tc.spec)
		if err != nil {
			t.Errorf("%s: %v", tc.spec, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.spec, diff)
		}
	}
}

func TestParseServerSaysWhatIsWrong(t *testing.T) {
	for spec, want := range map[string]string{
		"":                          "write name=binary",
		"new":                       "write name=binary",
		"new=":                      "write name=binary",
		"=v1.37":                    "write name=binary",
		"New=v1.37":                 "lower-case letters",
		"a/b=v1.37":                 "lower-case letters",
		"-a=v1.37":                  "lower-case letters",
		"a=v1.37,":                  `"" is no key=value`,
		"a=v1.37,,v=1":              `"" is no key=value`,
		"a=v1.37,peers":             `"peers" is no key=value`,
		"a=v1.37,emulate=1.36":      `unknown key "emulate": use emulated`,
		"a=v1.37,emulated=v1.36":    "write a release as emulated=1.36",
		"a=v1.37,emulated=":         "write a release as emulated=1.36",
		"a=v1.37,peers=false":       "write peers=on or peers=off",
		"a=v1.37,audit=yes":         "write audit=on or audit=off",
		"a=v1.37,v=loud":            "write a log level",
		"a=v1.37,v=-1":              "write a log level",
		"a=v1.37,flag.=x":           "write flag.<name>=<value>",
		"a=v1.37,flag.tls-cert=a,b": `"b" is no key=value`,
	} {
		_, err := ParseServer(spec)
		wantError(t, err, want)
	}
}

func TestFindBinary(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	released := filepath.Join(second, "kube-apiserver-v1.37")
	for path, mode := range map[string]os.FileMode{released: 0o755, filepath.Join(first, "text"): 0o644} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, binary := range []string{"v1.37", released} {
		if got, err := FindBinary(binary, first, second); err != nil || got != released {
			t.Errorf("%s: %q, %v", binary, got, err)
		}
	}
	for binary, want := range map[string]string{
		"v1.36":                       "run `make build` first",
		"1.37":                        "write v1.37",
		"v1.37.2":                     "write v1.37",
		"kube":                        "neither a release",
		first:                         "no file that can be run",
		filepath.Join(first, "text"):  "no file that can be run",
		filepath.Join(first, "other"): "no such file",
	} {
		_, err := FindBinary(binary, first, second)
		wantError(t, err, want)
	}
}

func TestNewServerRefusesABadConfig(t *testing.T) {
	c := newCluster(t)
	for _, tc := range []struct {
		config ServerConfig
		want   string
	}{
		{ServerConfig{Binary: "b"}, "server name"},
		{ServerConfig{Name: "a"}, "no binary"},
		{ServerConfig{Name: "a", Binary: "b", IP: "localhost"}, "no IP address"},
	} {
		_, err := c.NewServer(tc.config)
		wantError(t, err, tc.want)
	}
}
