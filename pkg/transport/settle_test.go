package transport_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/transport"
	"peerproxy.internal/test/peertest"
)

// inTime is a transport in a bubble of testing/synctest, whose peer answers with
// the name in the client's certificate. From one call of shown to the next the
// files are looked at once.
func inTime(t *testing.T, do func(t *testing.T, pki *peertest.PKI, config transport.Config, shown func() string)) {
	t.Helper()
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	peer := (&peertest.Peer{Handler: namesClient}).Start(t, pki)
	peer.Stop()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		defer func() { _ = l.Close() }()
		peer.ServeAlso(l)
		defer peer.Stop()
		config.Dial = l.dial
		tr, _ := runInBubble(t, config)
		time.Sleep(5 * time.Second) // to be between two looks
		do(t, pki, config, func() string {
			defer time.Sleep(10 * time.Second)
			return get(t, tr, "peer:6443")
		})
	})
}

func TestHalfWrittenFilesKeepTheOld(t *testing.T) {
	inTime(t, func(t *testing.T, pki *peertest.PKI, config transport.Config, shown func() string) {
		next := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: "next"})
		steps := []struct {
			what  string
			write func()
			want  string
		}{
			{"nothing", func() {}, "front-proxy-client"},
			{"half of the certificate", func() { write(t, config.CertFile, next.Cert[:len(next.Cert)/2]) }, "front-proxy-client"},
			{"the certificate without its key", func() { write(t, config.CertFile, next.Cert) }, "front-proxy-client"},
			{"no key", func() { _ = os.Remove(config.KeyFile) }, "front-proxy-client"},
			{"half of the key", func() { write(t, config.KeyFile, next.Key[:len(next.Key)/2]) }, "front-proxy-client"},
			{"the key", func() { write(t, config.KeyFile, next.Key) }, "next"},
		}
		for _, step := range steps {
			step.write()
			shown()
			shown()
			if got := shown(); got != step.want {
				t.Errorf("after %s was written: %q is shown, want %q", step.what, got, step.want)
			}
		}
	})
}

// A file that is written in place is seen with any part of its content.
func TestAChangeIsUsedWhenItWasSeenTwice(t *testing.T) {
	inTime(t, func(t *testing.T, pki *peertest.PKI, config transport.Config, shown func() string) {
		var got []string
		for _, name := range []string{"a", "b", "b", "b"} {
			if len(got) < 2 {
				next := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: name})
				write(t, config.CertFile, next.Cert)
				write(t, config.KeyFile, next.Key)
			}
			got = append(got, shown())
		}
		if want := []string{"front-proxy-client", "front-proxy-client", "front-proxy-client", "b"}; !slices.Equal(got, want) {
			t.Errorf("shown were %q, want %q", got, want)
		}
	})
}

// As an editor, or anyone who is careful, replaces a file.
func TestAtomicallyRenamedFilesAreSeen(t *testing.T) {
	inTime(t, func(t *testing.T, pki *peertest.PKI, config transport.Config, shown func() string) {
		next := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: "next"})
		for path, content := range map[string][]byte{config.CertFile: next.Cert, config.KeyFile: next.Key} {
			beside := filepath.Join(filepath.Dir(path), "new")
			write(t, beside, content)
			if err := os.Rename(beside, path); err != nil {
				t.Fatal(err)
			}
		}
		shown()
		shown()
		if got := shown(); got != "next" {
			t.Errorf("%q is shown, want next", got)
		}
	})
}

func TestCertificatesThatAreNotValidAreLoggedOnceEach(t *testing.T) {
	pki := peertest.NewPKI(t)
	config := configFor(t, pki)
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	// In the bubble it is the year 2000.
	pair := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: "over", NotBefore: year(1998), NotAfter: year(1999)})
	write(t, config.CertFile, pair.Cert)
	write(t, config.KeyFile, pair.Key)
	future := pki.Cluster.Issue(t, peertest.Cert{CommonName: "to-come", NotBefore: year(2001), NotAfter: year(2002)})
	write(t, config.CAFile, append(slices.Clone(pki.Cluster.PEM), future.Cert...))
	synctest.Test(t, func(t *testing.T) {
		_, log := runInBubble(t, config)
		time.Sleep(time.Minute)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("logged: %s", log.String())
		}
		for i, want := range []string{"has expired", "is not valid yet"} {
			file := []string{config.CertFile, config.CAFile}[i]
			if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], file) {
				t.Errorf("logged %s, want that a certificate of %s %s", lines[i], file, want)
			}
		}
	})
}

// expirations are what the metric tells, by its label.
func expirations(t *testing.T) map[string]int64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int64{}
	for _, family := range families {
		if family.GetName() != "apiserver_peer_proxy_certificate_expiration_timestamp_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			told[metric.GetLabel()[0].GetValue()] = int64(metric.GetGauge().GetValue())
		}
	}
	return told
}

func TestExpiryIsAMetricThatFollowsTheFiles(t *testing.T) {
	metrics.Register()
	client, ca := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	inTime(t, func(t *testing.T, pki *peertest.PKI, config transport.Config, shown func() string) {
		synctest.Wait()
		before := expirations(t)
		next := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: "next", NotAfter: client})
		write(t, config.CertFile, next.Cert)
		write(t, config.KeyFile, next.Key)
		soon := pki.FrontProxy.Issue(t, peertest.Cert{CommonName: "soon", NotAfter: ca})
		write(t, config.CAFile, slices.Concat(pki.Cluster.PEM, soon.Cert))
		shown()
		shown()
		shown()
		after := expirations(t)
		if want := map[string]int64{"client": client.Unix(), "ca": ca.Unix()}; !maps.Equal(after, want) {
			t.Errorf("got %v, want %v", after, want)
		}
		if len(before) != 2 || maps.Equal(before, after) {
			t.Errorf("before the change: %v", before)
		}
	})
}
