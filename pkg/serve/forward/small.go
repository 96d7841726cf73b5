package forward

import (
	"bytes"
	"io"
	"net/http"
)

// maxSmall is how long an answer may be that is read as a whole.
const maxSmall = 64 << 10

// isSmall reports whether the answer is read to its end before the client sees
// its header: if the peer is lost in between, another one can still be asked.
// That is safe for a GET alone (a HEAD has nothing in between), and a stream can't
// wait for its end.
func (x *exchange) isSmall(res *http.Response) bool {
	if x.client.Method != http.MethodGet || res.StatusCode == http.StatusSwitchingProtocols || x.watches() || x.streams() {
		return false
	}
	return 0 < res.ContentLength && res.ContentLength <= maxSmall
}

// streams reports whether the subresource is one whose answer may come bit by
// bit.
func (x *exchange) streams() bool {
	switch x.info.Subresource {
	case "proxy", "log", "exec", "attach", "portforward":
		return true
	}
	return false
}

// readWhole reads the answer to its end, and leaves it to be read. After an
// error the answer is closed.
func readWhole(res *http.Response) error {
	defer func() { _ = res.Body.Close() }()
	var whole bytes.Buffer
	whole.Grow(int(res.ContentLength) + bytes.MinRead)
	if _, err := whole.ReadFrom(res.Body); err != nil {
		return err
	}
	res.Body = io.NopCloser(&whole)
	return nil
}
