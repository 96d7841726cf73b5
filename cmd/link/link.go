// Package link puts the peer proxy into a kube-apiserver: it does what
// k8s.io/kubernetes/cmd/kube-apiserver/app.NewConfig does, with this project's
// proxy in the place of the stock one.
package link

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/reconcilers"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	api "k8s.io/kubernetes/pkg/apis/core"

	peeroptions "peerproxy.internal/pkg/options"
	"peerproxy.internal/pkg/peerproxy"
)

// NewConfig returns the configuration of a kube-apiserver. The peer proxy is in
// it if the feature gate UnknownVersionInteroperabilityProxy is on and
// --peer-ca-file is set; without, the configuration is the stock one, but for a
// server ID or half an address that is set all the same.
//
// It checks what the proxy needs of the flags, as [Validate] does, and returns
// all that is wrong as one error. The other flags are the caller's to validate,
// with opts.Validate.
func NewConfig(opts options.CompletedOptions, own peeroptions.Options) (*app.Config, error) {
	if err := utilerrors.NewAggregate(Validate(opts, own)); err != nil {
		return nil, err
	}
	flags := ServerFlags(opts)
	advertised, err := advertised(opts, flags)
	if err != nil {
		return nil, err
	}
	// Without its CA file upstream's own proxy is not built, while everything
	// that both need still is.
	opts.PeerCAFile = ""
	if err := nameInformers(&opts); err != nil {
		return nil, err
	}
	config, err := app.NewConfig(opts)
	if err != nil {
		return nil, err
	}
	// Upstream does not pass the address on, nor use it unless both halves are set.
	config.KubeAPIs.ControlPlane.Extra.PeerAdvertiseAddress = advertised
	if own.ServerID != "" {
		for _, generic := range []*genericapiserver.Config{config.KubeAPIs.ControlPlane.Generic, &config.ApiExtensions.GenericConfig.Config, &config.Aggregator.GenericConfig.Config} {
			generic.APIServerID = own.ServerID
		}
	}
	if !flags.On() {
		return config, nil
	}
	proxy, err := New(config, flags, own)
	if err != nil {
		return nil, err
	}
	Install(config, proxy)
	return config, nil
}

// Validate checks the proxy's own flags and what it needs of the server's, the
// files' content included. Each error names its flag. [NewConfig] does it too:
// call it to report these errors together with those of opts.Validate.
func Validate(opts options.CompletedOptions, own peeroptions.Options) []error {
	errs := own.Validate()
	flags := ServerFlags(opts)
	if !flags.Gate {
		// The flags that have no effect then are named by opts.Validate.
		return errs
	}
	return append(errs, flags.Validate()...)
}

// ServerFlags returns the values of the server's flags that the proxy needs.
func ServerFlags(opts options.CompletedOptions) peeroptions.Server {
	header := opts.Authentication.RequestHeader
	return peeroptions.Server{
		Gate:                utilfeature.DefaultFeatureGate.Enabled(genericfeatures.UnknownVersionInteroperabilityProxy),
		CAFile:              opts.PeerCAFile,
		AdvertiseIP:         opts.PeerAdvertiseAddress.PeerAdvertiseIP,
		AdvertisePort:       opts.PeerAdvertiseAddress.PeerAdvertisePort,
		ProxyClientCertFile: opts.ProxyClientCertFile,
		ProxyClientKeyFile:  opts.ProxyClientKeyFile,
		RequestHeaderCAFile: header.ClientCAFile,
		UsernameHeaders:     header.UsernameHeaders,
		GroupHeaders:        header.GroupHeaders,
		ExtraHeaderPrefixes: header.ExtraHeaderPrefixes,
	}
}

// advertised returns the address that peers are to dial, whole; none where that
// is left to upstream.
func advertised(opts options.CompletedOptions, flags peeroptions.Server) (reconcilers.PeerAdvertiseAddress, error) {
	if !flags.On() && flags.AdvertiseIP == "" && flags.AdvertisePort == "" {
		return reconcilers.PeerAdvertiseAddress{}, nil
	}
	ip, port, err := flags.Advertised(opts.GenericServerRunOptions.AdvertiseAddress, opts.SecureServing.BindPort)
	return reconcilers.PeerAdvertiseAddress{PeerAdvertiseIP: ip, PeerAdvertisePort: port}, err
}

// New makes a proxy for the server that is being configured.
func New(config *app.Config, flags peeroptions.Server, own peeroptions.Options) (*peerproxy.Proxy, error) {
	c, err := proxyConfig(config, flags, own)
	if err != nil {
		return nil, err
	}
	return peerproxy.New(c)
}

// proxyConfig is what the proxy needs of the server that is being configured.
func proxyConfig(config *app.Config, flags peeroptions.Server, own peeroptions.Options) (c peerproxy.Config, err error) {
	generic := config.KubeAPIs.ControlPlane.Generic
	factory, ok := config.KubeAPIs.ControlPlane.StorageFactory.(*serverstorage.DefaultStorageFactory)
	if !ok {
		return c, fmt.Errorf("peer proxy: the storage factory is a %T, not the default one", config.KubeAPIs.ControlPlane.StorageFactory)
	}
	records, err := factory.NewConfig(api.Resource("apiServerPeerIPInfo"), &api.Endpoints{})
	if err != nil {
		return c, fmt.Errorf("peer proxy: configure the storage of endpoint records: %w", err)
	}
	client, err := kubernetes.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return c, fmt.Errorf("peer proxy: %w", err)
	}
	dial, err := egressDialer(generic)
	if err != nil {
		return c, err
	}
	ip, port, err := early(config.KubeAPIs.ControlPlane.Extra.PeerAdvertiseAddress)
	if err != nil {
		return c, err
	}
	return peerproxy.Config{
		ServerID:            generic.APIServerID,
		AdvertiseIP:         ip,
		AdvertisePort:       port,
		Periods:             own.Periods,
		BuiltIn:             own.BuiltIn,
		CAFile:              flags.CAFile,
		ProxyClientCertFile: flags.ProxyClientCertFile,
		ProxyClientKeyFile:  flags.ProxyClientKeyFile,
		RequestHeader:       generic.Authentication.RequestHeaderConfig,
		Client:              client,
		Records:             *records,
		StorageMediaType:    factory.DefaultMediaType,
		Serializer:          generic.Serializer,
		Dial:                dial,
		CustomResources:     CustomResources,
	}, nil
}

// early is the address at which peers reach the server before it is ready.
func early(a reconcilers.PeerAdvertiseAddress) (ip string, port int32, err error) {
	if a.PeerAdvertiseIP == "" {
		return "", 0, nil
	}
	number, err := strconv.ParseInt(a.PeerAdvertisePort, 10, 32)
	if err != nil {
		return "", 0, fmt.Errorf("peer proxy: the port advertised to peers: %w", err)
	}
	return a.PeerAdvertiseIP, int32(number), nil
}

func egressDialer(generic *genericapiserver.Config) (func(context.Context, string, string) (net.Conn, error), error) {
	if generic.EgressSelector == nil {
		return nil, nil
	}
	dial, err := generic.EgressSelector.Lookup(egressselector.ControlPlane.AsNetworkContext())
	if err != nil {
		return nil, fmt.Errorf("peer proxy: look up the egress dialer of the network controlplane: %w", err)
	}
	return dial, nil
}

// Install puts a proxy into the configuration of a server.
func Install(config *app.Config, proxy *peerproxy.Proxy) {
	extra := &config.KubeAPIs.ControlPlane.Extra
	extra.PeerEndpointLeaseReconciler.Destroy()
	extra.PeerEndpointLeaseReconciler = proxy.EndpointLeaseReconciler()
	extra.PeerProxy = proxy.Upstream()
	config.Aggregator.ExtraConfig.PeerProxy = proxy.Upstream()
	chain := config.Aggregator.GenericConfig.BuildHandlerChainFunc
	config.Aggregator.GenericConfig.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return chain(proxy.WrapHandler(handler), c)
	}
}
