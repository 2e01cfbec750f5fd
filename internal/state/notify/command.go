package notify

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

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
	said := &head{}
	err := c.program.Run(ctx, bytes.NewReader(body), nil, said)
	if err != nil && len(said.text) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(said.text)))
	}
	return err
}

// head keeps the beginning of what is written to it.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), maxOutput-len(h.text))]...)
	return len(p), nil
}
