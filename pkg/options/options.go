// Package options has the command line of the peer proxy: the flags that it
// adds to a kube-apiserver, and the checks of those that the server has
// already.
package options

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"peerproxy.internal/pkg/peerproxy"
	"peerproxy.internal/pkg/transport"
)

// Options are the peer proxy's own flags.
type Options struct {
	// ServerID replaces the server ID that a kube-apiserver makes of its host
	// name. Empty keeps that.
	ServerID string
	// Periods are a member's grace periods. A zero period stands for its default,
	// unless it is a flag's value.
	Periods peerproxy.Periods
	// BuiltIn is no flag: a fork that has API groups of its own built in names them
	// with it. See [peerproxy.Config].
	BuiltIn func(group string) bool

	// flagged is whether the flags were added.
	flagged bool
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ServerID, "peer-server-id", o.ServerID, ""+
		"The ID of this server among its peers: the name of its identity lease. It has to be different on every server, "+
		"and to stay the same over restarts. If empty, it is made of the host name. "+
		"Set it to run several servers on one host.")
	addPeriods(fs, &o.Periods)
	o.flagged = true
}

// Validate checks the flags themselves.
func (o *Options) Validate() []error {
	periods := o.Periods
	if !o.flagged {
		periods = periods.WithDefaults()
	}
	errs := validatePeriods(periods)
	if o.ServerID == "" {
		return errs
	}
	// The ID names a lease and is the value of a label.
	problems := append(validation.IsDNS1123Subdomain(o.ServerID), validation.IsValidLabelValue(o.ServerID)...)
	if len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--peer-server-id %q can't name a lease: %s", o.ServerID, problems[0]))
	}
	return errs
}

// Server holds the values of the flags that a kube-apiserver has already.
type Server struct {
	// Gate is whether the feature UnknownVersionInteroperabilityProxy is on.
	Gate bool
	// CAFile is --peer-ca-file.
	CAFile string
	// AdvertiseIP and AdvertisePort are --peer-advertise-ip and
	// --peer-advertise-port.
	AdvertiseIP, AdvertisePort string
	// ProxyClientCertFile and ProxyClientKeyFile are --proxy-client-cert-file
	// and --proxy-client-key-file.
	ProxyClientCertFile, ProxyClientKeyFile string
	// RequestHeaderCAFile is --requestheader-client-ca-file.
	RequestHeaderCAFile string
	// UsernameHeaders, GroupHeaders and ExtraHeaderPrefixes are
	// --requestheader-username-headers, -group-headers and -extra-headers-prefix.
	UsernameHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

// On reports whether the peer proxy is on; without it the server behaves as a
// stock one.
func (s Server) On() bool { return s.Gate && s.CAFile != "" }

// Validate checks what the peer proxy needs of the server's flags, the files'
// content included.
func (s Server) Validate() []error {
	var errs []error
	if !s.Gate {
		for _, flag := range []struct{ name, value string }{{"peer-ca-file", s.CAFile}, {"peer-advertise-ip", s.AdvertiseIP}, {"peer-advertise-port", s.AdvertisePort}} {
			if flag.value != "" {
				errs = append(errs, fmt.Errorf("--%s has no effect without the feature gate UnknownVersionInteroperabilityProxy: enable it, or leave the flag out", flag.name))
			}
		}
		return errs
	}
	errs = append(errs, s.validateAddress()...)
	if s.CAFile == "" {
		return errs
	}
	for _, flag := range []struct{ name, value, why string }{
		{"proxy-client-cert-file", s.ProxyClientCertFile, "it authenticates this server to its peers"},
		{"proxy-client-key-file", s.ProxyClientKeyFile, "it is the key of --proxy-client-cert-file"},
		{"requestheader-client-ca-file", s.RequestHeaderCAFile, "it authenticates the peers to this server"},
	} {
		if flag.value == "" {
			errs = append(errs, fmt.Errorf("--peer-ca-file needs --%s: %s", flag.name, flag.why))
		}
	}
	errs = append(errs, s.validateHeaders()...)
	if s.ProxyClientCertFile == "" || s.ProxyClientKeyFile == "" {
		return errs
	}
	return append(errs, s.checkFiles()...)
}

// validateHeaders checks that this server reads the whole user that a peer names.
// A stock server reads nothing by default: it would answer a peer 401, or take
// every user for an anonymous one, or for one without groups.
//
// Source: RequestHeaderAuthenticationOptions in k8s.io/apiserver/pkg/server/options,
// whose lists a kube-apiserver leaves empty, and which are taken without trimming.
func (s Server) validateHeaders() []error {
	var errs []error
	for _, flag := range []struct {
		name, header, holds string
		value               []string
	}{
		{"requestheader-username-headers", "X-Remote-User", "the user's name", s.UsernameHeaders},
		{"requestheader-group-headers", "X-Remote-Group", "the user's groups", s.GroupHeaders},
		{"requestheader-extra-headers-prefix", "X-Remote-Extra-", "what else is known of the user", s.ExtraHeaderPrefixes},
	} {
		if slices.ContainsFunc(flag.value, func(name string) bool { return strings.EqualFold(name, flag.header) }) {
			continue
		}
		whole := strings.Join(append(slices.Clone(flag.value), flag.header), ",")
		errs = append(errs, fmt.Errorf("--peer-ca-file needs %s in --%s: peers send %s there; set --%[2]s=%[4]s", flag.header, flag.name, flag.holds, whole))
	}
	return errs
}

func (s Server) validateAddress() []error {
	var errs []error
	if s.AdvertiseIP != "" {
		addr, err := netip.ParseAddr(s.AdvertiseIP)
		addr = addr.Unmap().WithZone("")
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("--peer-advertise-ip %q is no IP address", s.AdvertiseIP))
		case addr.IsUnspecified() || addr.IsMulticast():
			errs = append(errs, fmt.Errorf("--peer-advertise-ip %s is no address that a peer can dial", s.AdvertiseIP))
		}
	}
	if s.AdvertisePort != "" {
		if port, err := strconv.Atoi(s.AdvertisePort); err != nil || port < 1 || port > 65535 {
			errs = append(errs, fmt.Errorf("--peer-advertise-port %q is no port: it has to be a number from 1 to 65535", s.AdvertisePort))
		}
	}
	return errs
}

// checkFiles checks the files that the connections to peers are made of, by the
// rules of the transport itself.
func (s Server) checkFiles() []error {
	flags := map[transport.File]string{
		transport.FileCA:   "peer-ca-file",
		transport.FileCert: "proxy-client-cert-file",
		transport.FileKey:  "proxy-client-key-file",
	}
	config := transport.Config{CAFile: s.CAFile, CertFile: s.ProxyClientCertFile, KeyFile: s.ProxyClientKeyFile}
	var errs []error
	for _, trouble := range config.Check() {
		errs = append(errs, fmt.Errorf("--%s: %w", flags[trouble.File], trouble))
	}
	return errs
}

// Advertised returns the address that peers dial. Each half that is not set
// falls back on its own: the IP to the address that the server advertises to
// others (--advertise-address, else --bind-address, else that of the host's
// default interface: what a completed kube-apiserver configuration holds), the
// port to the secure port.
func (s Server) Advertised(advertiseAddress net.IP, securePort int) (ip, port string, err error) {
	ip, port = s.AdvertiseIP, s.AdvertisePort
	if ip == "" {
		if advertiseAddress == nil || advertiseAddress.IsUnspecified() {
			return "", "", errors.New("no address to advertise to peers: set --peer-advertise-ip or --advertise-address")
		}
		ip = advertiseAddress.String()
	}
	if port == "" {
		port = strconv.Itoa(securePort)
	}
	return ip, port, nil
}
