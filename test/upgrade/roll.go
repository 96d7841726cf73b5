package upgrade

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"peerproxy.internal/test/cluster"
)

// Plan says what to upgrade to what, and how.
type Plan struct {
	// Name is what the report calls it.
	Name string
	// Old and New are the kube-apiservers' binaries, Controllers is the
	// kube-controller-manager's.
	Old, New, Controllers string
	// PeersOff turns the mixed version proxy off.
	PeersOff bool
	// Back tells to go back to Old at the end.
	Back bool
	// Settle is how long it waits before the first server, between two and after
	// the last one.
	Settle time.Duration
	// Dir is where the cluster's files go, see [cluster.Config].
	Dir string
	// Verbosity is the servers' log level; with Audit they log every request.
	Verbosity int
	Audit     bool
	// Progress is told of every step.
	Progress func(format string, args ...any)
}

// Result is what came of a plan.
type Result struct {
	Name   string
	Took   time.Duration
	Counts *Counts
}

const (
	numServers = 3
	// checkPeriod is how often the load balancer looks at each server, inTimeout
	// how long it may take it to have seen that one is ready.
	checkPeriod, inTimeout = 500 * time.Millisecond, 30 * time.Second
	// stopTimeout is how long a server may take to stop. A kubelet gives it as much.
	stopTimeout = 30 * time.Second
)

// serverFlags are those of a server behind a load balancer: it serves on for some
// time after it has told that it is about to go, and then ends its watches. Now
// and then it sends a client away, so that connections spread over the servers.
var serverFlags = map[string]string{
	"shutdown-delay-duration":                 "5s",
	"shutdown-watch-termination-grace-period": "2s",
	"goaway-chance":                           "0.01",
}

// rollout is a plan at work.
type rollout struct {
	Plan
	cluster  *cluster.Cluster
	servers  []*cluster.Server
	balancer *Balancer
	counts   *Counts
	epoch    *Epoch
}

// Run carries out the plan. It takes minutes.
func (p Plan) Run(ctx context.Context) (_ *Result, err error) {
	began := time.Now()
	r := &rollout{Plan: p, counts: NewCounts(), epoch: NewEpoch()}
	if r.cluster, err = cluster.Start(ctx, cluster.Config{Dir: p.Dir, Progress: p.Progress}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	if err := r.startServers(ctx); err != nil {
		return nil, err
	}
	if err := r.underLoad(ctx, r.roll); err != nil {
		return nil, err
	}
	return &Result{Name: p.Name, Took: time.Since(began), Counts: r.counts}, nil
}

// end kills the servers, which take longer to stop than a cluster waits, and ends
// the cluster.
func (r *rollout) end() error {
	for _, s := range r.servers {
		if s.Err() == nil {
			_ = s.Kill() // it may have ended just now
		}
	}
	return r.cluster.Stop()
}

func (r *rollout) startServers(ctx context.Context) (err error) {
	var configs []cluster.ServerConfig
	for i := range numServers {
		configs = append(configs, cluster.ServerConfig{
			Name: fmt.Sprintf("server-%d", i+1), Binary: r.Old, PeersOff: r.PeersOff,
			Verbosity: r.Verbosity, Audit: r.Audit, Flags: serverFlags,
		})
	}
	if r.servers, err = r.cluster.StartServers(ctx, configs...); err != nil {
		return err
	}
	var backends []Backend
	for _, s := range r.servers {
		backends = append(backends, Backend{Name: s.Name(), Address: s.Address(), Ready: s.Ready})
	}
	r.balancer, err = NewBalancer(checkPeriod, backends...)
	return err
}

// underLoad calls f while the balancer, the controllers and the load run.
func (r *rollout) underLoad(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	running.Go(func() { r.balancer.Run(ctx) })
	for _, s := range r.servers {
		if err := r.waitIn(ctx, s); err != nil {
			return err
		}
	}
	controllers, err := r.cluster.StartControllers(cluster.ControllersConfig{
		Name: "controllers", Binary: r.Controllers, URL: r.balancer.URL(),
		Controllers: []string{"namespace-controller", "garbage-collector-controller"},
	})
	if err != nil {
		return err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{r.cluster.EtcdURL()}, Context: ctx})
	if err != nil {
		return err
	}
	defer etcd.Close()
	config := r.servers[0].AdminConfig()
	config.Host = r.balancer.URL()
	load := NewLoad(LoadConfig{Config: config, Etcd: etcd, TrustBundle: r.cluster.CA.PEM(), Counts: r.counts, Epoch: r.epoch})
	running.Go(func() { cancel(load.Run(ctx)) })
	err = f(ctx)
	if loadErr := context.Cause(ctx); loadErr != nil {
		err = loadErr
	}
	return errors.Join(err, controllers.Err())
}

// roll takes the servers to the new version, one by one, and back if so planned.
func (r *rollout) roll(ctx context.Context) error {
	if err := r.settle(ctx); err != nil {
		return err
	}
	for i, s := range r.servers {
		if err := r.replace(ctx, s, r.New); err != nil {
			return err
		}
		if i == 0 {
			r.epoch.Begin()
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
	if !r.Back {
		return nil
	}
	for i, s := range r.servers {
		if i == len(r.servers)-1 {
			r.Progress("the last new server is about to go: what only it can delete goes first")
			r.epoch.End()
		}
		if err := r.replace(ctx, s, r.Old); err != nil {
			return err
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// replace has a server run another binary, and waits until the balancer has it in.
func (r *rollout) replace(ctx context.Context, s *cluster.Server, binary string) error {
	stopping, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	switch err := s.Stop(stopping); {
	case errors.Is(err, cluster.ErrKilled) && ctx.Err() == nil:
		r.counts.Note(Killed, "%v", err)
	case err != nil:
		return err
	}
	if err := s.Restart(ctx, func(c *cluster.ServerConfig) { c.Binary = binary }); err != nil {
		return err
	}
	return r.waitIn(ctx, s)
}

func (r *rollout) waitIn(ctx context.Context, s *cluster.Server) error {
	limit, cancel := context.WithTimeout(ctx, inTimeout)
	defer cancel()
	tick := time.NewTicker(checkPeriod / 5)
	defer tick.Stop()
	for !r.balancer.In(s.Name()) {
		select {
		case <-limit.Done():
			return fmt.Errorf("waiting until the load balancer has %s in: %w", s.Name(), context.Cause(limit))
		case <-tick.C:
		}
	}
	return nil
}

func (r *rollout) settle(ctx context.Context) error {
	timer := time.NewTimer(r.Settle)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
