package transport

import (
	"context"
	"slices"
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
	logger := klog.FromContext(ctx)
	for {
		t.checkValidity(logger)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			t.reload(logger)
		}
	}
}

// reload uses the files if they have changed, and are the same as at the last
// look: one that is being written is not whole, and may be as good as a whole one
// that lacks a CA. Trouble with them is logged once.
func (t *Transport) reload(logger klog.Logger) {
	read, errs := t.config.readFiles()
	settled := read == t.pending
	t.pending = read
	if errs == nil && read == t.files {
		t.trouble = ""
		return
	}
	if !settled {
		return
	}
	var creds credentials
	if errs == nil {
		creds, errs = read.parse()
	}
	if errs == nil {
		t.trouble = ""
		t.use(logger, read, creds)
		return
	}
	if err := join(errs); err.Error() != t.trouble {
		t.trouble = err.Error()
		logger.Error(err, "Keeping the certificates for peers that were read before")
	}
}

// use makes the next generation of connections. Those of the last one live until
// they are idle, but for the ones that the new CAs do not verify.
func (t *Transport) use(logger klog.Logger, read files, creds credentials) {
	var revoked []string
	if read.ca == t.files.ca {
		creds.authorities, creds.roots = t.creds.authorities, t.creds.roots
	} else {
		revoked = t.links.hold(creds.roots)
	}
	t.files, t.creds = read, creds
	t.current.Swap(t.newGeneration(creds)).retire()
	logger.Info("Reloaded the certificates for peers")
	if len(revoked) > 0 {
		slices.Sort(revoked)
		logger.Info("Closed the connections to peers whose certificates the new CA bundle does not verify, requests on them included",
			"connections", len(revoked), "addresses", slices.Compact(revoked))
	}
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
