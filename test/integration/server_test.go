package integration

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/reconcilers"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"peerproxy.internal/pkg/peerproxy"
	"peerproxy.internal/test/cluster"
)

// Names in the front proxy's certificates.
const peerName = "front-proxy-client"

// spec says what server to start. The zero value is an ordinary one that serves
// what every server serves.
type spec struct {
	// id is the server ID.
	id string
	// serves is what it serves besides what every server does.
	serves []resource
	// clock is the proxy's.
	clock clock.WithTicker
	// periods are how long it bears with other members.
	periods peerproxy.Periods
	// advertise is the address in its record, its own if empty.
	advertise string
	// records, if set, stands between the hooks and the proxy's record writer;
	// renewal is how often that is called, every 10 s if 0.
	records func(reconcilers.PeerEndpointLeaseReconciler) reconcilers.PeerEndpointLeaseReconciler
	renewal time.Duration
	// seats turns priority and fairness on, with so many seats.
	seats int
	// requestHeaders changes what it takes from which headers.
	requestHeaders func(*options.RequestHeaderAuthenticationOptions)
	// timeout is that of requests, a minute if 0.
	timeout time.Duration
	// watchGrace is how long it waits for watches to end when it stops.
	watchGrace time.Duration
	// before stands before the proxy's filter, behind all others.
	before func(http.Handler) http.Handler
	// tracer, if set, makes its spans.
	tracer tracing.TracerProvider
	// openAPI is whether it has OpenAPI documents.
	openAPI bool
	// deny names users who may do nothing.
	deny sets.Set[string]
}

// server is a running API server with the proxy linked in.
type server struct {
	t       *testing.T
	cell    *cell
	spec    spec
	proxy   *peerproxy.Proxy
	address string
	// loopback is its own client.
	loopback kubernetes.Interface
	// arrived are the requests as they came, local those that the filter handed
	// on to the server itself.
	arrived, local traffic
	audit          auditLog
	// stop asks the server to end; done is closed when it has, ran when the
	// proxy's Run has returned.
	stop      context.CancelFunc
	done, ran chan struct{}
}

// start starts a server and returns at once.
func (c *cell) start(s spec) *server {
	c.t.Helper()
	server := &server{t: c.t, cell: c, spec: s, done: make(chan struct{}), ran: make(chan struct{})}
	if err := server.run(); err != nil {
		c.t.Fatal(err)
	}
	return server
}

// ready starts a server and waits until it is ready and other members can see
// it.
func (c *cell) ready(s spec) *server {
	c.t.Helper()
	server := c.start(s)
	c.t.Logf("%s is at %s", s.id, server.address)
	eventually(c.t, s.id+" has published its record", func() bool { return c.get(c.recordKey(s.id)) != nil })
	return server
}

func (s *server) run() error {
	resources := append(append([]resource(nil), common...), s.spec.serves...)
	apis, err := newAPIs(s.cell.backend(), resources)
	if err != nil {
		return err
	}
	config, err := s.config(apis)
	if err != nil {
		return err
	}
	if s.loopback, err = kubernetes.NewForConfig(config.LoopbackClientConfig); err != nil {
		return err
	}
	if err := s.link(config); err != nil {
		return err
	}
	generic, err := config.Complete(s.flowControl(config)).New(s.spec.id, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	if err := apis.install(generic); err != nil {
		return err
	}
	// A connection that is new when a server stops may stay open, with the proxy
	// or without, until this has passed. It is that of requests otherwise.
	generic.ShutdownTimeout = 3 * time.Second
	s.hook(generic)
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop = stop
	go func() {
		defer close(s.done)
		if err := generic.PrepareRun().RunWithContext(ctx); err != nil {
			s.t.Errorf("%s ended: %v", s.spec.id, err)
		}
	}()
	s.t.Cleanup(func() { s.end(patience) })
	return nil
}

// end stops the server and fails the test if that takes too long.
func (s *server) end(limit time.Duration) time.Duration {
	s.t.Helper()
	began := time.Now()
	s.stop()
	if err := within(context.Background(), limit, s.done); err != nil {
		s.t.Fatalf("%s has not stopped within %v", s.spec.id, limit)
	}
	return time.Since(began)
}

// config is the configuration of a server as a kube-apiserver makes it.
func (s *server) config(apis *apis) (*genericapiserver.Config, error) {
	config := genericapiserver.NewConfig(apis.codecs)
	config.APIServerID = s.spec.id
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.OpenAPIV3Config = apis.openAPI()
	config.SkipOpenAPIInstallation = !s.spec.openAPI
	config.EnableProfiling = false
	// The other default check watches the log from a goroutine that never ends.
	ping := []healthz.HealthChecker{healthz.PingHealthz}
	config.HealthzChecks, config.ReadyzChecks, config.LivezChecks = ping, ping, ping
	config.LongRunningFunc = filters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	config.AuditBackend = &s.audit
	config.AuditPolicyRuleEvaluator = policy.NewFakePolicyRuleEvaluator(auditinternal.LevelMetadata, nil)
	config.ShutdownWatchTerminationGracePeriod = s.spec.watchGrace
	if s.spec.timeout > 0 {
		config.RequestTimeout = s.spec.timeout
	}
	if s.spec.tracer != nil {
		config.TracerProvider = s.spec.tracer
	}
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(s.authorize)
	if err := s.serving(config); err != nil {
		return nil, err
	}
	return config, s.authentication(config)
}

func (s *server) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() != nil && s.spec.deny.Has(a.GetUser().GetName()) {
		return authorizer.DecisionDeny, "by the test", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// serving lets the server listen, with a certificate of the cluster's.
func (s *server) serving(config *genericapiserver.Config) error {
	listener, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.address = listener.Addr().String()
	ca := s.cell.cluster.CA
	pair, err := ca.Issue("serving"+s.suffix(), cluster.ServingLeaf())
	if err != nil {
		return err
	}
	own, err := ca.Issue("loopback"+s.suffix(), withName(cluster.ServingLeaf(), genericapiserver.LoopbackClientServerNameOverride))
	if err != nil {
		return err
	}
	info := &genericapiserver.SecureServingInfo{Listener: listener}
	if info.Cert, err = dynamiccertificates.NewStaticCertKeyContent("serving", pair.Cert, pair.Key); err != nil {
		return err
	}
	sni, err := dynamiccertificates.NewStaticSNICertKeyContent("loopback", own.Cert, own.Key, genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return err
	}
	info.SNICerts = []dynamiccertificates.SNICertKeyContentProvider{sni}
	config.SecureServing = info
	config.LoopbackClientConfig, err = info.NewLoopbackClientConfig("loopback"+s.suffix(), ca.PEM())
	return err
}

func (s *server) suffix() string { return s.cell.prefix[1:] + "-" + s.spec.id }

func withName(leaf cluster.Leaf, name string) cluster.Leaf {
	leaf.DNSNames = []string{name}
	return leaf
}

// authentication takes client certificates, and the word of peers.
func (s *server) authentication(config *genericapiserver.Config) error {
	headers := options.RequestHeaderAuthenticationOptions{
		ClientCAFile:        s.cell.cluster.FrontProxyCA.File(),
		UsernameHeaders:     []string{"X-Remote-User"},
		UIDHeaders:          []string{"X-Remote-Uid"},
		GroupHeaders:        []string{"X-Remote-Group"},
		ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
		AllowedNames:        []string{peerName},
	}
	if s.spec.requestHeaders != nil {
		s.spec.requestHeaders(&headers)
	}
	requestHeader, err := headers.ToAuthenticationRequestHeaderConfig()
	if err != nil {
		return err
	}
	clientCA, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", s.cell.cluster.CA.File())
	if err != nil {
		return err
	}
	config.Authentication.RequestHeaderConfig = requestHeader
	for _, ca := range []dynamiccertificates.CAContentProvider{clientCA, requestHeader.CAContentProvider} {
		if err := config.Authentication.ApplyClientCert(ca, config.SecureServing); err != nil {
			return err
		}
	}
	config.Authentication.Authenticator, _, err = authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: true},
		ClientCertificateCAContentProvider: clientCA,
		RequestHeaderConfig:                requestHeader,
	}.New()
	return err
}

// flowControl turns priority and fairness on, with no more than its built-in
// configuration: members of system:masters are exempt, all others share the
// seats. It returns the informers that it needs.
func (s *server) flowControl(config *genericapiserver.Config) informers.SharedInformerFactory {
	if s.spec.seats == 0 {
		return nil
	}
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	config.FlowControl = utilflowcontrol.New(factory, client.FlowcontrolV1(), s.spec.seats)
	return factory
}

// link puts the proxy into the configuration, as cmd/link does.
func (s *server) link(config *genericapiserver.Config) error {
	proxyCert, err := s.cell.cluster.FrontProxyCA.Issue("peer"+s.suffix(), cluster.ClientLeaf(peerName))
	if err != nil {
		return err
	}
	s.proxy, err = peerproxy.New(peerproxy.Config{
		ServerID:            s.spec.id,
		CAFile:              s.cell.cluster.CA.File(),
		ProxyClientCertFile: proxyCert.CertFile,
		ProxyClientKeyFile:  proxyCert.KeyFile,
		RequestHeader:       config.Authentication.RequestHeaderConfig,
		Client:              s.loopback,
		Records:             *s.cell.backend().ForResource(recordsResource),
		StorageMediaType:    "application/vnd.kubernetes.protobuf",
		Serializer:          config.Serializer,
		Clock:               s.spec.clock,
		Periods:             s.spec.periods,
	})
	if err != nil {
		return err
	}
	chain := config.BuildHandlerChainFunc
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		filter := s.proxy.Upstream().WrapHandler(s.local.record(handler))
		if s.spec.before != nil {
			filter = s.spec.before(filter)
		}
		return s.arrived.record(chain(filter, c))
	}
	return nil
}

// hook lets the server's hooks drive the proxy, as a kube-apiserver's do.
//
// Source: k8s.io/kubernetes/pkg/controlplane/apiserver, server.go.
func (s *server) hook(generic *genericapiserver.GenericAPIServer) {
	proxy := s.proxy.Upstream()
	advertise := s.spec.advertise
	if advertise == "" {
		advertise = s.address
	}
	writer, renewal := s.proxy.EndpointLeaseReconciler(), 10*time.Second
	if s.spec.records != nil {
		writer = s.spec.records(writer)
	}
	if s.spec.renewal > 0 {
		renewal = s.spec.renewal
	}
	records := reconcilers.New(s.spec.id, advertise, writer, renewal, s.loopback)
	generic.AddPostStartHookOrDie("peer-endpoint-reconciler-controller", func(ctx genericapiserver.PostStartHookContext) error {
		records.Start(ctx.Done())
		return nil
	})
	generic.AddPreShutdownHookOrDie("peer-endpoint-reconciler-controller", func() error {
		records.Stop()
		return nil
	})
	generic.AddPostStartHookOrDie("mixed-version-proxy-handler", func(ctx genericapiserver.PostStartHookContext) error {
		return proxy.WaitForCacheSync(ctx.Done())
	})
	generic.AddPostStartHookOrDie("local-discovery-cache-sync", func(ctx genericapiserver.PostStartHookContext) error {
		return proxy.RunLocalDiscoveryCacheSync(ctx.Done())
	})
	generic.AddPostStartHookOrDie("peer-discovery-workers", func(ctx genericapiserver.PostStartHookContext) error {
		go func() {
			defer close(s.ran)
			proxy.RunPeerDiscoveryCacheSync(ctx, 1)
		}()
		go proxy.RunPeerDiscoveryActiveGVTracker(ctx)
		go proxy.RunPeerDiscoveryRefilter(ctx)
		return nil
	})
	generic.AddPostStartHookOrDie("start-kube-apiserver-identity-lease-controller", func(ctx genericapiserver.PostStartHookContext) error {
		_, err := s.loopback.CoordinationV1().Leases(metav1.NamespaceSystem).Create(ctx, identityLease(s.spec.id, s.address), metav1.CreateOptions{})
		if ctx.Err() == nil {
			return err
		}
		// The server stops already. An error here would end the process.
		return nil
	})
}
