package cluster

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
)

// echo listens and sends back whatever it hears.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// call says a word on a new connection and returns that, if the word comes back.
func call(t *testing.T, address string) (net.Conn, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	return conn, say(conn)
}

func say(conn net.Conn) error {
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return err
	}
	_, err := bufio.NewReader(conn).ReadString('\n')
	return err
}

func TestAWireIsCutAndMended(t *testing.T) {
	wire, err := NewWire(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.Close)
	conn, err := call(t, wire.Address())
	if err != nil {
		t.Fatal(err)
	}
	if err := say(conn); err != nil {
		t.Fatal(err)
	}
	wire.Cut()
	if say(conn) == nil {
		t.Error("a connection outlives the cut")
	}
	if _, err := call(t, wire.Address()); err == nil {
		t.Error("a connection goes through a wire that is cut")
	}
	wire.Mend()
	if conn, err = call(t, wire.Address()); err != nil {
		t.Errorf("after it is mended: %v", err)
	}
	wire.Close()
	if say(conn) == nil {
		t.Error("a connection outlives the wire")
	}
	if _, err := net.Dial("tcp", wire.Address()); err == nil {
		t.Error("a wire that is closed takes connections")
	}
}
