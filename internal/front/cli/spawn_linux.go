package cli

import "syscall"

// canSpawn: the service runs on this system.
const canSpawn = true

func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
