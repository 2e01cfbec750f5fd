package gitexec

import (
	"runtime"
	"sync"
	"syscall"
)

// A git whose parent is killed must not write on.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// lasting accepts what is run on a thread that lives as long as the process.
var lasting = sync.OnceValue(func() chan<- func() { //nolint:gochecknoglobals // one thread of the process
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// onLastingThread runs f. The kernel sends the parent-death signal when the thread that started git exits, and a thread that
// entered another namespace or control group exits with its goroutine.
func onLastingThread(f func()) {
	done := make(chan struct{})
	lasting() <- func() { defer close(done); f() }
	<-done
}
