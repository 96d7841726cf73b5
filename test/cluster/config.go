package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ServerConfig describes one apiserver.
type ServerConfig struct {
	// Name names the server, its files and its server ID: a DNS label, unique in
	// the cluster.
	Name string
	// Binary is the path of the kube-apiserver to run.
	Binary string
	// EmulatedVersion lets it serve the APIs of an older release, "1.36"; empty
	// for its own.
	EmulatedVersion string
	// PeersOff starts it without a peer CA file: it merges and forwards nothing.
	// The feature gate stays at its default, so peers can still reach it.
	PeersOff bool
	// RuntimeConfig turns API versions on and off, "api/all=true".
	RuntimeConfig string
	// Verbosity is the log level.
	Verbosity int
	// Audit writes an audit log of every request's metadata.
	Audit bool
	// ID is the server ID, "apiserver-<Name>" when empty. Only this project's
	// binaries take it; a stock binary's follows from its host name, which is
	// Name (see [StockServerID]). Who replaces the one by the other and wants the
	// ID to stay sets it to the stock one.
	ID string
	// IP is where it listens and what it advertises, 127.0.0.1 when empty.
	IP string
	// Flags are more flags, without dashes. They replace the cluster's own of the
	// same name.
	Flags map[string]string
	// Without names flags of the cluster's own to leave out.
	Without []string
}

// validName is what can be a file's, a host's and a lease's name.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (c *ServerConfig) validate() error {
	if !validName.MatchString(c.Name) {
		return fmt.Errorf("server name %q: use lower-case letters, digits and dashes, as in new or old-2", c.Name)
	}
	if c.Binary == "" {
		return fmt.Errorf("server %s: no binary given", c.Name)
	}
	if c.IP != "" && net.ParseIP(c.IP) == nil {
		return fmt.Errorf("server %s: %q is no IP address", c.Name, c.IP)
	}
	return nil
}

func (c *ServerConfig) clone() ServerConfig {
	clone := *c
	clone.Flags, clone.Without = maps.Clone(c.Flags), slices.Clone(c.Without)
	return clone
}

// ParseServer reads a server's description,
//
//	name=binary[,key=value]...
//
// where binary is a release, as v1.37, or the path of a kube-apiserver, for
// [FindBinary], and the keys are
//
//	emulated=1.36          serve the APIs of that release
//	peers=off              without the peer proxy
//	runtime-config=K=V     an API version on or off; may be repeated
//	audit=on               write an audit log
//	id=apiserver-X         the server ID
//	v=N                    log level
//	flag.NAME=VALUE        any flag; what is repeated is joined by commas
func ParseServer(spec string) (ServerConfig, error) {
	head, options, more := strings.Cut(spec, ",")
	name, binary, found := strings.Cut(head, "=")
	if !found || name == "" || binary == "" {
		return ServerConfig{}, fmt.Errorf("server %q: write name=binary, as in new=v1.37 or old=/path/to/kube-apiserver", spec)
	}
	c := ServerConfig{Name: name, Binary: binary}
	for more {
		var option string
		option, options, more = strings.Cut(options, ",")
		if err := c.set(option); err != nil {
			return ServerConfig{}, fmt.Errorf("server %q: %w", spec, err)
		}
	}
	return c, c.validate()
}

var validMinor = regexp.MustCompile(`^1\.\d+$`)

func (c *ServerConfig) set(option string) error {
	key, value, found := strings.Cut(option, "=")
	if !found {
		return fmt.Errorf("%q is no key=value", option)
	}
	if name, isFlag := strings.CutPrefix(key, "flag."); isFlag {
		return c.setFlag(strings.TrimLeft(name, "-"), value)
	}
	var err error
	switch key {
	case "emulated":
		if !validMinor.MatchString(value) {
			return fmt.Errorf("emulated=%s: write a release as emulated=1.36", value)
		}
		c.EmulatedVersion = value
	case "peers":
		var on bool
		on, err = parseOnOff(key, value)
		c.PeersOff = !on
	case "audit":
		c.Audit, err = parseOnOff(key, value)
	case "id":
		c.ID = value
	case "runtime-config":
		c.RuntimeConfig = joinComma(c.RuntimeConfig, value)
	case "v":
		if c.Verbosity, err = strconv.Atoi(value); err != nil || c.Verbosity < 0 {
			return fmt.Errorf("v=%s: write a log level as v=4", value)
		}
	default:
		return fmt.Errorf("unknown key %q: use emulated, peers, runtime-config, audit, id, v or flag.<name>", key)
	}
	return err
}

func (c *ServerConfig) setFlag(name, value string) error {
	if name == "" {
		return errors.New("flag.=: write flag.<name>=<value>")
	}
	if c.Flags == nil {
		c.Flags = map[string]string{}
	}
	c.Flags[name] = joinComma(c.Flags[name], value)
	return nil
}

func joinComma(list, item string) string {
	if list == "" {
		return item
	}
	return list + "," + item
}

func parseOnOff(key, value string) (bool, error) {
	switch value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, fmt.Errorf("%s=%s: write %s=on or %s=off", key, value, key, key)
}

var (
	releaseName    = regexp.MustCompile(`^v1\.\d+$`)
	nearlyARelease = regexp.MustCompile(`^v?(1\.\d+)(\..*)?$`)
)

// FindBinary returns the path of the kube-apiserver that binary means: for a
// release, as v1.37, the file kube-apiserver-v1.37 in the first of the
// directories that has it; else binary itself, which must be a file.
func FindBinary(binary string, dirs ...string) (string, error) {
	if releaseName.MatchString(binary) {
		return findRelease(binary, dirs)
	}
	info, err := os.Stat(binary)
	if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		return filepath.Abs(binary)
	}
	if release := nearlyARelease.FindStringSubmatch(binary); release != nil {
		return "", fmt.Errorf("%q is no file and no release: write v%s", binary, release[1])
	}
	if err != nil {
		return "", fmt.Errorf("%q is neither a release, as v1.37, nor the path of a kube-apiserver: %w", binary, err)
	}
	return "", fmt.Errorf("%q is no file that can be run", binary)
}

func findRelease(release string, dirs []string) (string, error) {
	name := "kube-apiserver-" + release
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("no %s in %s: run `make build` first, or give the path of a kube-apiserver", name, strings.Join(dirs, " or "))
}

// describe tells what runs, for people.
func (c *ServerConfig) describe() string {
	text := filepath.Base(c.Binary)
	if c.EmulatedVersion != "" {
		text += " emulating " + c.EmulatedVersion
	}
	if c.PeersOff {
		text += " without the peer proxy"
	}
	return text
}
