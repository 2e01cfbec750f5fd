package console

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Args turns arguments and flags into types and keeps the first error.
type Args struct{ Err error }

// Fail keeps err as an invalid argument, unless there is an earlier error.
func (a *Args) Fail(err error) {
	if a.Err == nil && err != nil {
		a.Err = api.Errorf(api.CodeInvalid, "%w", err)
	}
}

// Parse parses s with one of the parsers of package api, such as api.ParseRunID.
func Parse[T any](a *Args, s string, parse func(string) (T, error)) T {
	v, err := parse(s)
	a.Fail(err)
	return v
}

// Optional is Parse for an argument that may be empty.
func Optional[T any](a *Args, s string, parse func(string) (T, error)) (v T) {
	if s == "" {
		return v
	}
	return Parse(a, s, parse)
}

// Name parses the name of an artifact of a kind; it may be empty.
func (a *Args) Name(kind, s string) api.Name {
	return Optional(a, s, func(s string) (api.Name, error) {
		v, err := api.ParseName(s)
		if err != nil {
			err = api.Errorf(api.CodeInvalid, "%s %w", kind, err)
		}
		return v, err
	})
}

// Wait refuses a negative time to wait, which some calls would take for no limit
// and others for none at all.
func (a *Args) Wait(flag string, wait time.Duration) {
	if wait < 0 {
		a.Fail(api.Errorf(api.CodeInvalid, "%s %s: want no negative time", flag, wait))
	}
}

// Since parses the time of the flag --since; the zero time if it is empty.
func (a *Args) Since(s string, now time.Time) (at time.Time) {
	if s == "" {
		return at
	}
	at, err := api.ParseTime(s, now, 0)
	if err != nil {
		a.Fail(fmt.Errorf("--since %q: %w", s, err))
	}
	return at
}

// Last refuses a number of list items that is not positive.
func (a *Args) Last(n int) {
	if n < 1 {
		a.Fail(fmt.Errorf("--last %d: want at least 1", n))
	}
}

// BadFormat is the error of a value of --output that is no format. Where the
// command can write a file, it says how: -o is never the name of one.
func BadFormat(cmd *cobra.Command, format, want string) error {
	err := api.Errorf(api.CodeInvalid, "-o %q: want %s", format, want)
	if cmd.Flags().Lookup("out") != nil {
		return err.WithHint("to write to a file: --out FILE")
	}
	return err
}

// maxInput is the largest request that the service accepts.
const maxInput = 1 << 20

// ReadInput reads an argument that is a text, @FILE, or - for standard input.
func ReadInput(text string, stdin io.Reader) ([]byte, error) {
	from := io.Reader(strings.NewReader(text))
	if text == "-" {
		from = stdin
	} else if path, ok := strings.CutPrefix(text, "@"); ok {
		f, err := os.Open(path) //nolint:gosec // G304: the user names the file
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "%s: %w", text, err)
		}
		defer f.Close() //nolint:errcheck // only read
		from = f
	}
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(from, maxInput+1))
	if err == nil && n > maxInput {
		err = api.Errorf(api.CodeTooLarge, "input: larger than 1 MiB")
	}
	return b.Bytes(), err
}

// ReadAnswer reads the answer to a question: the text in args, or nothing if an
// option was chosen. see is the command that shows the question.
func ReadAnswer(args []string, option int, stdin io.Reader, see string) (text string, err error) {
	if len(args) == 1 {
		b, err := ReadInput(args[0], stdin)
		if err != nil {
			return "", err
		}
		text = strings.TrimSuffix(string(b), "\n")
	}
	if (text == "") == (option == 0) {
		return "", api.Errorf(api.CodeInvalid, "answer: give a text or --option N").WithHint("see the question: %s", see)
	}
	return text, nil
}
