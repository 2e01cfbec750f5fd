// Package hostcommand runs programs that the operator configures: outside of any jail, as
// the service's account, without a shell, and with no environment but their own.
package hostcommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Command is a program of the operator.
type Command struct {
	Argv    []string      // the program by its absolute path, and its arguments
	Env     []string      // all of its environment
	Timeout time.Duration // of one run
	Check   func() error  // called before each run; may be nil
}

// ErrTimeout marks a run that was killed because it took too long.
var ErrTimeout = errors.New("killed")

// waitDelay is how long output of what the program left behind is awaited.
const waitDelay = time.Second

// Run runs the program once. It and all that it has started in its process group end
// with it. Errors name the program and have nothing of its output.
func (c Command) Run(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	if c.Check != nil {
		if err := c.Check(); err != nil {
			return err
		}
	}
	short, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(short, c.Argv[0], c.Argv[1:]...) //nolint:gosec // G204: the operator's configuration
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = in, out, errs, "/", waitDelay
	cmd.Env = append([]string{}, c.Env...) // nil would be that of the service
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Start()
	if err == nil {
		group := cmd.Process.Pid
		err = cmd.Wait()
		_ = syscall.Kill(-group, syscall.SIGKILL) // what it left behind
	}
	switch {
	case err == nil:
		return nil
	case short.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%s: %w after %s", c.Argv[0], ErrTimeout, c.Timeout)
	}
	return fmt.Errorf("%s: %w", c.Argv[0], err)
}
