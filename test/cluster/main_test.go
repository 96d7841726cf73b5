package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
)

// The test binary plays other programs where this variable says which.
const roleVariable = "CLUSTER_TEST_ROLE"

const (
	roleOurs   = "ours"   // a kube-apiserver of this project
	roleStock  = "stock"  // one that does not take its server ID as a flag
	roleParent = "parent" // starts a process and is killed
	// roleControllers is a kube-controller-manager.
	roleControllers = "controllers"
)

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		goleak.VerifyTestMain(m)
	case roleParent:
		parent(os.Args[1], os.Args[2:])
	case roleControllers:
		controllers(os.Args[1:])
	default:
		apiserver(role, os.Args[1:])
	}
}

// apiserver plays a kube-apiserver; flags that begin with fake say how.
func apiserver(role string, args []string) {
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	flags.ParseErrorsWhitelist.UnknownFlags = true
	help := flags.Bool("help", false, "")
	ip := flags.String("bind-address", "", "")
	port := flags.String("secure-port", "", "")
	cert := flags.String("tls-cert-file", "", "")
	key := flags.String("tls-private-key-file", "", "")
	clientCA := flags.String("client-ca-file", "", "")
	fail := flags.String("fake-fail", "", "end with this message")
	deaf := flags.Bool("fake-deaf", false, "ignore SIGTERM")
	unready := flags.Int("fake-unready", 0, "how often /readyz fails")
	if err := flags.Parse(args); err != nil {
		die(err)
	}
	if *help {
		fmt.Println("--etcd-servers strings")
		if role == roleOurs {
			fmt.Println("--peer-server-id string")
			fmt.Println("--emulated-version strings  Options are: kube=1.34..1.37(default:1.37)")
		}
		return
	}
	if *fail != "" {
		fmt.Fprintln(os.Stderr, "I0101 noise")
		die(fmt.Errorf("%s", *fail))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if *deaf {
		signal.Ignore(syscall.SIGTERM)
	}
	l, err := listen(net.JoinHostPort(*ip, *port), *cert, *key, *clientCA)
	if err != nil {
		die(err)
	}
	go http.Serve(l, apiHandler(*unready))
	<-ctx.Done()
}

func die(err error) {
	fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(1)
}

func listen(address, cert, key, clientCA string) (net.Listener, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	bundle, err := os.ReadFile(clientCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return tls.Listen("tcp", address, &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
	})
}

// identity is what the fake apiserver answers at /identity.
type identity struct {
	User, Host string
	Groups     []string
	Args       []string
}

func apiHandler(unready int) http.Handler {
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= int64(unready) {
			http.Error(w, "[+]ping ok\n[-]poststarthook/slow failed\nreadyz check failed", http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"gitVersion": "v1.37.2", "major": "1", "minor": "37"}`)
	})
	mux.HandleFunc("/identity", func(w http.ResponseWriter, r *http.Request) {
		host, _ := os.Hostname()
		subject := r.TLS.PeerCertificates[0].Subject
		json.NewEncoder(w).Encode(identity{
			User: subject.CommonName, Groups: subject.Organization, Host: host, Args: os.Args[1:],
		})
	})
	return mux
}

// parent starts a fake apiserver, tells its process ID and waits to be killed.
func parent(log string, args []string) {
	os.Setenv(roleVariable, roleOurs)
	p, err := startProcess(log, "", os.Args[0], args...)
	if err != nil {
		die(err)
	}
	fmt.Println(p.pid)
	select {}
}

// controllers plays a kube-controller-manager: it tells its flags, and ends at
// once if one of them is fake-fail.
func controllers(args []string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for _, arg := range args {
		fmt.Println(arg)
		if message, fails := strings.CutPrefix(arg, "--fake-fail="); fails {
			die(fmt.Errorf("%s", message))
		}
	}
	fmt.Println("all told")
	<-ctx.Done()
}

// play makes the test binary play a role in every process that the test starts,
// and returns its path.
func play(t *testing.T, role string) string {
	t.Helper()
	t.Setenv(roleVariable, role)
	// The race detector delays the end of a process by a second otherwise.
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newCluster is a cluster without etcd, for fake apiservers.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{Dir: t.TempDir(), keepDir: true, etcdURL: "http://127.0.0.1:1", progressed: t.Logf}
	if err := c.makePKI(c.Dir + "/pki"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newServer(t *testing.T, c *Cluster, config ServerConfig) *Server {
	t.Helper()
	s, err := c.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}
