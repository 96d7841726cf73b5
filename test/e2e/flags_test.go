package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"peerproxy.internal/test/cluster"
)

// wantError runs one of our servers with flags that it must refuse at once.
func wantError(t *testing.T, binary string, flags []string, says ...string) {
	t.Helper()
	always := []string{"--etcd-servers=http://127.0.0.1:1", "--service-account-issuer=https://kubernetes.default.svc", "--cert-dir", t.TempDir()}
	out, err := exec.CommandContext(t.Context(), bin(t, binary), append(always, flags...)...).CombinedOutput()
	if err == nil {
		t.Fatalf("%v: no error", flags)
	}
	for _, part := range says {
		if !strings.Contains(string(out), part) {
			t.Errorf("%v: the error does not mention %s:\n%s", flags, part, out)
		}
	}
}

func TestMissingOrBadFlagsAreNamedAtStart(t *testing.T) {
	dir := t.TempDir()
	ca, err := cluster.NewCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue("client", cluster.ClientLeaf("front-proxy-client"))
	if err != nil {
		t.Fatal(err)
	}
	var (
		gate    = "--feature-gates=UnknownVersionInteroperabilityProxy=true"
		noGate  = "--feature-gates=UnknownVersionInteroperabilityProxy=false"
		caFile  = "--peer-ca-file=" + ca.File()
		cert    = "--proxy-client-cert-file=" + pair.CertFile
		key     = "--proxy-client-key-file=" + pair.KeyFile
		headers = "--requestheader-client-ca-file=" + ca.File()
	)
	for _, binary := range []string{ours137, ours136} {
		t.Run(binary, func(t *testing.T) {
			wantError(t, binary, []string{noGate, caFile, "--peer-advertise-ip=192.0.2.1", "--peer-advertise-port=443"}, "--peer-ca-file", "--peer-advertise-ip", "--peer-advertise-port")
			wantError(t, binary, []string{gate, caFile, key, headers}, "--proxy-client-cert-file")
			wantError(t, binary, []string{gate, caFile, cert, headers}, "--proxy-client-key-file")
			wantError(t, binary, []string{gate, caFile, cert, key}, "--requestheader-client-ca-file")
			wantError(t, binary, []string{gate, "--peer-ca-file=" + filepath.Join(dir, "none"), cert, key, headers}, "--peer-ca-file", "no such file")
			wantError(t, binary, []string{gate, "--peer-ca-file=" + pair.KeyFile, cert, key, headers}, "--peer-ca-file", "no certificate")
			wantError(t, binary, []string{gate, caFile, cert, key, headers, "--peer-advertise-ip=0.0.0.0"}, "--peer-advertise-ip")
			wantError(t, binary, []string{gate, caFile, cert, key, headers, "--peer-server-id=Not_An_ID"}, "--peer-server-id")
		})
	}
}

func TestTheVersionIsThatOfKubernetes(t *testing.T) {
	for binary, stock := range map[string]string{ours137: stock137, ours136: stock136} {
		ours, err := exec.CommandContext(t.Context(), bin(t, binary), "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		want, err := exec.CommandContext(t.Context(), bin(t, stock), "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		if string(ours) != string(want) || strings.Contains(string(ours), "v0.0.0") {
			t.Errorf("%s says %q, stock %q", binary, ours, want)
		}
	}
}

// Every flag of the stock server is there, and means the same by default.
func TestEveryStockFlagIsThere(t *testing.T) {
	for binary, stock := range map[string]string{ours137: stock137, ours136: stock136} {
		ours, theirs := flagsOf(t, binary), flagsOf(t, stock)
		for flag := range theirs {
			if !ours[flag] {
				t.Errorf("%s lacks %s", binary, flag)
			}
		}
		for flag := range ours {
			if !theirs[flag] && !strings.HasPrefix(flag, "--peer-") {
				t.Errorf("%s has %s, which stock does not", binary, flag)
			}
		}
	}
}

// flagsOf returns the flags that a server's help names.
func flagsOf(t *testing.T, binary string) map[string]bool {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), bin(t, binary), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	for line := range strings.Lines(string(help)) {
		for _, word := range strings.Fields(line)[:min(2, len(strings.Fields(line)))] {
			if strings.HasPrefix(word, "--") {
				flags[word] = true
			}
		}
	}
	return flags
}
