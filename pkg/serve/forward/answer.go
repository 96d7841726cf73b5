package forward

import (
	"bytes"
	"io"
	"mime"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NotServedHeader marks an answer to a forwarded request that says nothing but
// that this server does not serve it either: nothing was executed. It is
// believed on a 404, 405 or 503 only. A server that sends it takes it off
// whatever comes from behind it.
const NotServedHeader = "X-Kubernetes-Peer-Not-Served"

// MaxPeeked is how much of an answer is looked at to see whether it says that the
// resource is not served: one that is longer does not.
const MaxPeeked = 4 << 10

// judge returns why a peer's answer is none that the client may see, or "". All
// these mean that the peer has executed nothing.
func (x *exchange) judge(res *http.Response) reason {
	if x.mayComeFromBehind() {
		// A stock peer passes on whatever marker a pod sets.
		return ""
	}
	if marked(res) {
		return reasonNotServed
	}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		// The peer does not take us for one: the user did authenticate here.
		return reasonUnauthorized
	case http.StatusForbidden, http.StatusServiceUnavailable:
		return x.ifUnready()
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		if r := x.ifUnready(); r != "" {
			return r
		}
		if SaysNotServed(res.StatusCode, res.Header.Get("Content-Type"), peek(res), x.forwarder.Serializer.SupportedMediaTypes()) {
			return reasonNotServed
		}
	}
	return ""
}

// marked reports whether the answer is marked as none. On any other status the
// mark is not the peer's verdict: something was executed.
func marked(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusServiceUnavailable:
		_, ok := res.Header[NotServedHeader]
		return ok
	}
	return false
}

// ifUnready: a peer that is not ready knows neither its roles nor all its objects.
func (x *exchange) ifUnready() reason {
	if x.peer.Unready {
		return reasonUnready
	}
	return ""
}

// peek returns the answer's body, or nil where it is too long to be of interest,
// and leaves it to be read.
func peek(res *http.Response) []byte {
	head, err := io.ReadAll(io.LimitReader(res.Body, MaxPeeked+1))
	rest := res.Body
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), rest), rest}
	if err != nil || len(head) > MaxPeeked {
		return nil
	}
	return head
}

// SaysNotServed reports whether a kube-apiserver without a marker of its own
// says by a 404 or 405 that it does not serve the resource at all, rather than
// that there is no such object: a Status of the latter kind names the resource.
//
// What can't be decoded says nothing, and passes: the answer may be about an
// object. An answer to HEAD is no loss, since a kube-apiserver has no handler for
// HEAD of any resource and answers 405 whether it serves the resource or not.
func SaysNotServed(code int, contentType string, body []byte, decoders []runtime.SerializerInfo) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	if mediaType == "text/plain" {
		return code == http.StatusNotFound && string(body) == "404 page not found\n"
	}
	info, ok := runtime.SerializerInfoForMediaType(decoders, mediaType)
	if !ok || len(body) == 0 {
		return false
	}
	status := &metav1.Status{}
	if _, _, err := info.Serializer.Decode(body, nil, status); err != nil || int(status.Code) != code {
		return false
	}
	details := status.Details
	reason, fixed := notServed[status.Message]
	return fixed && status.Reason == reason &&
		(details == nil || details.Name == "" && details.Group == "" && details.Kind == "")
}

// notServed are the messages, with their reasons, by which a kube-apiserver says
// that no handler of its own takes the request. An admission webhook's denial may
// have the same code and reason, and no details either, but it can't have them.
//
// Source: NewGenericServerResponse in k8s.io/apimachinery/pkg/api/errors.
var notServed = map[string]metav1.StatusReason{
	"the server could not find the requested resource":                metav1.StatusReasonNotFound,
	"the server does not allow this method on the requested resource": metav1.StatusReasonMethodNotAllowed,
}
