package upgrade

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// eventTimeout is how late an event may be before it counts as missed.
const eventTimeout = 30 * time.Second

// beginWatching starts informers for each kind of object, and a writer that makes
// objects and deletes them again. Every informer has to see both.
func (l *Load) beginWatching(ctx context.Context) error {
	for _, o := range l.objects {
		c, err := l.newClient()
		if err != nil {
			return err
		}
		w := &writer{load: l, object: o, client: c}
		for range informersEach {
			watching := &watcher{seen: map[string]*sight{}}
			if err := l.watch(ctx, o, watching); err != nil {
				return err
			}
			w.watchers = append(w.watchers, watching)
		}
		next := 0
		l.every(ctx, writePeriod, func() {
			done, ok := func() {}, true
			if o.fresh {
				done, ok = l.epoch.Use()
			}
			if !ok {
				return
			}
			next++
			name := fmt.Sprintf("written-%d", next)
			l.running.Go(func() {
				defer done()
				w.live(ctx, name)
			})
		})
	}
	return nil
}

// writer makes objects of a kind and deletes them again.
type writer struct {
	load     *Load
	object   *object
	client   *client
	watchers []*watcher
	// known is true once it made one.
	known atomic.Bool
}

// live takes one object through its life.
func (w *writer) live(ctx context.Context, name string) {
	t := &target{what: w.object.gvr.Resource + "/" + name, fresh: w.object.fresh, seen: w.known.Load()}
	err := w.load.do(ctx, t, false, "POST", func(ctx context.Context) error {
		_, err := w.object.of(w.client).Create(ctx, w.object.named(name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return
	}
	w.known.Store(true)
	for i, watching := range w.watchers {
		w.load.await(ctx, watching.sight(name).added, "informer %d: %s was added", i, t.what)
	}
	err = w.load.do(ctx, t, false, "DELETE", func(ctx context.Context) error {
		return w.object.of(w.client).Delete(ctx, name, metav1.DeleteOptions{})
	})
	if err != nil {
		return
	}
	for i, watching := range w.watchers {
		w.load.await(ctx, watching.sight(name).deleted, "informer %d: %s was deleted", i, t.what)
	}
}

// await waits for an event, and counts it as missed when it is too late.
func (l *Load) await(ctx context.Context, seen <-chan struct{}, what string, args ...any) {
	timer := time.NewTimer(eventTimeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-seen:
	case <-timer.C:
		l.counts.Note(Missed, what, args...)
	}
	l.counts.Add(Events)
}

// watch starts an informer: for what only the new version has, as soon as someone
// has it.
func (l *Load) watch(ctx context.Context, o *object, w *watcher) error {
	lists := &listCounter{load: l, object: o}
	c, err := l.newClient(func(config *rest.Config) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			lists.next = next
			return lists
		})
	})
	if err != nil {
		return err
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(c.dynamic, o.gvr, o.namespace, 0, cache.Indexers{}, nil).Informer()
	if _, err := informer.AddEventHandler(w); err != nil {
		return err
	}
	l.running.Go(func() {
		if o.fresh {
			select {
			case <-ctx.Done():
				return
			case <-l.epoch.Begun():
			}
		}
		informer.RunWithContext(ctx)
	})
	return nil
}

// watcher is told what an informer sees.
type watcher struct {
	mu   sync.Mutex
	seen map[string]*sight
}

// sight is when an object was first seen and when its end was.
type sight struct {
	added, deleted chan struct{}
	there, gone    sync.Once
}

func (w *watcher) sight(name string) *sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seen[name]
	if s == nil {
		s = &sight{added: make(chan struct{}), deleted: make(chan struct{})}
		w.seen[name] = s
	}
	return s
}

// OnAdd implements cache.ResourceEventHandler.
func (w *watcher) OnAdd(added any, _ bool) {
	if key, err := cache.ObjectToName(added); err == nil {
		s := w.sight(key.Name)
		s.there.Do(func() { close(s.added) })
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (w *watcher) OnUpdate(_, _ any) {}

// OnDelete implements cache.ResourceEventHandler.
func (w *watcher) OnDelete(deleted any) {
	if key, err := cache.DeletionHandlingObjectToName(deleted); err == nil {
		s := w.sight(key.Name)
		s.gone.Do(func() { close(s.deleted) })
	}
}

// listCounter counts the lists of an informer that follow its first.
type listCounter struct {
	load   *Load
	object *object
	next   http.RoundTripper
	listed atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (c *listCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	query := request.URL.Query()
	if watches := query.Get("watch") == "true" && query.Get("sendInitialEvents") != "true"; watches {
		return response, err
	}
	switch ok := err == nil && response.StatusCode == http.StatusOK; {
	case request.Context().Err() != nil, c.object.fresh && !c.load.epoch.Serving():
	case c.listed.Load():
		c.load.counts.Note(Relists, "%s: the list is asked for again (answered: %v)", c.object.gvr.Resource, ok)
	case ok:
		c.listed.Store(true)
	}
	return response, err
}

// WrappedRoundTripper lets client-go close the idle connections behind it.
func (c *listCounter) WrappedRoundTripper() http.RoundTripper { return c.next }
