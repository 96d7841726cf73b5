package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"peerproxy.internal/test/peertest"
)

// flagsTold waits until a fake controller manager has told its flags.
func flagsTold(t *testing.T, m *Controllers) []string {
	t.Helper()
	var lines []string
	peertest.Eventually(t, "its flags are in its log", func() bool {
		content, err := os.ReadFile(m.process.log)
		if err != nil {
			t.Fatal(err)
		}
		lines = strings.Split(strings.TrimSpace(string(content)), "\n")
		return lines[len(lines)-1] == "all told"
	})
	return lines
}

func TestControllersWorkWithTheServerNamed(t *testing.T) {
	c := newCluster(t)
	const url = "https://127.0.0.1:1"
	m, err := c.StartControllers(ControllersConfig{
		Name: "some", Binary: play(t, roleControllers), URL: url,
		Controllers: []string{"one", "two"}, Flags: map[string]string{"kube-api-qps": "7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	flags := flagsTold(t, m)
	kubeconfig := filepath.Join(c.Dir, "some.kubeconfig")
	for _, want := range []string{"--controllers=one,two", "--kube-api-qps=7", "--leader-elect=false", "--kubeconfig=" + kubeconfig} {
		if !slices.Contains(flags, want) {
			t.Errorf("no %s in %q", want, flags)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != url || len(config.CertData) == 0 || string(config.CAData) != string(c.CA.PEM()) {
		t.Errorf("the kubeconfig is for %s", config.Host)
	}
	if err := m.Err(); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	for range 2 {
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, m.Err(), "some", "it ended")
}

func TestControllersEndWithTheCluster(t *testing.T) {
	c := newCluster(t)
	m, err := c.StartControllers(ControllersConfig{Name: "some", Binary: play(t, roleControllers)})
	if err != nil {
		t.Fatal(err)
	}
	flagsTold(t, m)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if m.process.running() {
		t.Error("it still runs")
	}
}

func TestControllersThatEndAtStart(t *testing.T) {
	c := newCluster(t)
	m, err := c.StartControllers(ControllersConfig{
		Name: "some", Binary: play(t, roleControllers), Flags: map[string]string{"fake-fail": "no such controller"},
	})
	if err != nil {
		t.Fatal(err)
	}
	<-m.process.done
	wantError(t, m.Err(), "some", "exit status 1", "Error: no such controller")
	_, err = c.StartControllers(ControllersConfig{Name: "Not a label", Binary: "/bin/true"})
	wantError(t, err, "Not a label")
}

func TestReadyAsksOnce(t *testing.T) {
	s := newServer(t, newCluster(t), ServerConfig{
		Name: "new", Binary: play(t, roleOurs), Flags: map[string]string{"fake-unready": "3"},
	})
	if err := s.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	dialUntilUp(t, s).Close()
	for range 3 {
		wantError(t, s.Ready(t.Context()), "[-]poststarthook/slow failed")
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
