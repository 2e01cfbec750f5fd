//go:build !linux

package cli

import "syscall"

// canSpawn: the service does not run on this system.
const canSpawn = false

func ownSession() *syscall.SysProcAttr { return nil }
