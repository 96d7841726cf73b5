package options

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"peerproxy.internal/pkg/peerproxy"
	"peerproxy.internal/test/peertest"
)

func TestServerFlags(t *testing.T) {
	pki := peertest.NewPKI(t)
	client, other := pki.ProxyClient(t), pki.ProxyClient(t)
	file := func(content []byte) string { return peertest.WriteFile(t, "file", content) }
	ca := file(pki.Cluster.PEM)
	whole := Server{
		Gate: true, CAFile: ca, RequestHeaderCAFile: "r",
		ProxyClientCertFile: file(client.Cert), ProxyClientKeyFile: file(client.Key),
		UsernameHeaders: []string{"X-Remote-User"}, GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, tc := range []struct {
		name   string
		change func(*Server)
		on     bool
		errs   []string
	}{
		{"everything is there", func(*Server) {}, true, nil},
		{"the gate alone is stock's default", func(s *Server) { *s = Server{Gate: true} }, false, nil},
		{"nothing at all", func(s *Server) { *s = Server{} }, false, nil},
		{"flags without the gate", func(s *Server) { *s = Server{CAFile: ca, AdvertiseIP: "192.0.2.1", AdvertisePort: "1"} }, false, []string{"--peer-ca-file", "--peer-advertise-ip", "--peer-advertise-port"}},
		{"no client certificate", func(s *Server) { s.ProxyClientCertFile = "" }, true, []string{"--proxy-client-cert-file"}},
		{"no client key", func(s *Server) { s.ProxyClientKeyFile = "" }, true, []string{"--proxy-client-key-file"}},
		{"no request header CA", func(s *Server) { s.RequestHeaderCAFile = "" }, true, []string{"--requestheader-client-ca-file"}},
		{"no headers that name a user", func(s *Server) { s.UsernameHeaders, s.GroupHeaders, s.ExtraHeaderPrefixes = nil, nil, nil }, true, []string{
			"X-Remote-User in --requestheader-username-headers: peers send the user's name there; set --requestheader-username-headers=X-Remote-User",
			"X-Remote-Group in --requestheader-group-headers: peers send the user's groups there; set --requestheader-group-headers=X-Remote-Group",
			"X-Remote-Extra- in --requestheader-extra-headers-prefix: peers send what else is known of the user there; set --requestheader-extra-headers-prefix=X-Remote-Extra-",
		}},
		{"another header alone", func(s *Server) { s.UsernameHeaders = []string{"X-Corp-User"} }, true, []string{"set --requestheader-username-headers=X-Corp-User,X-Remote-User"}},
		{"a header with white space, which is another", func(s *Server) { s.GroupHeaders = []string{" X-Remote-Group"} }, true, []string{"--requestheader-group-headers"}},
		{"headers in capitals, among others", func(s *Server) {
			s.UsernameHeaders, s.GroupHeaders, s.ExtraHeaderPrefixes = []string{"X-Corp-User", "x-remote-user"}, []string{"X-REMOTE-GROUP"}, []string{"x-remote-extra-", "X-Corp-"}
		}, true, nil},
		{"a prefix that holds the usual one, and more", func(s *Server) { s.ExtraHeaderPrefixes = []string{"X-Remote-"} }, true, []string{"--requestheader-extra-headers-prefix"}},
		{"no such CA bundle", func(s *Server) { s.CAFile = none }, true, []string{"--peer-ca-file: CA bundle \"" + none + "\": open"}},
		{"no such client certificate", func(s *Server) { s.ProxyClientCertFile = none }, true, []string{"--proxy-client-cert-file: client certificate \"" + none + "\": open"}},
		{"no such client key", func(s *Server) { s.ProxyClientKeyFile = none }, true, []string{"--proxy-client-key-file: client key \"" + none + "\": open"}},
		{"the client key is another's", func(s *Server) { s.ProxyClientKeyFile = file(other.Key) }, true, []string{"--proxy-client-key-file"}},
		{"a CA bundle and a client certificate that are none", func(s *Server) { s.CAFile, s.ProxyClientCertFile = s.ProxyClientKeyFile, s.ProxyClientKeyFile }, true, []string{"--peer-ca-file", "--proxy-client-cert-file"}},
		{"a CA bundle that is half written", func(s *Server) { s.CAFile = file(append(pki.FrontProxy.PEM, pki.Cluster.PEM[:100]...)) }, true, []string{"cut off"}},
		{"an empty CA bundle", func(s *Server) { s.CAFile = file(nil) }, true, []string{"no certificate"}},
		{"a CA bundle with something else in it", func(s *Server) { s.CAFile = file([]byte("-----BEGIN KEY-----\nAA==\n-----END KEY-----\n")) }, true, []string{"no certificate"}},
		{"a CA bundle with a broken certificate", func(s *Server) {
			s.CAFile = file([]byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"))
		}, true, []string{"can't be read"}},
		{"IPv6", func(s *Server) { s.AdvertiseIP = "2001:db8::1" }, true, nil},
		{"an address that is none", func(s *Server) { s.AdvertiseIP = "[::1]" }, true, []string{"no IP address"}},
		{"an unspecified address", func(s *Server) { s.AdvertiseIP = "0.0.0.0" }, true, []string{"can dial"}},
		{"an unspecified address of a zone", func(s *Server) { s.AdvertiseIP = "::%lo" }, true, []string{"can dial"}},
		{"an unspecified address within IPv6", func(s *Server) { s.AdvertiseIP = "::ffff:0.0.0.0" }, true, []string{"can dial"}},
		{"a port that is none", func(s *Server) { s.AdvertisePort = "https" }, true, []string{"no port"}},
		{"port 0", func(s *Server) { s.AdvertisePort = "0" }, true, []string{"no port"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := whole
			tc.change(&s)
			if got := s.On(); got != tc.on {
				t.Errorf("on %t, want %t", got, tc.on)
			}
			errs := s.Validate()
			if len(errs) != len(tc.errs) {
				t.Fatalf("got %v, want errors about %v", errs, tc.errs)
			}
			for i, err := range errs {
				if !strings.Contains(err.Error(), tc.errs[i]) {
					t.Errorf("got %q, want something about %s", err, tc.errs[i])
				}
			}
		})
	}
}

func TestEachHalfOfTheAdvertisedAddressFallsBackOnItsOwn(t *testing.T) {
	v4, v6 := net.ParseIP("192.0.2.1"), net.ParseIP("2001:db8::1")
	for _, tc := range []struct {
		name       string
		server     Server
		advertise  net.IP
		ip, port   string
		wantsError bool
	}{
		{"neither is set", Server{}, v4, "192.0.2.1", "6443", false},
		{"the IP alone", Server{AdvertiseIP: "192.0.2.9"}, v4, "192.0.2.9", "6443", false},
		{"the port alone", Server{AdvertisePort: "443"}, v4, "192.0.2.1", "443", false},
		{"both", Server{AdvertiseIP: "192.0.2.9", AdvertisePort: "443"}, nil, "192.0.2.9", "443", false},
		{"IPv6", Server{AdvertisePort: "443"}, v6, "2001:db8::1", "443", false},
		{"nothing to fall back to", Server{}, nil, "", "", true},
		{"an unspecified address to fall back to", Server{}, net.IPv6zero, "", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ip, port, err := tc.server.Advertised(tc.advertise, 6443)
			if ip != tc.ip || port != tc.port || (err != nil) != tc.wantsError {
				t.Errorf("got %q, %q, %v", ip, port, err)
			}
		})
	}
}

func TestServerID(t *testing.T) {
	for id, ok := range map[string]bool{"": true, "apiserver-new": true, "Apiserver": false, "a_b": false, strings.Repeat("a", 64): false} {
		if got := len((&Options{ServerID: id}).Validate()) == 0; got != ok {
			t.Errorf("%q: valid %t, want %t", id, got, ok)
		}
	}
}

func TestPeriodsHaveDefaultsAndLimits(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want []string // the flags complained of
	}{
		{},
		{args: []string{"--peer-starting-grace-period=5m", "--peer-unknown-grace-period=1s", "--peer-departed-grace-period=24h"}},
		{args: []string{"--peer-starting-grace-period=0"}, want: []string{"--peer-starting-grace-period"}},
		{
			args: []string{"--peer-starting-grace-period=0", "--peer-unknown-grace-period=0", "--peer-departed-grace-period=0"},
			want: []string{"--peer-starting-grace-period", "--peer-unknown-grace-period", "--peer-departed-grace-period"},
		},
		{args: []string{"--peer-unknown-grace-period=1h", "--peer-departed-grace-period=-1s"}, want: []string{"--peer-unknown-grace-period", "--peer-departed-grace-period"}},
	} {
		var o Options
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(fs)
		if err := fs.Parse(tc.args); err != nil {
			t.Fatal(err)
		}
		errs := o.Validate()
		if len(errs) != len(tc.want) {
			t.Errorf("%v: got %v, want complaints of %v", tc.args, errs, tc.want)
			continue
		}
		for i, flag := range tc.want {
			if !strings.Contains(errs[i].Error(), flag) {
				t.Errorf("%v: got %v, want a complaint of %s", tc.args, errs[i], flag)
			}
		}
	}
}

func TestPeriodsWithoutFlags(t *testing.T) {
	for _, tc := range []struct {
		periods peerproxy.Periods
		errors  int
	}{
		{peerproxy.Periods{}, 0},
		{peerproxy.Periods{Unknown: time.Minute}, 0},
		{peerproxy.Periods{Unknown: time.Hour, Departed: -time.Second}, 2},
	} {
		if errs := (&Options{Periods: tc.periods}).Validate(); len(errs) != tc.errors {
			t.Errorf("%+v: %v", tc.periods, errs)
		}
	}
}
