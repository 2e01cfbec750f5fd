package cli

import "syscall"

// canSpawn says that the service runs on this system.
const canSpawn = true

func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
