// Package peerproxy is the front door of the mixed version proxy: an HTTP
// filter for a kube-apiserver that, during an upgrade, forwards what this
// server does not serve to a peer that does.
//
// Make a [Proxy] of a [Config] with [New], wrap the innermost handler of the
// server with [Proxy.WrapHandler], and keep [Proxy.Run] running for as long as
// the server does. [Proxy.Upstream] and [Proxy.EndpointLeaseReconciler] are the
// two interfaces by which a kube-apiserver does all of that by itself.
//
// THREATS.md in this directory tells who could attack, and what stops them.
//
// This package only wires. What is known of the cluster is made in package
// observe, requests are answered in package serve, and the two meet in package
// snapshot; see the map in the directory above.
package peerproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/observe"
	"peerproxy.internal/pkg/observe/dirty"
	"peerproxy.internal/pkg/observe/discovery"
	"peerproxy.internal/pkg/observe/exclusion"
	"peerproxy.internal/pkg/observe/lease"
	"peerproxy.internal/pkg/serve"
	"peerproxy.internal/pkg/serve/document"
	"peerproxy.internal/pkg/serve/forward"
	"peerproxy.internal/pkg/serve/health"
	"peerproxy.internal/pkg/serve/openapi"
	"peerproxy.internal/pkg/transport"
)

const (
	// exclusionGrace is how long a deleted custom resource or aggregated API
	// stays out of documents that peers make anew.
	exclusionGrace = 5 * time.Minute
	// allowanceWindow is the time within which a peer uses up a period.
	allowanceWindow = 10 * time.Minute
)

// Periods bound what a member in trouble costs the others. A zero period stands
// for its default.
type Periods struct {
	// Starting is how long, within any 10 minutes, a peer takes part that is not
	// ready yet: 5 minutes.
	Starting time.Duration
	// Unknown is how long, within any 10 minutes, a peer whose discovery can't be
	// read keeps requests from a 404: 30 s.
	Unknown time.Duration
	// Departed is how long what only a peer served is kept after its identity
	// lease is gone: 10 minutes.
	Departed time.Duration
}

// WithDefaults returns the periods with their defaults filled in.
func (p Periods) WithDefaults() Periods {
	p.Starting = cmp.Or(p.Starting, 5*time.Minute)
	p.Unknown = cmp.Or(p.Unknown, 30*time.Second)
	p.Departed = cmp.Or(p.Departed, 10*time.Minute)
	return p
}

// limits are the periods as the observer knows them.
func (p Periods) limits() observe.Limits {
	p = p.WithDefaults()
	return observe.Limits{
		DepartureGrace: p.Departed,
		Doubt:          observe.Allowance{Longest: p.Unknown, Window: allowanceWindow},
		Starting:       observe.Allowance{Longest: p.Starting, Window: allowanceWindow},
	}
}

// Config is what a [Proxy] needs of the server that it is linked into. Every
// field without "optional" is required.
type Config struct {
	// ServerID is the server's APIServerID.
	ServerID string
	// CAFile is --peer-ca-file, the CA bundle that peers' serving certificates
	// are verified with.
	CAFile string
	// ProxyClientCertFile and ProxyClientKeyFile are --proxy-client-cert-file and
	// -key-file, which authenticate this server to its peers.
	ProxyClientCertFile, ProxyClientKeyFile string
	// RequestHeader is the server's request header authentication. It tells which
	// certificates are those of peers, and which headers bear identities.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// Client reaches this very server as its loopback client.
	Client kubernetes.Interface
	// Records is the storage configuration for the resource apiServerPeerIPInfo,
	// StorageMediaType the media type that the server stores objects in.
	Records          storagebackend.ConfigForResource
	StorageMediaType string
	// RecordStorage, optional, holds the endpoint records in the place of what
	// Records and StorageMediaType describe.
	RecordStorage storage.Interface
	// Serializer negotiates the encoding of errors.
	Serializer runtime.NegotiatedSerializer
	// AdvertiseIP and AdvertisePort, optional, are where peers reach this server.
	// Without them it takes part once it is ready and not before.
	AdvertiseIP   string
	AdvertisePort int32
	// Periods, optional, are the grace periods of other members.
	Periods Periods
	// BuiltIn, optional, reports whether a group can be built into one of the
	// apiservers. What can't be is not refused while someone may serve it who is
	// not known yet: probes for optional custom resources keep their 404. Nil stands
	// for Kubernetes' own groups: those without a dot, or that end in .k8s.io.
	BuiltIn func(group string) bool
	// Dial, optional, is the egress dialer of the network "controlplane".
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// CustomResources, optional, returns the resources that a custom resource
	// definition owns, one for each served version. Without it the whole
	// group-versions that the server's extractor names are excluded.
	CustomResources func(definition any) []schema.GroupVersionResource
	// Clock, optional, is the source of time.
	Clock clock.WithTicker
	// Random, optional, returns a number from 0 up to but not including n. Any
	// goroutine may call it. Nil stands for math/rand/v2's IntN.
	Random func(n int) int
}

func (c Config) validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"ServerID":         c.ServerID == "",
		"RequestHeader":    c.RequestHeader == nil || c.RequestHeader.CAContentProvider == nil,
		"Client":           c.Client == nil,
		"StorageMediaType": c.StorageMediaType == "" && c.RecordStorage == nil,
		"Serializer":       c.Serializer == nil,
	} {
		if missing {
			errs = append(errs, fmt.Errorf("the configuration lacks %s", name))
		}
	}
	return errors.Join(errs...)
}

// address is where peers reach this server, none if that is not known.
func (c Config) address() netip.AddrPort {
	ip, err := netip.ParseAddr(c.AdvertiseIP)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(c.AdvertisePort))
}

// Proxy is the mixed version proxy of one server.
type Proxy struct {
	config     Config
	transport  *transport.Transport
	storage    *lease.Storage
	exclusions *exclusion.Tracker
	observer   *observe.Observer
	trusted    func(*http.Request) bool
	local      *localHandler
	record     *lease.Publisher
	openapi    *openapi.Server
	health     *health.Tracker
	// stopping is closed when the context of Run ends.
	stopping chan struct{}
	// run is the context of Run, for the calls of an interface that passes none.
	run atomic.Pointer[context.Context]
}

// New returns a proxy. It reads the certificate files and opens the storage of
// the endpoint records, and starts nothing else. Errors name the file or the
// field that is wrong.
func New(c Config) (*Proxy, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("peer proxy: %w", err)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Random == nil {
		c.Random = rand.IntN
	}
	metrics.Register()
	peers, err := transport.New(transport.Config{
		CAFile:   c.CAFile,
		CertFile: c.ProxyClientCertFile,
		KeyFile:  c.ProxyClientKeyFile,
		Dial:     c.Dial,
		Clock:    c.Clock,
		Own:      c.address(),

		IdentityHeaders:        slices.Concat(values(c.RequestHeader.UsernameHeaders), values(c.RequestHeader.UIDHeaders), values(c.RequestHeader.GroupHeaders)),
		IdentityHeaderPrefixes: values(c.RequestHeader.ExtraHeaderPrefixes),
	})
	if err != nil {
		return nil, fmt.Errorf("peer proxy: %w", err)
	}
	records, err := openRecords(c)
	if err != nil {
		return nil, fmt.Errorf("peer proxy: %w", err)
	}
	p := &Proxy{config: c, transport: peers, storage: records, trusted: trustPeers(c.RequestHeader), local: &localHandler{}}
	p.record = &lease.Publisher{Storage: records, ServerID: c.ServerID, Clock: c.Clock}
	p.openapi = openapi.New(openapi.Config{
		Local:      func() http.RoundTripper { return discovery.InProcess(p.local) },
		Peers:      transport.AsServer(peers),
		Serializer: c.Serializer,
		Clock:      c.Clock,
	})
	p.stopping = make(chan struct{})
	p.health = health.New(health.Config{Redial: peers.Redial, Known: p.reachable, Clock: c.Clock})
	changed, touched := dirty.New(), dirty.New()
	p.exclusions = exclusion.NewTracker(exclusion.Config{Grace: exclusionGrace, Changed: changed, Touched: touched, Clock: c.Clock})
	p.observer = observe.New(observe.Config{
		ServerID:   c.ServerID,
		Members:    lease.NewTracker(lease.Config{Client: c.Client, Storage: records, Changed: changed, Clock: c.Clock}),
		Exclusions: p.exclusions,
		Changed:    changed,
		Touched:    touched,
		Local:      discovery.InProcess(p.local),
		Peers:      transport.AsServer(peers),
		Limits:     c.Periods.limits(),
		BuiltIn:    c.BuiltIn,
		Clock:      c.Clock,
		Random:     c.Random,
	})
	return p, nil
}

func openRecords(c Config) (*lease.Storage, error) {
	if c.RecordStorage != nil {
		return lease.NewStorageOn(c.RecordStorage), nil
	}
	return lease.NewStorage(c.Records, c.StorageMediaType)
}

// WrapHandler returns a handler that answers or forwards what the server does
// not serve alone, and hands everything else to next. It has to be the
// innermost filter of the chain, behind authentication, authorization, audit
// and flow control, and is to be called once: next is also asked for what the
// server serves.
func (p *Proxy) WrapHandler(next http.Handler) http.Handler {
	p.local.set(next)
	return serve.WithPeerProxy(next, serve.Config{
		ServerID:  p.config.ServerID,
		Snapshots: p.observer,
		Trusted:   p.trusted,
		LeadsBack: p.transport.LeadsBack,
		Forwarder: &forward.Forwarder{
			Transport:  p.transport,
			Serializer: p.config.Serializer,
			Health:     p.health,
			Stopping:   p.stopping,
			Clock:      p.config.Clock,
			Random:     p.config.Random,
		},
		Documents:  document.New(),
		OpenAPI:    p.openapi,
		Serializer: p.config.Serializer,
	})
}

// ExcludeCustomResources follows the custom resource definitions of an
// informer: what they own is never taken from a peer. To be called before Run.
func (p *Proxy) ExcludeCustomResources(definitions cache.SharedIndexInformer, groupVersions func(any) []schema.GroupVersion) error {
	return p.exclusions.Follow(definitions, func(obj any) exclusion.Owned {
		if p.config.CustomResources != nil {
			return exclusion.Owned{Resources: p.config.CustomResources(obj)}
		}
		return exclusion.Owned{GroupVersions: groupVersions(obj)}
	})
}

// ExcludeAggregatedAPIs follows the APIServices of an informer: the
// group-versions of those that groupVersions returns some for are never taken
// from a peer. To be called before Run.
func (p *Proxy) ExcludeAggregatedAPIs(services cache.SharedIndexInformer, groupVersions func(any) []schema.GroupVersion) error {
	return p.exclusions.Follow(services, func(obj any) exclusion.Owned {
		return exclusion.Owned{GroupVersions: groupVersions(obj)}
	})
}

// Ready is closed when merged documents can be served, at the latest 10 s after
// the start of Run.
func (p *Proxy) Ready() <-chan struct{} { return p.observer.Ready() }

// Run follows the peers until ctx ends, and returns when all that it started is
// gone. To be called once.
func (p *Proxy) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("peerproxy"))
	defer p.storage.Close()
	p.run.Store(&ctx)
	context.AfterFunc(ctx, func() { close(p.stopping) })
	var transportErr error
	var running sync.WaitGroup
	running.Go(func() { p.health.Run(ctx) })
	running.Go(func() { transportErr = p.transport.Run(ctx) })
	running.Go(func() { p.record.Run(ctx) })
	running.Go(func() { p.openapi.Run(ctx) })
	running.Go(func() { p.takePartEarly(ctx) })
	observerErr := p.observer.Run(ctx)
	running.Wait()
	return errors.Join(transportErr, observerErr)
}

// takePartEarly publishes an early record as soon as this server can tell what
// it serves: its readiness may depend on a webhook that, at an older server,
// looks for what only this one has.
func (p *Proxy) takePartEarly(ctx context.Context) {
	select {
	case incarnation := <-p.observer.Incarnation():
		p.record.PublishStarting(p.config.AdvertiseIP, p.config.AdvertisePort, incarnation)
	case <-ctx.Done():
	}
}
