package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
)

// writes is a storage that notes what is written to it.
type writes struct {
	storage.Interface
	// dead storage answers nothing.
	dead bool
	// slow storage takes so long for a deletion.
	slow      time.Duration
	published []string
	records   []Record
	removed   []string
}

func (w *writes) GuaranteedUpdate(ctx context.Context, key string, into runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	if w.dead {
		<-ctx.Done()
		return ctx.Err()
	}
	written, _, err := update(into, storage.ResponseMeta{})
	if err != nil {
		return err
	}
	_, record, err := recordOf(written.(*corev1.Endpoints))
	w.published = append(w.published, key)
	w.records = append(w.records, record)
	return err
}

func (w *writes) Delete(ctx context.Context, key string, _ runtime.Object, _ *storage.Preconditions, _ storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	if w.dead {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(w.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	w.removed = append(w.removed, key)
	return nil
}

func publisher(backend storage.Interface) *Publisher {
	return &Publisher{Storage: &Storage{backend: backend, destroy: func() {}}, ServerID: "a", Clock: clock.RealClock{}}
}

func TestPublisherWritesWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &writes{}
		p := publisher(backend)
		p.Publish("192.0.2.1", 1)
		p.Publish("192.0.2.2", 1)
		go p.Run(t.Context())
		synctest.Wait()
		if len(backend.published) != 1 || backend.published[0] != "/peerserverleases/a" {
			t.Errorf("published %v, want the newest address once", backend.published)
		}
		p.Publish("192.0.2.2", 1)
		synctest.Wait()
		if len(backend.published) != 2 {
			t.Errorf("published %d times, want a renewal", len(backend.published))
		}
		if err := p.Remove(t.Context()); err != nil || len(backend.removed) != 1 {
			t.Errorf("removed %v, %v", backend.removed, err)
		}
		p.Publish("192.0.2.2", 1)
		synctest.Wait()
		if len(backend.published) != 2 {
			t.Error("published after the removal")
		}
	})
}

func TestAnEarlyRecordIsRenewedUntilTheServerIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &writes{}
		p := publisher(backend)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go p.Run(ctx)
		p.PublishStarting("192.0.2.1", 1, "a_1")
		time.Sleep(25 * time.Second)
		p.Publish("192.0.2.1", 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		early := Record{Address: "192.0.2.1:1", Incarnation: "a_1", Starting: true, Generation: 1}
		ready := Record{Address: "192.0.2.1:1", Incarnation: "a_1", Generation: 1}
		if diff := cmp.Diff([]Record{early, early, early, ready}, backend.records); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTheRecordNamesTheIncarnationAsSoonAsItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &writes{}
		p := publisher(backend)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go p.Run(ctx)
		p.Publish("192.0.2.1", 1)
		synctest.Wait()
		p.PublishStarting("192.0.2.1", 1, "a_1")
		synctest.Wait()
		before := Record{Address: "192.0.2.1:1", Generation: 1}
		after := Record{Address: "192.0.2.1:1", Incarnation: "a_1", Generation: 1}
		if diff := cmp.Diff([]Record{before, after}, backend.records); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPublisherKeepsNoOneWaitingForADeadEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publisher(&writes{dead: true})
		go p.Run(t.Context())
		p.Publish("192.0.2.1", 1)
		synctest.Wait()
		began := time.Now()
		p.Publish("192.0.2.1", 1)
		if took := time.Since(began); took != 0 {
			t.Errorf("asking for a renewal took %v", took)
		}
		if err := p.Remove(t.Context()); err == nil {
			t.Error("no error")
		}
		if took := time.Since(began); took != 250*time.Millisecond {
			t.Errorf("the removal kept its caller for %v", took)
		}
		time.Sleep(2 * time.Second) // in which it gives up
	})
}

// A server that stops ends the context as soon as its caller goes on.
func TestASlowRemovalIsDoneAfterItsCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &writes{slow: time.Second}
		p := publisher(backend)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); p.Run(ctx) }()
		if err := p.Remove(ctx); err == nil {
			t.Error("no error")
		}
		cancel()
		<-ended
		if len(backend.removed) != 1 {
			t.Errorf("removed %v when Run has returned", backend.removed)
		}
	})
}
