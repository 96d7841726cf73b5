package cluster

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// argsOf are the flags of a server, by name.
func argsOf(t *testing.T, c *Cluster, config ServerConfig) map[string]string {
	t.Helper()
	config.Binary = "kube-apiserver"
	args := newServer(t, c, config).args()
	if !slices.IsSorted(args) {
		t.Errorf("flags in no order: %q", args)
	}
	flags := map[string]string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		flags[name] = value
	}
	return flags
}

func TestFlagsOfPeers(t *testing.T) {
	c := newCluster(t)
	flags := argsOf(t, c, ServerConfig{Name: "on", IP: "::1"})
	for name, want := range map[string]string{
		"peer-ca-file":                   c.CA.File(),
		"feature-gates":                  "UnknownVersionInteroperabilityProxy=true",
		"peer-advertise-ip":              "::1",
		"peer-advertise-port":            flags["secure-port"],
		"bind-address":                   "::1",
		"advertise-address":              "::1",
		"requestheader-client-ca-file":   c.FrontProxyCA.File(),
		"requestheader-uid-headers":      "X-Remote-Uid",
		"requestheader-username-headers": "X-Remote-User",
		"proxy-client-cert-file":         c.frontProxy.CertFile,
		"etcd-servers":                   c.EtcdURL(),
	} {
		if flags[name] != want {
			t.Errorf("--%s=%s, want %s", name, flags[name], want)
		}
	}
	if port, err := strconv.Atoi(flags["secure-port"]); err != nil || port < firstPort {
		t.Errorf("--secure-port=%s", flags["secure-port"])
	}
}

func TestFlagsWithoutPeers(t *testing.T) {
	flags := argsOf(t, newCluster(t), ServerConfig{Name: "off", PeersOff: true})
	for _, name := range []string{"peer-ca-file", "peer-advertise-ip", "peer-advertise-port", "feature-gates", "emulated-version", "audit-log-path"} {
		if value, found := flags[name]; found {
			t.Errorf("--%s=%s without peers", name, value)
		}
	}
	if flags["requestheader-client-ca-file"] == "" {
		t.Error("peers can't reach it: no --requestheader-client-ca-file")
	}
}

func TestFlagsAreReplacedAndLeftOut(t *testing.T) {
	flags := argsOf(t, newCluster(t), ServerConfig{
		Name: "a", Audit: true, EmulatedVersion: "1.36", RuntimeConfig: "api/all=true", Verbosity: 4,
		Flags:   map[string]string{"peer-ca-file": "other.crt", "new-flag": "x"},
		Without: []string{"proxy-client-cert-file", "never-there"},
	})
	for name, want := range map[string]string{
		"peer-ca-file": "other.crt", "new-flag": "x", "emulated-version": "1.36", "runtime-config": "api/all=true", "v": "4",
	} {
		if flags[name] != want {
			t.Errorf("--%s=%s, want %s", name, flags[name], want)
		}
	}
	if _, found := flags["proxy-client-cert-file"]; found {
		t.Error("--proxy-client-cert-file was not left out")
	}
	if !strings.HasSuffix(flags["audit-log-path"], "a.audit.log") {
		t.Errorf("--audit-log-path=%s", flags["audit-log-path"])
	}
}
