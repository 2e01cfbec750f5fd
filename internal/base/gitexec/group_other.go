//go:build !linux && unix

package gitexec

import "syscall"

func groupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func onLastingThread(f func()) { f() }
