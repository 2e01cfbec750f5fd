package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
)

// Exit ends a command with a status whose reason was printed already.
type Exit struct{ Status int }

func (e Exit) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// ExitFor is the Exit of an error code.
func ExitFor(code api.Code) Exit { return Exit{api.Table()[code].Exit} }

// Run executes one command line of root and returns the exit status. An answer
// that could not be written whole is a failure.
func Run(ctx context.Context, root *cobra.Command, o *Output, args []string) int {
	answer := &answerWriter{to: o.Stdout}
	o.Stdout = answer
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	explainHelp(root)
	explainArgs(root)
	root.SetFlagErrorFunc(flagError)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetOut(o.Stdout)
	root.SetErr(o.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = answer.err
	}
	if exit, ok := errors.AsType[Exit](err); ok {
		return exit.Status
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return 130
	}
	if err != nil {
		err = cobraError(cmd, err)
		usererror.Print(o.Stderr, root.Name(), usererror.Format(args), err, Plain)
	}
	return api.ExitStatus(err)
}

// answerWriter keeps the first error of writing the answer.
type answerWriter struct {
	to  io.Writer
	err error
}

func (w *answerWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.to.Write(p)
	w.err = err
	return n, err
}

// File is the standard output itself, for a child process that checks whether it
// is a terminal.
func (o *Output) File() io.Writer {
	if a, ok := o.Stdout.(*answerWriter); ok {
		return a.to
	}
	return o.Stdout
}

// Examples is the example text of a command: one command line per line.
func Examples(lines ...string) string { return "  " + strings.Join(lines, "\n  ") }
