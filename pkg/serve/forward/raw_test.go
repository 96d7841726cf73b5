package forward

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
)

// dialFront opens a connection to A on which a test can say what it likes.
func (w *world) dialFront() net.Conn {
	w.t.Helper()
	config := w.front.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = "example.com"
	conn, err := tls.Dial("tcp", w.front.Listener.Addr().String(), config)
	if err != nil {
		w.t.Fatal(err)
	}
	return conn
}

func readAnswer(t testing.TB, conn io.Reader) answer {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return answer{code: res.StatusCode, header: res.Header, body: string(body), err: err}
}
