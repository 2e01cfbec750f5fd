package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/term"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Hidden asks on the controlling terminal for what, without echo. It never reads
// standard input, which belongs to an agent that starts this program. hint is for an
// account without a terminal.
func Hidden(ctx context.Context, text, what, hint string) (_ string, err error) {
	name := "/dev/tty"
	if runtime.GOOS == "windows" {
		name = "CONIN$"
	}
	tty, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return "", api.Errorf(api.CodeUnauthenticated, "no terminal to ask for a %s on", what).WithHint("%s", hint)
	}
	fd := int(tty.Fd()) //nolint:gosec // G115: a file descriptor fits
	before, err := term.GetState(fd)
	if err != nil {
		return "", errors.Join(api.Errorf(api.CodeUnauthenticated, "terminal: %w", err), tty.Close())
	}
	if _, err := fmt.Fprint(tty, text); err != nil {
		return "", errors.Join(err, tty.Close())
	}
	type answer struct {
		text []byte
		err  error
	}
	read := make(chan answer, 1)
	// A read from a terminal cannot be cancelled: it ends with the line, or with
	// the process after ctx is done.
	go func() {
		b, err := term.ReadPassword(fd)
		read <- answer{b, err}
	}()
	select {
	case a := <-read:
		_, _ = fmt.Fprintln(tty) // the newline was not echoed
		if err := errors.Join(a.err, tty.Close()); err != nil {
			return "", api.Errorf(api.CodeUnauthenticated, "%s: %w", what, err)
		}
		return string(a.text), nil
	case <-ctx.Done():
		return "", errors.Join(ctx.Err(), term.Restore(fd, before))
	}
}
