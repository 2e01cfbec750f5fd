//go:build !unix

package toolclient

import "syscall"

// detached changes nothing: bailiwick-toolhost is for Linux.
func detached() *syscall.SysProcAttr { return nil }
