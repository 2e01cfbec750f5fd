//go:build unix

package gitexec

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// killGroup makes the end of the context kill git and all that it started: push
// starts other programs.
func killGroup(c *exec.Cmd) {
	c.SysProcAttr = groupAttr()
	c.Cancel = func() error {
		err := syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
