package transport

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// The headers that a peer reads the user from.
//
// Source: the kube-apiserver's usual --requestheader-* flags, and
// k8s.io/apiserver/pkg/authentication/request/headerrequest.
const (
	headerUser        = "X-Remote-User"
	headerUID         = "X-Remote-Uid"
	headerGroup       = "X-Remote-Group"
	headerExtraPrefix = "X-Remote-Extra-"

	// headerRemotePrefix is that of all these, and of others that a peer may be
	// told to read.
	headerRemotePrefix      = "X-Remote-"
	headerImpersonatePrefix = "Impersonate-"
	headerWebSocketProtocol = "Sec-Websocket-Protocol"

	// bearerProtocolPrefix starts a WebSocket subprotocol that is a bearer token.
	//
	// Source: k8s.io/apiserver/pkg/authentication/request/websocket.
	bearerProtocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// IdentityError means that a user can't be named to a peer: HTTP would change
// what names it.
type IdentityError struct {
	// Field is what can't be sent: "user name", "UID", "group" or "extra value".
	Field string
	// Err says why.
	Err error
}

func (e *IdentityError) Error() string { return fmt.Sprintf("%s of the user: %v", e.Field, e.Err) }

// Unwrap returns why the field can't be sent.
func (e *IdentityError) Unwrap() error { return e.Err }

var (
	errEmpty   = errors.New("is empty")
	errPadded  = errors.New("has white space at its ends")
	errControl = errors.New("holds a control character")
)

// SetIdentity makes u the user of a request with the given headers. It removes
// whatever else names or authenticates a user: X-Remote-* and the cluster's own
// identity headers, Impersonate-*, Authorization, and a bearer token among the
// WebSocket subprotocols. A user that can't be sent unchanged is an
// [*IdentityError]; the headers then name no user.
func (t *Transport) SetIdentity(h http.Header, u user.Info) error {
	for name := range h {
		if t.isIdentity(name) {
			delete(h, name)
		}
	}
	removeBearerProtocol(h)
	if err := checkUser(u); err != nil {
		return err
	}
	h.Set(headerUser, u.GetName())
	if uid := u.GetUID(); uid != "" {
		h.Set(headerUID, uid)
	}
	for _, group := range u.GetGroups() {
		h.Add(headerGroup, group)
	}
	for key, values := range u.GetExtra() {
		for _, value := range values {
			h.Add(headerExtraPrefix+escapeExtraKey(key), value)
		}
	}
	return nil
}

func (t *Transport) isIdentity(name string) bool {
	if strings.EqualFold(name, "Authorization") || hasPrefixFold(name, headerRemotePrefix) || hasPrefixFold(name, headerImpersonatePrefix) {
		return true
	}
	for _, custom := range t.config.IdentityHeaders {
		if strings.EqualFold(name, strings.TrimSpace(custom)) {
			return true
		}
	}
	for _, prefix := range t.config.IdentityHeaderPrefixes {
		if prefix = strings.TrimSpace(prefix); prefix != "" && hasPrefixFold(name, prefix) {
			return true
		}
	}
	return false
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// removeBearerProtocol leaves the header as it is where it holds no token.
func removeBearerProtocol(h http.Header) {
	var kept []string
	found := false
	for _, value := range h[headerWebSocketProtocol] {
		for protocol := range strings.SplitSeq(value, ",") {
			if protocol = strings.TrimSpace(protocol); strings.HasPrefix(protocol, bearerProtocolPrefix) {
				found = true
				continue
			}
			kept = append(kept, protocol)
		}
	}
	switch {
	case !found:
	case len(kept) == 0:
		delete(h, headerWebSocketProtocol)
	default:
		h.Set(headerWebSocketProtocol, strings.Join(kept, ","))
	}
}

func checkUser(u user.Info) error {
	if err := checkNotEmpty("user name", u.GetName()); err != nil {
		return err
	}
	if err := check("UID", u.GetUID()); err != nil {
		return err
	}
	for _, group := range u.GetGroups() {
		if err := checkNotEmpty("group", group); err != nil {
			return err
		}
	}
	for _, values := range u.GetExtra() {
		for _, value := range values {
			if err := check("extra value", value); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkNotEmpty(field, value string) error {
	if value == "" {
		return &IdentityError{Field: field, Err: errEmpty}
	}
	return check(field, value)
}

func check(field, value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return &IdentityError{Field: field, Err: errControl}
	}
	// HTTP drops no other white space than this and the tab, which is a control
	// character.
	if strings.HasPrefix(value, " ") || strings.HasSuffix(value, " ") {
		return &IdentityError{Field: field, Err: errPadded}
	}
	return nil
}

// escapeExtraKey escapes what a header name can't hold and, because names of
// headers lose it, capitals. The peer undoes it after it has put the name into
// lower case.
//
// Source: unescapeExtraKey in
// k8s.io/apiserver/pkg/authentication/request/headerrequest.
func escapeExtraKey(key string) string {
	var escaped strings.Builder
	for i := range len(key) {
		if b := key[i]; keepsInHeaderName(b) {
			escaped.WriteByte(b)
		} else {
			fmt.Fprintf(&escaped, "%%%02X", b)
		}
	}
	return escaped.String()
}

// keepsInHeaderName reports whether a byte of a key passes through a header
// name as it is: a token's byte (RFC 9110, section 5.6.2) but for capitals and
// the percent sign.
func keepsInHeaderName(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", b) >= 0
}
