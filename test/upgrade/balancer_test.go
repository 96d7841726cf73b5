package upgrade

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"peerproxy.internal/test/peertest"
)

// fakeServer tells its name to who connects, then sends back each line.
type fakeServer struct {
	name     string
	listener net.Listener
	unready  atomic.Bool
}

func newFakeServer(t *testing.T, name string) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{name: name, listener: listener}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				io.WriteString(conn, name+"\n")
				io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { listener.Close(); running.Wait() })
	return s
}

func (s *fakeServer) backend() Backend {
	return Backend{Name: s.name, Address: s.listener.Addr().String(), Ready: func(context.Context) error {
		if s.unready.Load() {
			return errors.New("not ready")
		}
		return nil
	}}
}

// balance runs a balancer for the servers, and waits until it has all in.
func balance(t *testing.T, servers ...*fakeServer) *Balancer {
	t.Helper()
	var backends []Backend
	for _, s := range servers {
		backends = append(backends, s.backend())
	}
	b, err := NewBalancer(time.Millisecond, backends...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, s := range servers {
		peertest.Eventually(t, s.name+" is in", func() bool { return b.In(s.name) })
	}
	return b
}

// connect returns a connection and the name of the server that it leads to.
func connect(t *testing.T, b *Balancer) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", b.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	reader := bufio.NewReader(conn)
	return conn, reader, line(t, reader)
}

func line(t *testing.T, reader *bufio.Reader) string {
	t.Helper()
	text, err := reader.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return text[:len(text)-1]
}

func TestBalancerTakesServersInTurn(t *testing.T) {
	b := balance(t, newFakeServer(t, "a"), newFakeServer(t, "b"), newFakeServer(t, "c"))
	got := map[string]int{}
	for range 9 {
		_, _, name := connect(t, b)
		got[name]++
	}
	for _, name := range []string{"a", "b", "c"} {
		if got[name] != 3 {
			t.Errorf("connections: %v, want 3 each", got)
		}
	}
}

func TestBalancerLeavesOutAServerThatIsNotReadyAndClosesNothing(t *testing.T) {
	first, second := newFakeServer(t, "a"), newFakeServer(t, "b")
	b := balance(t, first, second)
	conn, reader, name := connect(t, b)
	if name != "a" {
		conn, reader, name = connect(t, b)
	}
	first.unready.Store(true)
	peertest.Eventually(t, name+" is out", func() bool { return !b.In(name) })
	for range 4 {
		if _, _, name := connect(t, b); name != "b" {
			t.Errorf("a new connection leads to %s", name)
		}
	}
	io.WriteString(conn, "still there\n")
	if got := line(t, reader); got != "still there" {
		t.Errorf("the connection that was there answers %q", got)
	}
	first.unready.Store(false)
	peertest.Eventually(t, name+" is in again", func() bool { return b.In(name) })
}

func TestBalancerTriesTheNextServer(t *testing.T) {
	gone := newFakeServer(t, "gone")
	b := balance(t, gone, newFakeServer(t, "b"))
	gone.listener.Close()
	for range 4 {
		if _, _, name := connect(t, b); name != "b" {
			t.Errorf("a connection leads to %s", name)
		}
	}
}

// A client that has sent all still gets its answer.
func TestBalancerPassesOnTheEndOfOneDirection(t *testing.T) {
	b := balance(t, newFakeServer(t, "a"))
	conn, reader, _ := connect(t, b)
	io.WriteString(conn, "the last\n")
	conn.(*net.TCPConn).CloseWrite()
	if got := line(t, reader); got != "the last" {
		t.Errorf("got %q", got)
	}
	if _, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
}

func TestABackendChangesAfterTwoChecks(t *testing.T) {
	b := &backend{}
	for i, step := range []struct{ ready, in bool }{
		{true, false}, {true, true}, {false, true}, {true, true}, {false, true}, {false, false}, {false, false},
	} {
		if b.agree(step.ready); b.in != step.in {
			t.Fatalf("step %d: in: %v, want %v", i, b.in, step.in)
		}
	}
}
