package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestAScriptDependsOnItsSeedAlone(t *testing.T) {
	if !reflect.DeepEqual(newScript(7), newScript(7)) {
		t.Error("two scripts of one seed differ")
	}
	if reflect.DeepEqual(newScript(7), newScript(8)) {
		t.Error("scripts of two seeds are equal")
	}
}

// connected returns both ends of a connection from a to b.
func connected(t *testing.T, n *network) (a, b net.Conn) {
	t.Helper()
	l := n.listen("b", "b:1")
	a, err := n.dialer("a")(t.Context(), "tcp", "b:1")
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close(); l.Close() })
	return a, b
}

func TestBytesWaitWhileTheirWayIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(time.Millisecond)
		a, b := connected(t, n)
		began := time.Now()
		n.sever(way{"a", "b"}, true)
		time.AfterFunc(time.Minute, func() { n.sever(way{"a", "b"}, false) })
		if _, err := a.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(b, got); err != nil || string(got) != "late" || time.Since(began) != time.Minute {
			t.Errorf("got %q, %v after %v", got, err, time.Since(began))
		}
	})
}

func TestADeadlineEndsAReadOfAFrozenPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(0)
		a, _ := connected(t, n)
		n.freeze("b", true)
		_ = a.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAVanishedHostAnswersNoDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(0)
		_, _ = connected(t, n)
		n.vanish("b", true)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := n.dialer("a")(ctx, "tcp", "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// etcd's own leases end a while after its return, not during its absence.
func TestARecordOutlivesTheAbsenceOfEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEtcd()
		e.mu.Lock()
		e.put("/key", &corev1.Endpoints{}, recordTTL)
		e.mu.Unlock()
		there := func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.objects) > 0
		}
		e.setAway(true)
		time.Sleep(time.Hour)
		e.setAway(false)
		time.Sleep(recordTTL - time.Second)
		if !there() {
			t.Error("it expired while etcd was away")
		}
		time.Sleep(2 * time.Second)
		if there() {
			t.Error("it never expires")
		}
	})
}
