package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

var errNeedsRoot = errors.New("a stock kube-apiserver takes its server ID from the host name, and a host name of its own takes Linux and root: " +
	"run as root, or use a kube-apiserver of this project (make build), which takes the ID as a flag")

// errNotRunning answers what only a running server can do.
var errNotRunning = errors.New("it is not running")

// startTimeout bounds the start of a server when the context does not.
const startTimeout = 2 * time.Minute

// Server is one apiserver of a cluster: a name, an address and, while it runs,
// a process. Its methods may be called from any number of goroutines.
type Server struct {
	cluster *Cluster
	name    string
	port    int
	serving *KeyPair
	admin   *rest.Config

	mu      sync.Mutex
	config  ServerConfig
	id      string
	process *process // the last one, nil before the first start
}

// NewServer adds a server, with its port, certificate and kubeconfig, and does
// not start it.
func (c *Cluster) NewServer(config ServerConfig) (*Server, error) {
	config = config.clone()
	config.IP = cmp.Or(config.IP, loopback)
	if err := config.validate(); err != nil {
		return nil, err
	}
	if c.Server(config.Name) != nil {
		return nil, fmt.Errorf("two servers are named %q", config.Name)
	}
	port, err := freePort(config.IP)
	if err != nil {
		return nil, err
	}
	s := &Server{cluster: c, name: config.Name, port: port, config: config}
	leaf := ServingLeaf()
	leaf.IPs = append(leaf.IPs, net.ParseIP(config.IP))
	if s.serving, err = c.CA.Issue("server-"+config.Name, leaf); err != nil {
		return nil, err
	}
	if s.admin, err = c.RESTConfig(s, adminUser, adminGroup); err != nil {
		return nil, err
	}
	if err := c.writeKubeconfig(s.Kubeconfig(), s.name, s.URL()); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, s)
	return s, nil
}

// Name is the server's name.
func (s *Server) Name() string { return s.name }

// ID is the server ID, known once the server was started.
func (s *Server) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// URL is where it serves, also while it does not run.
func (s *Server) URL() string { return "https://" + s.Address() }

// Address is the host and port of [Server.URL].
func (s *Server) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return net.JoinHostPort(s.config.IP, strconv.Itoa(s.port))
}

// Log is the file that holds what it wrote.
func (s *Server) Log() string { return s.file("log") }

// AuditLog is the file of its audit log, if that was asked for.
func (s *Server) AuditLog() string { return s.file("audit.log") }

// Kubeconfig is the file that gives admin access to it.
func (s *Server) Kubeconfig() string { return s.file("kubeconfig") }

func (s *Server) file(suffix string) string {
	return filepath.Join(s.cluster.Dir, s.name+"."+suffix)
}

// AdminConfig is access to it as a member of system:masters.
func (s *Server) AdminConfig() *rest.Config { return rest.CopyConfig(s.admin) }

// ConfigFor is access to it as the given user; see [Cluster.RESTConfig].
func (s *Server) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	return s.cluster.RESTConfig(s, user, groups...)
}

// Start launches the server and waits until it is ready, at most 2 minutes. A
// server that ends before that is an error with the end of its log.
func (s *Server) Start(ctx context.Context) error {
	began := time.Now()
	if err := s.Launch(ctx); err != nil {
		return err
	}
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	s.cluster.progress("server %s: ready at %s after %s", s.name, s.URL(), since(began))
	return nil
}

// Launch starts the server's process and returns at once.
func (s *Server) Launch(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && s.process.running() {
		return s.errorf("%w", errors.New("it is running already"))
	}
	help, err := helpOf(ctx, s.config.Binary)
	if err != nil {
		return s.errorf("%w", err)
	}
	args, hostname := s.args(), ""
	if takesServerID(help) {
		s.id = s.config.serverID()
		args = append(args, "--"+serverIDFlag+"="+s.id)
	} else {
		hostname = s.name
		s.id = StockServerID(hostname)
	}
	s.process, err = startProcess(s.Log(), hostname, s.config.Binary, args...)
	if err != nil {
		return s.errorf("%w", err)
	}
	s.cluster.progress("server %s: starting %s as %s, log in %s", s.name, s.config.describe(), s.id, s.Log())
	return nil
}

// StockServerID is the server ID that a stock kube-apiserver on a host of that
// name gives itself: a hash of the host name and of what it is, each after its
// length (k8s.io/apiserver, server.NewConfig).
func StockServerID(hostname string) string {
	var data []byte
	for _, part := range []string{hostname, "kube-apiserver"} {
		data = binary.BigEndian.AppendUint16(data, uint16(len(part)))
		data = append(data, part...)
	}
	hash := sha256.Sum256(data)
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(hash[:16])
	return "apiserver-" + strings.ToLower(text)
}

// helpOf runs a kube-apiserver for its help.
func helpOf(ctx context.Context, path string) (string, error) {
	help, err := exec.CommandContext(ctx, path, "--help").Output()
	if err != nil {
		return "", fmt.Errorf("%s --help: %w", path, err)
	}
	if !strings.Contains(string(help), "--etcd-servers") {
		return "", fmt.Errorf("%s is no kube-apiserver: its help knows no --etcd-servers", path)
	}
	return string(help), nil
}

// Done is closed when the process that was last started has ended; it is nil
// before the first start.
func (s *Server) Done() <-chan struct{} {
	if p := s.current(); p != nil {
		return p.done
	}
	return nil
}

// Err tells how the process ended and the end of its log; nil while it runs.
func (s *Server) Err() error {
	p := s.current()
	if p == nil || p.running() {
		return nil
	}
	return s.errorf("%s", p.ending())
}

// Pid is the ID of the process that was last started.
func (s *Server) Pid() int {
	if p := s.current(); p != nil {
		return p.pid
	}
	return 0
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Stop asks the server to end and waits for it. When the context ends first,
// the process is killed and the error says so. A frozen server is thawed.
func (s *Server) Stop(ctx context.Context) error {
	p := s.current()
	if p == nil || !p.running() {
		return nil
	}
	took, err := p.stop(ctx)
	if err != nil {
		return s.errorf("%w", err)
	}
	s.cluster.progress("server %s: stopped after %s", s.name, took)
	return nil
}

// Kill ends the process at once, as a crash does, and waits until it is gone.
func (s *Server) Kill() error {
	p := s.current()
	if p == nil || !p.running() {
		return s.errorf("%w", errNotRunning)
	}
	if err := p.kill(); err != nil {
		return s.errorf("%w", err)
	}
	s.cluster.progress("server %s: killed", s.name)
	return nil
}

// Freeze stops the process from running: connections to it stay open and get
// no answer.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw ends a [Server.Freeze].
func (s *Server) Thaw() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	p := s.current()
	if p == nil || !p.running() {
		return s.errorf("%w", errNotRunning)
	}
	if err := p.signal(sig); err != nil {
		return s.errorf("%w", err)
	}
	return nil
}

// Restart stops the server, if it runs, and starts it as change leaves its
// configuration, at the same port; nil changes nothing. Its name and IP stay.
func (s *Server) Restart(ctx context.Context, change func(*ServerConfig)) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	if change != nil {
		s.reconfigure(change)
	}
	return s.Start(ctx)
}

func (s *Server) reconfigure(change func(*ServerConfig)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	config := s.config.clone()
	change(&config)
	config.Name, config.IP = s.name, s.config.IP
	s.config = config
}

func (s *Server) errorf(format string, args ...any) error {
	return fmt.Errorf("server "+s.name+": "+format, args...)
}
