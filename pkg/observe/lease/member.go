package lease

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Member is what the leases tell of one apiserver.
type Member struct {
	ServerID string
	// Identity is nil while the server has no identity lease.
	Identity *Identity
	// Record is nil while the server has no endpoint record.
	Record *Record
}

// Starts reports whether the server has an early record: it is not ready yet.
func (m Member) Starts() bool { return m.Record != nil && m.Record.Starting }

// Identity is an identity lease.
type Identity struct {
	// Incarnation is the lease's holder identity, new at each start of the
	// server.
	Incarnation string
	// Renewed is when the holder says that it renewed the lease, by its clock.
	Renewed time.Time
	// Expires is when the lease ends unless it is renewed, by this server's own
	// clock: its duration after this server saw the last renewal.
	Expires time.Time
}

// Record is an endpoint record.
type Record struct {
	// Address is the host:port at which the server takes requests of its peers.
	Address string
	// Incarnation is that of the server that wrote the record last, empty if it did
	// not say so: stock servers don't.
	Incarnation string
	// Starting is whether the server answers discovery and is not ready yet. It
	// has an incarnation then.
	Starting bool
	// Generation changes with each writing, every 10 s. That alone is no news.
	Generation int64
}

// same reports whether the records say the same, whenever they were written.
func (r Record) same(other Record) bool {
	r.Generation = other.Generation
	return r == other
}

// serverIDLabel labels a record with its server's ID; stock records have no
// metadata.name (k8s.io/apiserver/pkg/reconcilers).
const serverIDLabel = "apiserverIdentity"

// portName is the name of a record's port, as stock servers write it.
const portName = "https"

const (
	// incarnationAnnotation names the server that wrote the record, when that had
	// the generation in generationAnnotation: a stock server that writes it after
	// that leaves both there.
	incarnationAnnotation = "peerproxy.internal/incarnation"
	generationAnnotation  = "peerproxy.internal/incarnation-generation"
	// startingAddressAnnotation is the address in an early record, that of a server
	// which is not ready yet. It has no subset: to a stock server it is a record
	// without an address, which it passes over. (An address that is "not ready" a
	// stock server would read as ":6443", its own.)
	startingAddressAnnotation = "peerproxy.internal/starting-address"
)

// recordOf reads a record as it is stored. The server ID is returned even
// with an error, if the record has one.
func recordOf(stored *corev1.Endpoints) (serverID string, record Record, err error) {
	serverID = stored.Labels[serverIDLabel]
	if serverID == "" {
		return "", Record{}, fmt.Errorf("the record has no label %s", serverIDLabel)
	}
	if len(stored.Subsets) == 0 {
		record, err := earlyRecordOf(stored)
		record.Generation = stored.Generation
		return serverID, record, err
	}
	if len(stored.Subsets[0].Addresses) == 0 || len(stored.Subsets[0].Ports) == 0 {
		return serverID, Record{}, errNoAddress
	}
	ip, port := stored.Subsets[0].Addresses[0].IP, stored.Subsets[0].Ports[0].Port
	if err := checkAddress(ip, port); err != nil {
		return serverID, Record{}, err
	}
	return serverID, Record{Address: hostPort(ip, port), Incarnation: writerOf(stored), Generation: stored.Generation}, nil
}

var errNoAddress = errors.New("the record has no address")

// writerOf is the incarnation of the server that wrote a record, if it said so.
func writerOf(stored *corev1.Endpoints) string {
	if stored.Annotations[generationAnnotation] != strconv.FormatInt(stored.Generation, 10) {
		return ""
	}
	return stored.Annotations[incarnationAnnotation]
}

func earlyRecordOf(stored *corev1.Endpoints) (Record, error) {
	address, incarnation := stored.Annotations[startingAddressAnnotation], writerOf(stored)
	if address == "" || incarnation == "" {
		return Record{}, errNoAddress
	}
	ip, portText, err := net.SplitHostPort(address)
	if err != nil {
		return Record{}, fmt.Errorf("the address of a server that starts: %w", err)
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return Record{}, fmt.Errorf("the address of a server that starts: %w", err)
	}
	if err := checkAddress(ip, int32(port)); err != nil {
		return Record{}, err
	}
	return Record{Address: hostPort(ip, int32(port)), Incarnation: incarnation, Starting: true}, nil
}

func hostPort(ip string, port int32) string { return net.JoinHostPort(ip, strconv.Itoa(int(port))) }

// checkAddress refuses what can't be another server's address: a dial to an
// unspecified address, in whatever form, reaches the own host.
func checkAddress(ip string, port int32) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return fmt.Errorf("address %q is no IP address", ip)
	}
	if addr = addr.Unmap().WithZone(""); addr.IsUnspecified() || addr.IsMulticast() {
		return fmt.Errorf("address %q can't be dialled", ip)
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("port %d is not in 1-65535", port)
	}
	return nil
}

// longestLease bounds the duration that a lease claims: stock servers write an
// hour.
const longestLease = time.Hour

// identityOf reads an identity lease whose last renewal this server saw at the
// given time. The lease's own renewTime is another clock's, or anything at all:
// whoever may write leases could make a member live for ever.
func identityOf(lease *coordinationv1.Lease, seen time.Time) (Identity, error) {
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return Identity{}, fmt.Errorf("the lease has no holderIdentity")
	}
	if lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return Identity{}, fmt.Errorf("the lease has no renewTime or no leaseDurationSeconds")
	}
	duration := min(time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second, longestLease)
	return Identity{Incarnation: *lease.Spec.HolderIdentity, Renewed: lease.Spec.RenewTime.Time, Expires: seen.Add(duration)}, nil
}
