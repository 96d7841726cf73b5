package cluster

import (
	"errors"
	"fmt"
	"syscall"
)

// sysProcAttr lets a child die with this process, and keeps a Ctrl-C in the
// terminal from it: who started it stops it.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// setHostname moves the calling thread, and what it forks from then on, into a
// UTS namespace of its own with the given host name.
func setHostname(name string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWUTS); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return errNeedsRoot
		}
		return fmt.Errorf("making a UTS namespace: %w", err)
	}
	if err := syscall.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	return nil
}
