package notify

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// CommandConfig configures a command.
type CommandConfig struct {
	Argv    []string      // the program by its absolute path, and its arguments; no shell
	Env     []string      // all of its environment
	Check   func() error  // called before each run; may be nil
	Timeout time.Duration // of one run; 0: 30 seconds
}

// Command runs a program for each message, which it gets on standard input.
type Command struct{ cfg CommandConfig }

// NewCommand returns a command.
func NewCommand(cfg CommandConfig) *Command {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	return &Command{cfg}
}

const (
	maxOutput = 512             // bytes of its messages that are kept
	waitDelay = 2 * time.Second // for output of what it has left behind
)

// Kind implements Receiver.
func (*Command) Kind() string { return "command" }

// Place implements Receiver. Arguments may be secret.
func (c *Command) Place() string { return c.cfg.Argv[0] }

// Send implements Receiver. The program and all that it has started in its process
// group end with it.
func (c *Command) Send(ctx context.Context, _ *Message, body []byte) error {
	if c.cfg.Check != nil {
		if err := c.cfg.Check(); err != nil {
			return err
		}
	}
	short, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	cmd := exec.CommandContext(short, c.cfg.Argv[0], c.cfg.Argv[1:]...) //nolint:gosec // G204: the operator's configuration
	said := &head{}
	cmd.Stdin, cmd.Stderr, cmd.Env, cmd.Dir, cmd.WaitDelay = bytes.NewReader(body), said, c.cfg.Env, "/", waitDelay
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
		return fmt.Errorf("%s: killed after %s", c.Place(), c.cfg.Timeout)
	case len(said.text) > 0:
		return fmt.Errorf("%s: %w: %s", c.Place(), err, strings.TrimSpace(string(said.text)))
	}
	return fmt.Errorf("%s: %w", c.Place(), err)
}

// head keeps the beginning of what is written to it.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), maxOutput-len(h.text))]...)
	return len(p), nil
}
