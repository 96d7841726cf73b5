package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// whoAmI asks a fake apiserver who it is and whom it sees.
func whoAmI(t *testing.T, config *rest.Config) identity {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	var id identity
	if err := ask(t.Context(), client, config.Host+"/identity", &id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestServerStartsWhenReady(t *testing.T) {
	c := newCluster(t)
	s := newServer(t, c, ServerConfig{
		Name: "new", Binary: play(t, roleOurs), Flags: map[string]string{"fake-unready": "2"},
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := whoAmI(t, s.AdminConfig())
	if id.User != "admin" || !slices.Equal(id.Groups, []string{"system:masters"}) {
		t.Errorf("the admin is %q in %q", id.User, id.Groups)
	}
	if want := "--peer-server-id=apiserver-new"; !slices.Contains(id.Args, want) || s.ID() != "apiserver-new" {
		t.Errorf("server ID %q, no %s in %q", s.ID(), want, id.Args)
	}
	if info, err := s.Version(t.Context()); err != nil || info.GitVersion != "v1.37.2" {
		t.Errorf("version %q, %v", info.GitVersion, err)
	}
	wantError(t, s.Start(t.Context()), "running already")
}

func TestServerUsers(t *testing.T) {
	c := newCluster(t)
	s := newServer(t, c, ServerConfig{Name: "new", Binary: play(t, roleOurs), IP: "127.0.0.2"})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, groups := range [][]string{nil, {"dev", "ops"}} {
		config, err := s.ConfigFor("alice", groups...)
		if err != nil {
			t.Fatal(err)
		}
		if id := whoAmI(t, config); id.User != "alice" || !slices.Equal(id.Groups, groups) {
			t.Errorf("seen as %q in %q, want alice in %q", id.User, id.Groups, groups)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if id := whoAmI(t, config); id.User != "admin" {
		t.Errorf("the kubeconfig is for %q", id.User)
	}
}

func TestStockServerHasItsOwnHostName(t *testing.T) {
	before, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	s := newServer(t, c, ServerConfig{Name: "old", Binary: play(t, roleStock), ID: "apiserver-unused"})
	err = s.Start(t.Context())
	if os.Geteuid() != 0 {
		if !errors.Is(err, errNeedsRoot) {
			t.Errorf("without root: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if id := whoAmI(t, s.AdminConfig()); id.Host != "old" || s.ID() != StockServerID("old") {
		t.Errorf("host name %q, server ID %q", id.Host, s.ID())
	}
	if after, _ := os.Hostname(); after != before {
		t.Errorf("this process's host name became %q", after)
	}
}

func TestStockServerID(t *testing.T) {
	// Read from the identity lease of a stock kube-apiserver v1.37.2.
	if got, want := StockServerID("new"), "apiserver-boevjxujufrivtmlmwynqnx2kq"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestServerThatEndsAtStart(t *testing.T) {
	c := newCluster(t)
	s := newServer(t, c, ServerConfig{
		Name: "new", Binary: play(t, roleOurs), Flags: map[string]string{"fake-fail": "no such gate"},
	})
	err := s.Start(t.Context())
	wantError(t, err, "server new", "exit status 1", s.Log(), "Error: no such gate")
	if strings.Contains(err.Error(), "noise") {
		t.Errorf("error holds more than the cause: %v", err)
	}
}

func TestServerThatIsNeverReady(t *testing.T) {
	c := newCluster(t)
	s := newServer(t, c, ServerConfig{
		Name: "new", Binary: play(t, roleOurs), Flags: map[string]string{"fake-unready": "1000000"},
	})
	if err := s.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	dialUntilUp(t, s).Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := s.WaitReady(ctx)
	wantError(t, err, "server new", "[-]poststarthook/slow failed")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not wrap the context's error", err)
	}
}

func TestProgramThatIsNoAPIServer(t *testing.T) {
	c := newCluster(t)
	s := newServer(t, c, ServerConfig{Name: "new", Binary: "/bin/true"})
	wantError(t, s.Start(t.Context()), "server new", "/bin/true", "no kube-apiserver")
}

func TestServerEnds(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name  string
		flags map[string]string
		end   func(*Server) error
		err   string
		how   string
	}{
		{name: "stop", end: func(s *Server) error { return s.Stop(t.Context()) }, how: "with success"},
		{name: "kill", end: (*Server).Kill, how: "signal: killed"},
		{
			name: "stop frozen",
			end: func(s *Server) error {
				return errors.Join(s.Freeze(), s.Stop(t.Context()))
			},
			how: "with success",
		},
		{
			name: "stop deaf", flags: map[string]string{"fake-deaf": "true"},
			end: func(s *Server) error { return s.Stop(ended) },
			err: "had not ended", how: "signal: killed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, newCluster(t), ServerConfig{Name: "new", Binary: play(t, roleOurs), Flags: tc.flags})
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Err(); err != nil {
				t.Errorf("while it runs: %v", err)
			}
			err := tc.end(s)
			if tc.err != "" {
				wantError(t, err, tc.err)
			} else if err != nil {
				t.Fatal(err)
			}
			<-s.Done()
			wantError(t, s.Err(), tc.how)
			if err := s.Stop(t.Context()); err != nil {
				t.Errorf("stopping again: %v", err)
			}
			wantError(t, s.Kill(), "not running")
		})
	}
}

func TestFrozenServerAnswersOnceThawed(t *testing.T) {
	s := newServer(t, newCluster(t), ServerConfig{Name: "new", Binary: play(t, roleOurs)})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.WaitReady(ctx); err == nil {
		t.Error("a frozen server answered")
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestServerRestartsAsAnotherAtTheSamePort(t *testing.T) {
	s := newServer(t, newCluster(t), ServerConfig{Name: "new", Binary: play(t, roleOurs)})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	url, pid := s.URL(), s.Pid()
	if err := s.Restart(t.Context(), func(c *ServerConfig) {
		c.EmulatedVersion, c.Name, c.ID = "1.36", "ignored", "apiserver-same"
	}); err != nil {
		t.Fatal(err)
	}
	if s.URL() != url || s.Pid() == pid || s.ID() != "apiserver-same" {
		t.Errorf("at %s (before: %s), process %d (before: %d), ID %s", s.URL(), url, s.Pid(), pid, s.ID())
	}
	if id := whoAmI(t, s.AdminConfig()); !slices.Contains(id.Args, "--emulated-version=1.36") {
		t.Errorf("restarted with %q", id.Args)
	}
}

func TestStartServers(t *testing.T) {
	binary := play(t, roleOurs)
	t.Run("all", func(t *testing.T) {
		c := newCluster(t)
		servers, err := c.StartServers(t.Context(),
			ServerConfig{Name: "a", Binary: binary}, ServerConfig{Name: "b", Binary: binary}, ServerConfig{Name: "c", Binary: binary})
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"a", "b", "c"} {
			if servers[i].Name() != name || c.Server(name) != servers[i] {
				t.Errorf("server %d is %s", i, servers[i].Name())
			}
		}
	})
	t.Run("one fails", func(t *testing.T) {
		_, err := newCluster(t).StartServers(t.Context(),
			ServerConfig{Name: "a", Binary: binary},
			ServerConfig{Name: "b", Binary: binary, Flags: map[string]string{"fake-unready": "1000000"}},
			ServerConfig{Name: "c", Binary: binary, Flags: map[string]string{"fake-fail": "bad"}})
		wantError(t, err, "server c", "Error: bad")
	})
	t.Run("same name", func(t *testing.T) {
		_, err := newCluster(t).StartServers(t.Context(),
			ServerConfig{Name: "a", Binary: binary}, ServerConfig{Name: "a", Binary: binary})
		wantError(t, err, `two servers are named "a"`)
	})
}

// A connection to the child ends when the child does.
func TestProcessDiesWithItsParent(t *testing.T) {
	binary := play(t, roleParent)
	c := newCluster(t)
	s := newServer(t, c, ServerConfig{Name: "new", Binary: binary})
	log := filepath.Join(c.Dir, "child.log")
	cmd := exec.Command(binary, append([]string{log}, s.args()...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(out), &pid); err != nil {
		t.Fatal(err)
	}
	conn := dialUntilUp(t, s)
	defer conn.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("process %d outlives its parent: %v", pid, err)
	}
}

func dialUntilUp(t *testing.T, s *Server) *tls.Conn {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(s.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		conn, err := tls.Dial("tcp", s.Address(), tlsConfig)
		if err == nil {
			return conn
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func TestReadyzFailures(t *testing.T) {
	for body, want := range map[string]string{
		"[+]ping ok\n[-]etcd failed: reason withheld\n[-]hook failed\nreadyz check failed\n": "[-]etcd failed: reason withheld; [-]hook failed",
		`{"kind":"Status"}` + "\n": `{"kind":"Status"}`,
	} {
		if got := failures(body); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
