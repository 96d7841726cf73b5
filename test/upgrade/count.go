package upgrade

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Kind is a kind of thing that is counted. Its text is a row's title.
type Kind string

// What was done, and how it went wrong.
const (
	SafeRequests   Kind = "safe requests"
	UnsafeRequests Kind = "unsafe requests"
	Walks          Kind = "legacy discovery walks"
	Discoveries    Kind = "aggregated discovery reads"
	Events         Kind = "events to be seen by informers"
	Namespaces     Kind = "namespaces deleted"

	WrongAbsent    Kind = "wrong 404s and 405s"
	FailedSafe     Kind = "safe requests failed after client-go's retries"
	FailedUnsafe   Kind = "unsafe requests failed: 503 after client-go's retries"
	UnknownOutcome Kind = "unsafe requests failed: 504, outcome unknown"
	BrokenUnsafe   Kind = "unsafe requests failed: connection lost"
	OtherUnsafe    Kind = "unsafe requests failed otherwise"
	Twice          Kind = "unsafe requests executed twice"
	FailedWalks    Kind = "legacy walks failed"
	Flips          Kind = "discovery flips"
	Missed         Kind = "informer events missed"
	Relists        Kind = "informer relists"
	Orphans        Kind = "objects left in deleted namespaces"
	Stuck          Kind = "namespaces not gone within a minute"
	Killed         Kind = "servers killed, not gone within 30 s"
	RetriedSafe    Kind = "safe requests that client-go was told to send again"
	RetriedUnsafe  Kind = "unsafe requests that client-go was told to send again"
)

// kinds are all kinds in the order of the report.
var kinds = []Kind{
	SafeRequests, UnsafeRequests, Walks, Discoveries, Events, Namespaces,
	WrongAbsent, FailedSafe, FailedUnsafe, UnknownOutcome, BrokenUnsafe, OtherUnsafe, Twice,
	FailedWalks, Flips, Missed, Relists, Orphans, Stuck, Killed, RetriedSafe, RetriedUnsafe,
}

// maxExamples is how many examples of a kind are kept.
const maxExamples = 20

// Counts counts by kind, and keeps the first examples of each. It may be used by
// any number of goroutines.
type Counts struct {
	mu       sync.Mutex
	began    time.Time
	numbers  map[Kind]int
	examples map[Kind][]string
}

// NewCounts returns counts of nothing. The times in the examples count from now.
func NewCounts() *Counts {
	return &Counts{began: time.Now(), numbers: map[Kind]int{}, examples: map[Kind][]string{}}
}

// Add counts one.
func (c *Counts) Add(kind Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers[kind]++
}

// Note counts one, with an example of what happened.
func (c *Counts) Note(kind Kind, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers[kind]++
	if len(c.examples[kind]) < maxExamples {
		at := time.Since(c.began).Round(100 * time.Millisecond)
		c.examples[kind] = append(c.examples[kind], fmt.Sprintf("%v: ", at)+fmt.Sprintf(format, args...))
	}
}

// Of returns how many there are of a kind.
func (c *Counts) Of(kind Kind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.numbers[kind]
}

// Examples returns the first examples of a kind.
func (c *Counts) Examples(kind Kind) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.examples[kind])
}

// All returns all numbers.
func (c *Counts) All() map[Kind]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.numbers)
}

// isAbsent reports whether an error says that there is no such thing: what
// controllers act upon.
func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// unsafeKind is the kind of the failure of a request that may not be repeated.
func unsafeKind(err error) Kind {
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status):
		return BrokenUnsafe
	case apierrors.IsAlreadyExists(err):
		return Twice
	case status.Status().Code == 503:
		return FailedUnsafe
	case status.Status().Code == 504:
		return UnknownOutcome
	}
	return OtherUnsafe
}
