package options

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"peerproxy.internal/pkg/peerproxy"
)

// period is a flag for one of a member's grace periods.
type period struct {
	name        string
	value       *time.Duration
	least, most time.Duration
	what, then  string
}

// periods are the flags, in the order of a member's life.
func periods(p *peerproxy.Periods) []period {
	return []period{
		{"peer-starting-grace-period", &p.Starting, 10 * time.Second, 5 * time.Minute,
			"How long, within any 10 minutes, a peer takes part that is not ready yet", "The APIs of one that never gets ready leave discovery then."},
		{"peer-unknown-grace-period", &p.Unknown, time.Second, 5 * time.Minute,
			"How long, within any 10 minutes, a peer whose discovery can't be read keeps requests from a 404", "They are answered 503 until then."},
		{"peer-departed-grace-period", &p.Departed, time.Minute, 24 * time.Hour,
			"How long what only a peer served stays in discovery after its identity lease is gone", "Requests for it are answered 503 until then, 404 afterwards."},
	}
}

func addPeriods(fs *pflag.FlagSet, p *peerproxy.Periods) {
	*p = p.WithDefaults()
	for _, f := range periods(p) {
		fs.DurationVar(f.value, f.name, *f.value, fmt.Sprintf("%s. %s From %v to %v.", f.what, f.then, f.least, f.most))
	}
}

func validatePeriods(p peerproxy.Periods) []error {
	var errs []error
	for _, f := range periods(&p) {
		if *f.value < f.least || *f.value > f.most {
			errs = append(errs, fmt.Errorf("--%s %v is out of range: it has to be from %v to %v", f.name, *f.value, f.least, f.most))
		}
	}
	return errs
}
