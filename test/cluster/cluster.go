package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Config says where a cluster lives.
type Config struct {
	// Dir is an empty or absent directory for everything the cluster writes; it
	// stays when the cluster stops. When empty, a temporary directory that goes
	// with the cluster.
	Dir string
	// Progress is told of every step, one line a call, one call at a time; nil
	// for silence. A test's Logf fits.
	Progress func(format string, args ...any)
}

// Cluster is an etcd and a set of apiservers. Its methods may be called from
// any number of goroutines.
type Cluster struct {
	// Dir is where everything is written.
	Dir string
	// CA signs the serving certificates and those of users, FrontProxyCA those
	// of who may speak for a user: the servers, among themselves and with
	// extension servers.
	CA, FrontProxyCA *CA

	keepDir           bool
	etcdURL           string
	frontProxy        *KeyPair
	serviceAccountKey string
	auditPolicy       string
	progressed        func(format string, args ...any)
	progressMu        sync.Mutex

	mu          sync.Mutex
	etcd        *etcd // nil before and after its life
	servers     []*Server
	controllers []*Controllers
	users       map[string]*KeyPair
}

// The admin may do everything, by the rule that every apiserver has built in.
const adminUser, adminGroup = "admin", "system:masters"

// stopGrace is how long a cluster waits for its servers to end by themselves.
const stopGrace = 5 * time.Second

// Start makes the authorities and starts etcd; servers are added with
// [Cluster.StartServers] or [Cluster.NewServer]. The caller must call
// [Cluster.Stop].
func Start(ctx context.Context, config Config) (*Cluster, error) {
	c := &Cluster{progressed: config.Progress}
	if err := c.makeDir(config.Dir); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) makeDir(dir string) (err error) {
	if dir == "" {
		c.Dir, err = os.MkdirTemp("", "mixed-cluster-")
		return err
	}
	if c.Dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	c.keepDir = true
	if entries, err := os.ReadDir(c.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("directory %s is not empty: name a new one, or remove it first", c.Dir)
	}
	return os.MkdirAll(c.Dir, 0o755)
}

func (c *Cluster) start(ctx context.Context) (err error) {
	began := time.Now()
	if err := c.makePKI(filepath.Join(c.Dir, "pki")); err != nil {
		return err
	}
	if c.auditPolicy, err = writeAuditPolicy(c.Dir); err != nil {
		return err
	}
	c.progress("certificates: two authorities in %s", filepath.Join(c.Dir, "pki"))
	if c.etcd, err = startEtcd(ctx, c.Dir); err != nil {
		return err
	}
	c.etcdURL = c.etcd.url
	c.progress("etcd: ready at %s after %s", c.etcdURL, since(began))
	return nil
}

func (c *Cluster) makePKI(dir string) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if c.CA, err = NewCA(dir, "ca"); err != nil {
		return err
	}
	if c.FrontProxyCA, err = NewCA(dir, "front-proxy-ca"); err != nil {
		return err
	}
	if c.frontProxy, err = c.FrontProxyCA.Issue(clientName, ClientLeaf(clientName)); err != nil {
		return err
	}
	admin, err := c.CA.Issue(adminUser, ClientLeaf(adminUser, adminGroup))
	if err != nil {
		return err
	}
	c.users = map[string]*KeyPair{userKey(adminUser, []string{adminGroup}): admin}
	key, err := newKey()
	if err != nil {
		return err
	}
	c.serviceAccountKey, _, err = writeKey(dir, "service-account", key)
	return err
}

// EtcdURL is where etcd serves its clients, without TLS.
func (c *Cluster) EtcdURL() string { return c.etcdURL }

// StartServers adds servers and starts them: the first alone, because it
// creates what every cluster has, then the others at once. It returns them in
// the order given, once all are ready. After an error some may be running.
func (c *Cluster) StartServers(ctx context.Context, configs ...ServerConfig) ([]*Server, error) {
	servers := make([]*Server, len(configs))
	for i, config := range configs {
		var err error
		if servers[i], err = c.NewServer(config); err != nil {
			return nil, err
		}
	}
	if len(servers) == 0 {
		return nil, nil
	}
	if err := servers[0].Start(ctx); err != nil {
		return nil, err
	}
	return servers, startAll(ctx, servers[1:])
}

// startAll starts servers side by side. The first failure ends the wait for
// the others.
func startAll(ctx context.Context, servers []*Server) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() {
			if err := s.Start(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Server returns the server of that name, nil if there is none.
func (c *Cluster) Server(name string) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.name == name {
			return s
		}
	}
	return nil
}

// RESTConfig is access to a server under any name and groups, by a client
// certificate that is made at the first use.
func (c *Cluster) RESTConfig(s *Server, user string, groups ...string) (*rest.Config, error) {
	pair, err := c.userCert(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: s.URL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.CA.PEM(),
			CertData: pair.Cert,
			KeyData:  pair.Key,
		},
		QPS: -1, // no client-side limit
	}, nil
}

func (c *Cluster) userCert(user string, groups []string) (*KeyPair, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := userKey(user, groups)
	if pair, found := c.users[key]; found {
		return pair, nil
	}
	name := fmt.Sprintf("user-%d", len(c.users))
	pair, err := c.CA.Issue(name, ClientLeaf(user, groups...))
	if err == nil {
		c.users[key] = pair
	}
	return pair, err
}

func userKey(user string, groups []string) string { return fmt.Sprintf("%q %q", user, groups) }

// Stop ends every server and controller manager, with a kill for those that do
// not end by themselves within 5 s, then etcd, and removes the directory unless
// it was given. It may be called again.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	servers, controllers, etcd := c.servers, c.controllers, c.etcd
	c.servers, c.controllers, c.etcd = nil, nil, nil
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	var stops []func(context.Context) error
	for _, m := range controllers {
		stops = append(stops, m.Stop)
	}
	for _, s := range servers {
		stops = append(stops, s.Stop)
	}
	errs := make([]error, len(stops)+1)
	var wg sync.WaitGroup
	for i, stop := range stops {
		wg.Go(func() { errs[i] = stop(ctx) })
	}
	wg.Wait()
	if etcd != nil {
		etcd.stop()
		c.progress("etcd: stopped")
	}
	if !c.keepDir {
		errs[len(stops)] = os.RemoveAll(c.Dir)
	}
	return errors.Join(errs...)
}

func (c *Cluster) progress(format string, args ...any) {
	if c.progressed == nil {
		return
	}
	c.progressMu.Lock()
	defer c.progressMu.Unlock()
	c.progressed(format, args...)
}

func since(began time.Time) time.Duration { return time.Since(began).Round(10 * time.Millisecond) }
