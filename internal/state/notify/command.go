package notify

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/hostcommand"
)

// Command runs a program for each message, which it gets on standard input.
type Command struct{ program hostcommand.Command }

// NewCommand returns a command. Its runs take 30 seconds at most unless it says
// otherwise.
func NewCommand(program hostcommand.Command) *Command {
	if program.Timeout == 0 {
		program.Timeout = 30 * time.Second
	}
	return &Command{program}
}

const maxOutput = 512 // bytes of its messages that are kept

// Kind implements Receiver.
func (*Command) Kind() string { return "command" }

// Place implements Receiver. Arguments may be secret.
func (c *Command) Place() string { return c.program.Argv[0] }

// Send implements Receiver.
func (c *Command) Send(ctx context.Context, _ *Message, body []byte) error {
	said := &cuttext.Head{Most: maxOutput}
	err := c.program.Run(ctx, bytes.NewReader(body), nil, said)
	if text := said.Text(); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}
