package transport

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// reloadInterval is how often the files are looked at. Comparing what is in
// them, rather than watching them, also sees a swapped symbolic link.
const reloadInterval = 10 * time.Second

// Run follows changes of the files until ctx ends, and then closes the idle
// connections and refuses new ones. Files that can't be used change nothing.
// Call it once. It returns nil.
func (t *Transport) Run(ctx context.Context) error {
	ticker := t.config.Clock.NewTicker(reloadInterval)
	defer ticker.Stop()
	defer t.stop()
	var trouble string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			trouble = t.reload(klog.FromContext(ctx), trouble)
		}
	}
}

// reload makes a new generation if the files have changed. It takes and returns
// the trouble with the files that was logged last, so as to log each once.
func (t *Transport) reload(logger klog.Logger, logged string) string {
	read, err := t.readFiles()
	if err == nil && read == t.files {
		return ""
	}
	var creds credentials
	if err == nil {
		creds, err = read.parse()
	}
	if err != nil {
		if err.Error() != logged {
			logger.Error(err, "Keeping the certificates for peers that were read before")
		}
		return err.Error()
	}
	t.files = read
	t.current.Swap(t.newGeneration(creds)).retire()
	logger.Info("Reloaded the certificates for peers")
	return ""
}

func (t *Transport) stop() {
	close(t.stopped)
	last := t.current.Load()
	last.retire()
	// A connection that came about just now may not have been idle yet; no one
	// would close it for a long time. The wait is for net/http, not for the
	// config's time.
	<-clock.RealClock{}.After(settling)
	last.closeIdle()
}

// settling is how long net/http may take to put a new connection in its place.
const settling = 100 * time.Millisecond
