package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Reason says why no connection to a peer came about. Its text is a metric's
// label.
type Reason string

// The reasons of a [ConnectError].
const (
	// ReasonDial: the address could not be reached.
	ReasonDial Reason = "dial"
	// ReasonTimeout: dialling took two seconds, or the handshake three.
	ReasonTimeout Reason = "connect_timeout"
	// ReasonUnknownAuthority: the peer's certificate is of another CA.
	ReasonUnknownAuthority Reason = "unknown_authority"
	// ReasonNameMismatch: the peer's certificate lacks the server name.
	ReasonNameMismatch Reason = "name_mismatch"
	// ReasonExpired: the peer's certificate, or its CA's, has expired.
	ReasonExpired Reason = "expired"
	// ReasonNotYetValid: the peer's certificate, or its CA's, is not valid yet.
	ReasonNotYetValid Reason = "not_yet_valid"
	// ReasonClientCertificate: the peer refused our certificate while the
	// connection was set up. A kube-apiserver does not do that, it answers 401;
	// something in front of it may.
	ReasonClientCertificate Reason = "client_certificate"
	// ReasonUnauthorized: the peer does not take this server for one, and
	// answers 401.
	ReasonUnauthorized Reason = "unauthorized"
	// ReasonSelf: the address is this very server's, or the connection led back to
	// it, which has refused the request.
	ReasonSelf Reason = "self"
	// ReasonAnotherServer: another server has answered than the one that was asked.
	ReasonAnotherServer Reason = "another_server"
	// ReasonTLS: any other failure of the handshake.
	ReasonTLS Reason = "tls"
	// ReasonNotSent: the connection broke before the request's headers were
	// written to it.
	ReasonNotSent Reason = "not_sent"
)

// remedies say for each reason that is a misconfiguration what is wrong, and what
// to do.
var remedies = map[Reason]string{
	ReasonUnknownAuthority: "the peer's serving certificate is of a CA that this server does not know: " +
		"put that CA into --peer-ca-file, or give the peer a certificate of one that is there",
	ReasonNameMismatch: "the peer's serving certificate lacks the name " + DefaultServerName + ": " +
		"issue one that has it among its DNS names",
	ReasonExpired: "the peer's serving certificate, or its CA's in --peer-ca-file, has expired: " +
		"renew it, or correct this server's clock",
	ReasonNotYetValid: "the peer's serving certificate, or its CA's in --peer-ca-file, is not valid yet: " +
		"correct the clock of this server, or that of the one who issued it",
	ReasonClientCertificate: "the peer, or what stands before it, refused the certificate in --proxy-client-cert-file: " +
		"it may have expired, or be of a CA that is not known there",
	ReasonUnauthorized: "the peer does not accept the certificate in --proxy-client-cert-file: " +
		"there its CA has to be in --requestheader-client-ca-file, its name in --requestheader-allowed-names, " +
		"X-Remote-User in --requestheader-username-headers, and the clock has to be right",
	ReasonSelf: "the peer's address leads back to this server: " +
		"set --peer-advertise-ip on each server to an address of its own, not to that of a load balancer",
	ReasonAnotherServer: "another server answers at the peer's address: " +
		"set --peer-advertise-ip on each server to an address of its own, not to that of a load balancer; " +
		"where a server has taken over the address of one that is gone, this ends with that one's record",
}

// Remedy returns, for a reason that is a misconfiguration, what is wrong and what
// to do, and "" for any other.
func (r Reason) Remedy() string { return remedies[r] }

// ConnectError means that no usable connection to the peer came about, so that
// nothing of the request left this server, or nothing that the peer could read or
// would execute.
type ConnectError struct {
	Reason Reason
	Err    error
}

func (e *ConnectError) Error() string {
	if remedy := e.Reason.Remedy(); remedy != "" {
		return fmt.Sprintf("no usable connection (%s): %s: %v", e.Reason, remedy, e.Err)
	}
	return fmt.Sprintf("no usable connection (%s): %v", e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// RefusedError means that the peer gave the request back without executing it,
// as HTTP/2 lets it, and did so again when the request was sent once more.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return fmt.Sprintf("the peer refused the request: %v", e.Err) }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// UnsendableError means that the request itself can't be written: a header that
// is none, or more of them than the peer takes. No other connection would help,
// and nothing left this server.
type UnsendableError struct{ Err error }

func (e *UnsendableError) Error() string { return fmt.Sprintf("the request can't be sent: %v", e.Err) }

// Unwrap returns the cause.
func (e *UnsendableError) Unwrap() error { return e.Err }

// streamError has the shape of the HTTP/2 error that net/http does not export;
// its As method fills any struct of this shape.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return fmt.Sprintf("stream error %d", e.Code) }

// refusedStream is REFUSED_STREAM: the request was not processed at all.
//
// Source: RFC 9113, sections 7 and 8.7.
const refusedStream = 7

// classify turns an error of net/http into one that says whether the request
// may have been executed.
func classify(ctx context.Context, sent *progress, err error) error {
	var connect *ConnectError
	var stream streamError
	switch {
	case errors.As(err, &connect):
		return connect
	case refusesCertificate(err):
		// In TLS 1.3 the client's side of the handshake is over before the
		// server has looked at its certificate: a refusal comes with the first
		// read. No request was looked at either.
		return &ConnectError{Reason: ReasonClientCertificate, Err: err}
	case errors.As(err, &stream) && stream.Code == refusedStream:
		return &RefusedError{Err: err}
	case errors.Is(context.Cause(ctx), errResent):
		return &RefusedError{Err: errResent}
	case ctx.Err() != nil || sent.headers.Load():
		return err
	case !sent.wanted.Load() || saysUnsendable(err):
		return &UnsendableError{Err: err}
	}
	return &ConnectError{Reason: ReasonNotSent, Err: err}
}

// unsendable is how those errors begin that net/http finds in a request when it
// writes it to a connection. They have no type.
//
// Source: net/http/internal/httpcommon, and golang.org/x/net/idna for the Host.
var unsendable = []string{"invalid ", "idna: ", "request header list larger than "}

func saysUnsendable(err error) bool {
	text := strings.TrimPrefix(err.Error(), "http2: ")
	return slices.ContainsFunc(unsendable, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

func dialReason(err error) Reason {
	if isTimeout(err) {
		return ReasonTimeout
	}
	return ReasonDial
}

func (t *Transport) handshakeReason(err error) Reason {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return ReasonUnknownAuthority
	case errors.As(err, &name):
		return ReasonNameMismatch
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		if t.config.Clock.Now().After(invalid.Cert.NotAfter) {
			return ReasonExpired
		}
		return ReasonNotYetValid
	case refusesCertificate(err):
		return ReasonClientCertificate
	case isTimeout(err):
		return ReasonTimeout
	}
	return ReasonTLS
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// certificateAlerts are the TLS alerts about a certificate: bad_certificate up
// to certificate_unknown, unknown_ca, access_denied, certificate_required. They
// end a handshake; none comes later.
//
// Source: RFC 8446, section 6.2.
var certificateAlerts = []tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116}

// refusesCertificate reports whether the other side has sent an alert about a
// certificate. crypto/tls returns alerts as a type of its own, which can be
// compared by its text alone.
func refusesCertificate(err error) bool {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" || remote.Err == nil {
		return false
	}
	return slices.ContainsFunc(certificateAlerts, func(alert tls.AlertError) bool {
		return alert.Error() == remote.Err.Error()
	})
}
