package cluster

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// ControllersConfig describes a kube-controller-manager.
type ControllersConfig struct {
	// Name names its files: a DNS label, unique in the cluster.
	Name string
	// Binary is the path of the kube-controller-manager to run.
	Binary string
	// URL is the apiserver that it works with, or what stands before several.
	URL string
	// Controllers are the names of those to run.
	Controllers []string
	// Flags are more flags, without dashes. They replace those of the same name.
	Flags map[string]string
}

// Controllers is a running kube-controller-manager, with the admin's rights. Its
// methods may be called from any number of goroutines.
type Controllers struct {
	cluster *Cluster
	name    string
	process *process
}

// StartControllers starts a kube-controller-manager and returns at once: it has
// no effect before its caches are filled, some seconds later. It is never a
// candidate for a leader, and serves nothing.
func (c *Cluster) StartControllers(config ControllersConfig) (*Controllers, error) {
	if !validName.MatchString(config.Name) {
		return nil, fmt.Errorf("controller manager name %q: use lower-case letters, digits and dashes", config.Name)
	}
	kubeconfig := filepath.Join(c.Dir, config.Name+".kubeconfig")
	if err := c.writeKubeconfig(kubeconfig, config.Name, config.URL); err != nil {
		return nil, err
	}
	log := filepath.Join(c.Dir, config.Name+".log")
	p, err := startProcess(log, "", config.Binary, config.args(kubeconfig)...)
	if err != nil {
		return nil, fmt.Errorf("controller manager %s: %w", config.Name, err)
	}
	m := &Controllers{cluster: c, name: config.Name, process: p}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controllers = append(c.controllers, m)
	c.progress("controller manager %s: starting for %s, log in %s", m.name, config.URL, log)
	return m, nil
}

func (config *ControllersConfig) args(kubeconfig string) []string {
	flags := map[string]string{
		"kubeconfig":            kubeconfig,
		"controllers":           strings.Join(config.Controllers, ","),
		"leader-elect":          "false",
		"secure-port":           "0",
		"cert-dir":              filepath.Dir(kubeconfig),
		"kube-api-qps":          "200",
		"kube-api-burst":        "400",
		"min-resync-period":     "30s",
		"namespace-sync-period": "30s",
	}
	maps.Copy(flags, config.Flags)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		args = append(args, "--"+name+"="+flags[name])
	}
	return args
}

// Err tells how it ended and the end of its log; nil while it runs.
func (m *Controllers) Err() error {
	if m.process.running() {
		return nil
	}
	return fmt.Errorf("controller manager %s: %s", m.name, m.process.ending())
}

// Stop asks it to end and waits for it. When the context ends first, it is
// killed and the error says so.
func (m *Controllers) Stop(ctx context.Context) error {
	if !m.process.running() {
		return nil
	}
	took, err := m.process.stop(ctx)
	if err != nil {
		return fmt.Errorf("controller manager %s: %w", m.name, err)
	}
	m.cluster.progress("controller manager %s: stopped after %s", m.name, took)
	return nil
}
