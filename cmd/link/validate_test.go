package link

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	peeroptions "peerproxy.internal/pkg/options"
	"peerproxy.internal/test/peertest"
)

// parse returns the options that a command line makes.
func parse(t *testing.T, args ...string) (options.CompletedOptions, peeroptions.Options) {
	t.Helper()
	var own peeroptions.Options
	stock := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	own.AddFlags(flags)
	for _, set := range stock.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(append(args, "--cert-dir="+t.TempDir())); err != nil {
		t.Fatal(err)
	}
	completed, err := stock.Complete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return completed, own
}

// A main that calls NewConfig and nothing else of this project is told what is
// wrong with its flags, by their names and all at once.
func TestNewConfigValidates(t *testing.T) {
	pki := peertest.NewPKI(t)
	client := pki.ProxyClient(t)
	ca := "--peer-ca-file=" + peertest.WriteFile(t, "ca.crt", pki.Cluster.PEM)
	cert := "--proxy-client-cert-file=" + peertest.WriteFile(t, "proxy.crt", client.Cert)
	key := "--proxy-client-key-file=" + peertest.WriteFile(t, "proxy.key", client.Key)
	peers := []string{ca, cert, key}
	headers := []string{"--requestheader-client-ca-file=x", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-"}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"a period", []string{"--peer-unknown-grace-period=1h"}, []string{"--peer-unknown-grace-period 1h0m0s is out of range"}},
		{"the server ID", []string{"--peer-server-id=Apiserver_X"}, []string{`--peer-server-id "Apiserver_X"`}},
		{"the IP", []string{"--peer-advertise-ip=0.0.0.0"}, []string{"--peer-advertise-ip 0.0.0.0"}},
		{"the port", append(peers, "--requestheader-client-ca-file=x", "--peer-advertise-port=https"), []string{`--peer-advertise-port "https" is no port`}},
		{"no CA for request headers", peers, []string{"--peer-ca-file needs --requestheader-client-ca-file"}},
		{"no headers that name a user", append(peers, "--requestheader-client-ca-file=x"),
			[]string{"set --requestheader-username-headers=X-Remote-User", "set --requestheader-group-headers=X-Remote-Group", "set --requestheader-extra-headers-prefix=X-Remote-Extra-"}},
		{"another header for names", slices.Concat(peers, headers, []string{"--requestheader-username-headers=X-Corp-User"}), []string{"set --requestheader-username-headers=X-Corp-User,X-Remote-User"}},
		{"no client certificate", []string{ca}, []string{"needs --proxy-client-cert-file", "needs --proxy-client-key-file", "needs --requestheader-client-ca-file"}},
		{"a file", append(peers, "--peer-ca-file=none"), []string{"--peer-ca-file: "}},
		{"several at once", []string{"--peer-server-id=Apiserver_X", "--peer-advertise-ip=0.0.0.0", "--peer-unknown-grace-period=1h"},
			[]string{"--peer-server-id", "--peer-advertise-ip", "--peer-unknown-grace-period"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts, own := parse(t, tc.args...)
			_, err := NewConfig(opts, own)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if also := utilerrors.NewAggregate(Validate(opts, own)); also == nil || also.Error() != err.Error() {
				t.Errorf("Validate says: %v, NewConfig: %v", also, err)
			}
		})
	}
}

func TestValidateFindsNothing(t *testing.T) {
	opts, own := parse(t, "--peer-server-id=apiserver-a", "--peer-unknown-grace-period=10s", "--peer-advertise-ip=10.0.0.1")
	if errs := Validate(opts, own); len(errs) > 0 {
		t.Error(errs)
	}
	// No flags of the proxy were added: its defaults.
	if errs := Validate(opts, peeroptions.Options{}); len(errs) > 0 {
		t.Error(errs)
	}
}

// The flags that the README calls required are enough, whatever else there is.
func TestTheRequiredFlagsAreEnough(t *testing.T) {
	pki := peertest.NewPKI(t)
	client := pki.ProxyClient(t)
	opts, own := parse(t,
		"--peer-ca-file="+peertest.WriteFile(t, "ca.crt", pki.Cluster.PEM),
		"--proxy-client-cert-file="+peertest.WriteFile(t, "proxy.crt", client.Cert),
		"--proxy-client-key-file="+peertest.WriteFile(t, "proxy.key", client.Key),
		"--requestheader-client-ca-file="+peertest.WriteFile(t, "front.crt", pki.FrontProxy.PEM),
		"--requestheader-username-headers=X-Login,x-remote-user",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-")
	if errs := Validate(opts, own); len(errs) > 0 {
		t.Error(errs)
	}
}

// What has no effect without the gate is reported once, by the server's own
// validation; the proxy's own flags are checked all the same.
func TestValidateWithoutTheGate(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.UnknownVersionInteroperabilityProxy, false)
	opts, own := parse(t, "--peer-ca-file=none", "--peer-advertise-ip=0.0.0.0", "--peer-server-id=Apiserver_X")
	count := 0
	for _, err := range append(opts.Validate(), Validate(opts, own)...) {
		for _, flag := range []string{"peer-ca-file", "peer-advertise-ip", "peer-server-id"} {
			if strings.Contains(err.Error(), flag) {
				count++
			}
		}
	}
	if count != 3 {
		t.Errorf("%d errors name one of three flags: %v, %v", count, opts.Validate(), Validate(opts, own))
	}
}
