package deploycli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/term"

	"github.com/bailiwick-dev/bailiwick/api"
)

const minPassphrase = 8

// newPassphrase asks for a new passphrase, twice.
func newPassphrase(ctx context.Context, of string) (string, error) {
	first, err := prompt(ctx, fmt.Sprintf("New passphrase for %s: ", of))
	if err != nil {
		return "", err
	}
	if len(first) < minPassphrase {
		return "", api.Errorf(api.CodeInvalid, "passphrase: shorter than %d bytes", minPassphrase)
	}
	second, err := prompt(ctx, "Repeat the passphrase: ")
	if err != nil {
		return "", err
	}
	if first != second {
		return "", api.Errorf(api.CodeInvalid, "passphrase: the two differ; nothing was created")
	}
	return first, nil
}

// prompt asks on the controlling terminal, without echo. It never reads standard
// input, which belongs to an agent that starts this program.
func prompt(ctx context.Context, text string) (_ string, err error) {
	name := "/dev/tty"
	if runtime.GOOS == "windows" {
		name = "CONIN$"
	}
	tty, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return "", api.Errorf(api.CodeUnauthenticated, "no terminal to ask for a passphrase on").
			WithHint("run this from a terminal; for a demo or CI create the key with --insecure-unencrypted")
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
		phrase []byte
		err    error
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
			return "", api.Errorf(api.CodeUnauthenticated, "passphrase: %w", err)
		}
		return string(a.phrase), nil
	case <-ctx.Done():
		return "", errors.Join(ctx.Err(), term.Restore(fd, before))
	}
}
