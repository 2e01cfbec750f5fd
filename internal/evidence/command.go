package evidence

import (
	"errors"
	"flag"
	"fmt"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"io"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
)

// Files opens the files that a command names.
type Files func(name string) (io.ReadCloser, error)

// Command is bailiwick-verify: it reads a bundle and a trust file and prints the
// report. It returns the exit status: 0 if no row fails and the claim is at
// least what was asked for, 1 otherwise. It reads the files that are named, and
// nothing else.
func Command(args []string, stdout, stderr io.Writer, open Files) int {
	r, err := command(args, stdout, stderr, open)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bailiwick-verify: %s\n", plain(err.Error()))
		return 1
	case !r:
		return 1
	}
	return 0
}

const usage = `Usage: bailiwick-verify FILE --trust FILE [--require CLAIM] [--anchor FILE]... [-o text|json]

Verify the evidence about a run or a dispatch, offline: recompute what it stands
for and say of each thing whether it is so. Exit 0 only if nothing fails and the
claim is at least CLAIM: none, tamper-detecting, tamper-evident, witnessed.

  --trust FILE    whose signatures count: from somebody whom you believe, and not
                  from where the evidence is from; "bailiwick audit trust" makes it
  --anchor FILE   signed checkpoints that you have otherwise than by the evidence,
                  such as the file of a file anchor
  --anchor NAME=FILE  what you have fetched yourself from the anchor of that name
  --require CLAIM the least that may be said of the log
`

func command(args []string, stdout, stderr io.Writer, open Files) (bool, error) {
	flags := flag.NewFlagSet("bailiwick-verify", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	trustFile := flags.String("trust", "", "")
	require := flags.String("require", string(ClaimNone), "")
	output := flags.String("o", "text", "")
	var anchors []string
	flags.Func("anchor", "", func(s string) error { anchors = append(anchors, s); return nil })
	var files []string
	for rest := args; ; { // a file may stand before its flags
		if err := flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(stdout, usage)
			}
			return false, err
		}
		if rest = flags.Args(); len(rest) == 0 {
			break
		}
		files, rest = append(files, rest[0]), rest[1:]
	}
	want, err := ParseClaim(*require)
	switch {
	case err != nil:
		return false, fmt.Errorf("--require: %w", err)
	case len(files) != 1 || *trustFile == "":
		return false, errors.New("want one file with evidence, and --trust FILE; see: bailiwick-verify --help")
	case *output != "text" && *output != "json":
		return false, fmt.Errorf("-o %.40q: want text or json", *output)
	}
	t, err := readTrust(open, *trustFile)
	if err != nil {
		return false, err
	}
	o, err := readAnchors(open, anchors)
	if err != nil {
		return false, err
	}
	b, err := readBundle(open, files[0])
	if err != nil {
		return false, err
	}
	r := Verify(b, t, o)
	if *output == "json" {
		out, err := r.JSON()
		if err != nil {
			return false, err
		}
		_, err = stdout.Write(out)
		return r.Good(want), err
	}
	if _, err := io.WriteString(stdout, r.Text()); err != nil {
		return false, err
	}
	if !r.Failed() && !r.Claim.AtLeast(want) {
		fmt.Fprintf(stderr, "bailiwick-verify: nothing fails, and the claim is %s: less than %s\n", r.Claim, want)
	}
	return r.Good(want), nil
}

// readAnchors reads what the auditor has of his own.
func readAnchors(open Files, names []string) (Options, error) {
	var o Options
	copies := map[string][]byte{}
	for _, name := range names {
		anchor, file, named := strings.Cut(name, "=")
		if named = named && receipt.ValidName(anchor); !named {
			file = name
		}
		b, err := readAll(open, file, maxCopy)
		if err != nil {
			return o, err
		}
		list, err := receipt.Checkpoints(b)
		if err != nil {
			return o, fmt.Errorf("%s: %w", file, err)
		}
		if named {
			copies[anchor], o.Fetched = b, append(o.Fetched, list...)
			continue
		}
		o.Held = append(o.Held, list...)
	}
	o.Receipts = AnchorReceipts{Copies: copies}
	return o, nil
}

// maxCopy bounds what was fetched from an anchor.
const maxCopy = 64 << 20

func readTrust(open Files, name string) (Trust, error) {
	b, err := readAll(open, name, maxTrust)
	if err != nil {
		return Trust{}, err
	}
	return ParseTrust(b)
}

func readAll(open Files, name string, most int64) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s: larger than %d bytes", name, most)
	}
	return b, errors.Join(err, f.Close())
}

func readBundle(open Files, name string) (*bundle.Bundle, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	b, err := bundle.Read(f, bundle.Limits{})
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return b, errors.Join(err, f.Close())
}
