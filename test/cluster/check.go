package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/version"

	peeroptions "peerproxy.internal/pkg/options"
)

// Check finds the mistakes in a set of servers that can be found before any of
// them starts: a name or server ID that two of them have, a program that is no
// kube-apiserver, a release that it can't emulate. It runs each program for its
// help, and returns all that is wrong as one error.
func Check(ctx context.Context, configs ...ServerConfig) error {
	var errs []error
	names, ids := map[string]bool{}, map[string]string{}
	for i := range configs {
		config := &configs[i]
		if names[config.Name] {
			errs = append(errs, fmt.Errorf("two servers are named %q: give each a name of its own", config.Name))
			continue
		}
		names[config.Name] = true
		id, err := config.check(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if other, found := ids[id]; found {
			errs = append(errs, fmt.Errorf("servers %s and %s have the same server ID %s: give each its own", other, config.Name, id))
		}
		ids[id] = config.Name
	}
	return errors.Join(errs...)
}

// check returns the server ID that the server will have.
func (c *ServerConfig) check(ctx context.Context) (id string, err error) {
	if err := c.validate(); err != nil {
		return "", err
	}
	help, err := helpOf(ctx, c.Binary)
	if err != nil {
		return "", fmt.Errorf("server %s: %w", c.Name, err)
	}
	if err := c.checkEmulation(help); err != nil {
		return "", fmt.Errorf("server %s: %w", c.Name, err)
	}
	if !takesServerID(help) {
		return StockServerID(c.Name), nil
	}
	own := peeroptions.Options{ServerID: c.serverID()}
	if errs := own.Validate(); len(errs) > 0 {
		return "", fmt.Errorf("server %s: %w", c.Name, errors.Join(errs...))
	}
	return own.ServerID, nil
}

// serverID is the ID for a binary that takes one.
func (c *ServerConfig) serverID() string { return cmp.Or(c.ID, "apiserver-"+c.Name) }

// emulates is where a kube-apiserver's help tells the releases that it can
// emulate: kube=1.34..1.37(default:1.37).
var emulates = regexp.MustCompile(`kube=(1\.\d+)\.\.(1\.\d+)\(`)

func (c *ServerConfig) checkEmulation(help string) error {
	if c.EmulatedVersion == "" {
		return nil
	}
	bounds := emulates.FindStringSubmatch(help)
	if bounds == nil {
		return fmt.Errorf("%s can't emulate another release", c.Binary)
	}
	asked, err := version.ParseGeneric(c.EmulatedVersion)
	if err != nil {
		return fmt.Errorf("emulated=%s: %w", c.EmulatedVersion, err)
	}
	least, most := version.MustParseGeneric(bounds[1]), version.MustParseGeneric(bounds[2])
	if asked.LessThan(least) || asked.GreaterThan(most) {
		return fmt.Errorf("emulated=%s: %s can emulate %s to %s", c.EmulatedVersion, c.Binary, least, most)
	}
	return nil
}
