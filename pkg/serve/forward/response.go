package forward

import (
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/klog/v2"

	"peerproxy.internal/pkg/metrics"
	"peerproxy.internal/pkg/transport"
)

// peerAnnotation is the audit annotation that holds the server ID of the peer
// that has answered.
const peerAnnotation = "peerproxy.kubernetes.io/peer"

// modifyResponse sees a peer's answer before the client does.
func (x *exchange) modifyResponse(res *http.Response) error {
	// What servers tell each other is not for clients, whoever says it.
	res.Header.Del(NotServedHeader)
	res.Header.Del(transport.ServerHeader)
	replaceHeaders(x.w.Header(), res.Header)
	audit.AddAuditAnnotation(x.ctx, peerAnnotation, x.peer.ServerID)
	metrics.IncForwarded(x.ctx, res.StatusCode, x.gvr())
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.switched = res.Body
		return nil
	}
	res.Body = &answerBody{ReadCloser: res.Body, exchange: x}
	return nil
}

// replaceHeaders removes what this server's own chain has set from the response
// where the peer has set it too: the reverse proxy adds the peer's. Warnings are
// a list that both add to.
func replaceHeaders(own, peers http.Header) {
	for name := range peers {
		if name != "Warning" {
			delete(own, name)
		}
	}
}

// answerBody is the body of a peer's answer.
type answerBody struct {
	io.ReadCloser
	exchange *exchange
}

// Read ends a watch cleanly whatever has ended it: the client then resumes where
// it was, while an answer that is cut off would make it list anew. Any other
// answer is cut off, as the peer's was.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	b.exchange.answerBroke(err)
	if b.exchange.watches() {
		err = io.EOF
	}
	return n, err
}

func (x *exchange) answerBroke(err error) {
	if x.ctx.Err() != nil {
		return
	}
	x.noteFailure(&failure{reason: reasonCutOff, err: err})
	klog.FromContext(x.ctx).V(4).Info("Lost the connection to a peer during its answer", "peer", x.peer.ServerID, "err", err)
	metrics.IncForwardError(x.ctx, string(reasonCutOff), x.gvr())
}
