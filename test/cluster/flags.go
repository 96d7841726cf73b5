package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// loopback is where everything listens.
const loopback = "127.0.0.1"

// The service network and, its first address, that of the service kubernetes.
const serviceNetwork, serviceIP = "10.0.0.0/24", "10.0.0.1"

// clientName is the front proxy's, and so every server's as a peer.
const clientName = "front-proxy-client"

// args are the server's command line. The caller holds mu.
func (s *Server) args() []string {
	config := &s.config
	flags := s.cluster.flags()
	maps.Copy(flags, s.flags(config))
	if !config.PeersOff {
		maps.Copy(flags, s.peerFlags(config))
	}
	maps.Copy(flags, config.Flags)
	for _, name := range config.Without {
		delete(flags, name)
	}
	var args []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		args = append(args, "--"+name+"="+flags[name])
	}
	return args
}

// flags are those that all servers of the cluster have in common.
func (c *Cluster) flags() map[string]string {
	return map[string]string{
		"etcd-servers":                     c.etcdURL,
		"service-cluster-ip-range":         serviceNetwork,
		"authorization-mode":               "RBAC",
		"allow-privileged":                 "true",
		"client-ca-file":                   c.CA.File(),
		"service-account-issuer":           "https://kubernetes.default.svc",
		"service-account-key-file":         c.serviceAccountKey,
		"service-account-signing-key-file": c.serviceAccountKey,
		// Who may speak for a user, and how. UIDs are read only where named.
		"requestheader-client-ca-file":       c.FrontProxyCA.File(),
		"requestheader-allowed-names":        clientName,
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-uid-headers":          "X-Remote-Uid",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"proxy-client-cert-file":             c.frontProxy.CertFile,
		"proxy-client-key-file":              c.frontProxy.KeyFile,
		// The Endpoints of the service kubernetes may not name loopback addresses.
		"endpoint-reconciler-type": "none",
		"shutdown-delay-duration":  "0s",
	}
}

func (s *Server) flags(config *ServerConfig) map[string]string {
	flags := map[string]string{
		"bind-address":         config.IP,
		"advertise-address":    config.IP,
		"secure-port":          strconv.Itoa(s.port),
		"tls-cert-file":        s.serving.CertFile,
		"tls-private-key-file": s.serving.KeyFile,
		"v":                    strconv.Itoa(config.Verbosity),
	}
	if config.EmulatedVersion != "" {
		flags["emulated-version"] = config.EmulatedVersion
	}
	if config.RuntimeConfig != "" {
		flags["runtime-config"] = config.RuntimeConfig
	}
	if config.Audit {
		flags["audit-policy-file"] = s.cluster.auditPolicy
		flags["audit-log-path"] = s.AuditLog()
	}
	return flags
}

// peerFlags turn the peer proxy on. A peer's serving certificate is of the
// cluster's CA.
func (s *Server) peerFlags(config *ServerConfig) map[string]string {
	return map[string]string{
		"feature-gates":       "UnknownVersionInteroperabilityProxy=true",
		"peer-ca-file":        s.cluster.CA.File(),
		"peer-advertise-ip":   config.IP,
		"peer-advertise-port": strconv.Itoa(s.port),
	}
}

// auditPolicy logs each request once, when it has ended.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
`

func writeAuditPolicy(dir string) (string, error) {
	file := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(file, []byte(auditPolicy), 0o644); err != nil {
		return "", fmt.Errorf("writing the audit policy: %w", err)
	}
	return file, nil
}

// takesServerID reports, by the help that it prints, whether a kube-apiserver
// takes its server ID as a flag.
func takesServerID(help string) bool { return strings.Contains(help, "--"+serverIDFlag) }

// serverIDFlag is the flag of this project's binaries.
const serverIDFlag = "peer-server-id"
