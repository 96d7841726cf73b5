//go:build !linux

package cluster

import "syscall"

// sysProcAttr keeps a Ctrl-C in the terminal from the child: who started it
// stops it.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

func setHostname(string) error { return errNeedsRoot }
