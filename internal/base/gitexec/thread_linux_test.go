package gitexec

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A git survives the thread that asked for it: a thread that entered another namespace or
// control group exits with its goroutine. The control is a git whose parent is that thread.
func TestGitSurvivesTheThreadOfItsCaller(t *testing.T) {
	t.Parallel()
	repo, err := Create(filepath.Join(t.TempDir(), "repo"), "sha1")
	if err != nil {
		t.Fatal(err)
	}
	survives := func(start func(*Cmd) error) bool {
		cmd, err := Git{Repo: repo}.Command(t.Context(), "cat-file", "--batch-check")
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		thread := make(chan int)
		var ask func()
		ask = func() {
			runtime.LockOSThread() // never unlocked
			if syscall.Gettid() == syscall.Getpid() {
				go ask() // the first thread cannot exit
				return
			}
			err = start(cmd)
			thread <- syscall.Gettid()
		}
		go ask()
		task := fmt.Sprintf("/proc/self/task/%d", <-thread)
		if err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; _, err = os.Stat(task) {
			time.Sleep(time.Millisecond)
		}
		_ = in.Close()
		return cmd.Wait() == nil
	}
	if !survives((*Cmd).Start) {
		t.Error("git ended with the thread of its caller")
	}
	if survives(func(c *Cmd) error { return c.Cmd.Start() }) {
		t.Error("control: a git whose parent exited is alive, so this test shows nothing")
	}
}
