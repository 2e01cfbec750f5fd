package evidence

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/failure"
)

// Files are the files that a command names.
type Files struct {
	Open   func(name string) (io.ReadCloser, error)
	Create func(name string) (io.WriteCloser, error) // must not exist
	Mkdir  func(name string) error                   // may exist
}

// Command is bailiwick-verify: it reads a bundle and a trust file and prints the
// report. It returns the exit status: 0 if no row fails and the claim is at least
// the required one, 1 otherwise. It reads and writes only the files that args name.
func Command(args []string, stdout, stderr io.Writer, files Files) int {
	r, err := command(args, stdout, stderr, files)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		if errors.Is(err, canon.ErrNewer) {
			err = api.Errorf(api.CodeInvalid, "%w", err).WithHint(useNewer)
		}
		failure.Print(stderr, "bailiwick-verify", failure.Format(args), err, plainLines)
		return 1
	case !r:
		return 1
	}
	return 0
}

const usage = `Usage: bailiwick-verify FILE --trust FILE [--require CLAIM] [--anchor FILE]... [-o text|json] [--html FILE] [--stamps DIR]

Verify the evidence about a run or a dispatch offline: recompute everything and
report what ran, then each check. CLAIM is none, tamper-detecting, tamper-evident or
witnessed.

  --trust FILE        keys to trust; get it from someone you trust, not with the
                      evidence; "bailiwick audit trust" writes it
  --anchor FILE       signed checkpoints that you did not get with the evidence; it
                      fails if they cannot be compared. May be repeated
  --anchor NAME=FILE  what you fetched yourself from the anchor that the trust file
                      calls NAME
  --require CLAIM     the weakest acceptable claim
  --html FILE         write the report to this new file too, as one page without
                      scripts to file or print
  --stamps DIR        write each time-stamp token, and the checkpoint that it stamps, to
                      new files in this folder, for openssl ts -verify
  -o text|json        print the report for people, or as one line of JSON
  --version           print the version

Exit status:
  0    no check fails, and the claim is at least CLAIM
  1    a check fails, the claim is weaker, a file cannot be read, or bad usage
`

// useNewer is what to do about evidence that matches canon.ErrNewer.
const useNewer = "if a newer version of bailiwick made this, verify it with bailiwick-verify of that version"

const seeHelp = "bailiwick-verify --help"

func wrongUsage(format string, args ...any) error {
	return api.Errorf(api.CodeInvalid, format, args...).WithHint("see: " + seeHelp)
}

func command(args []string, stdout, stderr io.Writer, fs Files) (bool, error) {
	flags := flag.NewFlagSet("bailiwick-verify", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	trustFile := flags.String("trust", "", "")
	require := flags.String("require", string(ClaimNone), "")
	output := flags.String("o", "text", "")
	html := flags.String("html", "", "")
	stamps := flags.String("stamps", "", "")
	version := flags.Bool("version", false, "")
	var anchors []string
	flags.Func("anchor", "", func(s string) error { anchors = append(anchors, s); return nil })
	var files []string
	for rest := args; ; { // a file may precede flags
		if err := flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(stdout, usage)
				return false, err
			}
			return false, failure.OfFlag(err, seeHelp)
		}
		if rest = flags.Args(); len(rest) == 0 {
			break
		}
		files, rest = append(files, rest[0]), rest[1:]
	}
	if *version {
		_, err := fmt.Fprintf(stdout, "bailiwick-verify version %s\n", api.Version())
		return err == nil, err
	}
	want, err := ParseClaim(*require)
	switch {
	case err != nil:
		return false, wrongUsage("--require: %w", err)
	case len(files) == 0:
		return false, wrongUsage("argument FILE is missing")
	case len(files) > 1:
		return false, wrongUsage("unexpected argument %.80q", files[1])
	case *trustFile == "":
		return false, wrongUsage("--trust is required: the file with the keys whose signatures count")
	case *output != "text" && *output != "json":
		return false, wrongUsage("-o %.40q: want text or json", *output)
	}
	t, err := readTrust(fs, *trustFile)
	if err != nil {
		return false, err
	}
	copies, err := readCopies(fs, anchors)
	if err != nil {
		return false, err
	}
	records := &CallRecords{}
	b, err := readBundle(fs, files[0], records)
	if err != nil {
		return false, err
	}
	if *stamps != "" {
		if err := writeStamps(fs, *stamps, b); err != nil {
			return false, err
		}
	}
	r := Verify(b, t, Options{Copies: copies, Calls: records})
	if *html != "" {
		if err := writeHTML(fs, *html, &r); err != nil {
			return false, err
		}
	}
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
		fmt.Fprintf(stderr, "bailiwick-verify: no check fails, but the claim is %s, weaker than %s\n", r.Claim, want)
	}
	return r.Good(want), nil
}

// writeHTML writes a report to a new file.
func writeHTML(files Files, name string, r *Report) error {
	f, err := files.Create(name)
	if err == nil {
		err = errors.Join(r.HTML(f), f.Close())
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "--html: %w", err).WithHint("existing files are not overwritten; name another path")
	}
	return nil
}

// writeStamps writes the time-stamp tokens of a bundle and the checkpoints that they
// stamp, as they are: nothing was verified.
func writeStamps(files Files, dir string, b *bundle.Bundle) error {
	write := func(name string, content []byte) error {
		f, err := files.Create(filepath.Join(dir, name))
		if err != nil {
			return api.Errorf(api.CodeInvalid, "--stamps: %w", err).WithHint("existing files are not overwritten; name another folder")
		}
		_, err = f.Write(content)
		return errors.Join(err, f.Close())
	}
	found := false
	for _, a := range b.Case.Anchored {
		r, err := receipt.Parse(a.Receipt)
		if err != nil || r.Kind != receipt.TSA {
			continue // the anchor row reports a malformed one
		}
		if !found {
			if err := files.Mkdir(dir); err != nil {
				return api.Errorf(api.CodeInvalid, "--stamps: %w", err)
			}
		}
		found = true
		name := fmt.Sprintf("%s-%d", r.Name, r.Checkpoint().Size)
		if err := errors.Join(write(name+".checkpoint", r.Signed), write(name+".tst", r.TSA.Token)); err != nil {
			return err
		}
	}
	if !found {
		return api.Errorf(api.CodeInvalid, "--stamps %s: the evidence has no time-stamp", dir).WithHint("the service needs an anchor of kind tsa")
	}
	return nil
}

// readCopies reads what the auditor fetched.
func readCopies(files Files, names []string) (list []Copy, err error) {
	for _, name := range names {
		c := Copy{File: name}
		if anchor, file, named := strings.Cut(name, "="); named && receipt.ValidName(anchor) {
			c.Anchor, c.File = anchor, file
		}
		if c.File == "" {
			return nil, wrongUsage("--anchor %s: the file is missing", name)
		}
		b, err := readAll(files, c.File, receipt.MaxCopy)
		if err == nil {
			c.Checkpoints, err = receipt.Checkpoints(b)
		}
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "--anchor %s: %w", c.File, err).
				WithHint("want a file with signed checkpoints, or lines of a file anchor (of a long file its end is enough: tail -n 1000); in a folder from \"bailiwick audit tiles\" that is the file checkpoint")
		}
		list = append(list, c)
	}
	return list, nil
}

func readTrust(files Files, name string) (Trust, error) {
	b, err := readAll(files, name, maxTrust)
	if err != nil {
		return Trust{}, fmt.Errorf("--trust: %w", err)
	}
	return ParseTrust(b)
}

func readAll(files Files, name string, most int64) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s: larger than %d bytes", name, most)
	}
	return b, errors.Join(err, f.Close())
}

func readBundle(files Files, name string, records *CallRecords) (*bundle.Bundle, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	b, err := bundle.Read(f, bundle.Limits{Watch: records.Watch})
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return b, errors.Join(err, f.Close())
}
