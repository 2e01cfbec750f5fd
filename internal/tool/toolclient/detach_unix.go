//go:build unix

package toolclient

import "syscall"

// detached keeps signals of a terminal from a process: close ends it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
