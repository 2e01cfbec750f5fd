package evidence

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// Files are the files that a command names.
type Files struct {
	Open   func(name string) (io.ReadCloser, error)
	Create func(name string) (io.WriteCloser, error) // must not exist
	Mkdir  func(name string) error                   // may exist
	Now    func() time.Time                          // for ages such as 90d
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
			err = api.Errorf(api.CodeInvalid, "%w", err).WithHint(report.UseNewer)
		}
		usererror.Print(stderr, "bailiwick-verify", usererror.Format(args), err, report.PlainLines)
		return 1
	case !r:
		return 1
	}
	return 0
}

const usage = `Usage: bailiwick-verify FILE --trust FILE [--require CLAIM] [--anchor FILE]... [-o text|json] [--html FILE] [--stamps DIR]
       bailiwick-verify --tiles DIR --trust FILE [--since TIME] [--until TIME] [--require CLAIM] [--anchor FILE]... [-o text|json]

Verify the evidence about a run or a dispatch offline: recompute everything and
report what ran, then each check. CLAIM: none, tamper-detecting, tamper-evident or
witnessed.

With --tiles, verify a copy of the whole log and list what happened in a period: runs,
dispatches, denials, approvals, changes of the rules, and what has no evidence.

  --trust FILE        keys to trust; get it from someone you trust, not with the
                      evidence; "bailiwick audit trust" writes it
  --anchor FILE       signed checkpoints that you did not get with the evidence; it
                      fails if they cannot be compared. May be repeated
  --anchor NAME=FILE  what you fetched yourself from the anchor that the trust file
                      calls NAME
  --tiles DIR         a folder that "bailiwick audit tiles" wrote
  --since TIME        list entries since this time, by the service's clock: RFC 3339, a day
                      in UTC, or an age such as 90d
  --until TIME        list entries before this time; of a day, up to its end
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

const seeHelp = "bailiwick-verify --help"

func wrongUsage(format string, args ...any) error {
	return api.Errorf(api.CodeInvalid, format, args...).WithHint("see: " + seeHelp)
}

// arguments are those of the command.
type arguments struct {
	files, anchors                              []string
	trust, require, output, html, stamps, tiles string
	since, until                                time.Time
	version                                     bool
}

func parse(args []string, now func() time.Time) (a arguments, err error) {
	flags := flag.NewFlagSet("bailiwick-verify", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&a.trust, "trust", "", "")
	flags.StringVar(&a.require, "require", string(report.ClaimNone), "")
	flags.StringVar(&a.output, "o", "text", "")
	flags.StringVar(&a.html, "html", "", "")
	flags.StringVar(&a.stamps, "stamps", "", "")
	flags.StringVar(&a.tiles, "tiles", "", "")
	flags.BoolVar(&a.version, "version", false, "")
	flags.Func("since", "", func(s string) (err error) { a.since, err = api.ParseTime(s, now(), 0); return err })
	flags.Func("until", "", func(s string) (err error) { a.until, err = api.ParseTime(s, now(), 1); return err })
	flags.Func("anchor", "", func(s string) error { a.anchors = append(a.anchors, s); return nil })
	for rest := args; ; { // a file may precede flags
		if err := flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return a, err
			}
			return a, usererror.OfFlag(err, seeHelp)
		}
		if rest = flags.Args(); len(rest) == 0 {
			return a, nil
		}
		a.files, rest = append(a.files, rest[0]), rest[1:]
	}
}

func (a *arguments) check() error {
	_, err := report.ParseClaim(a.require)
	period := a.tiles != ""
	switch {
	case err != nil:
		return wrongUsage("--require: %w", err)
	case len(a.files) == 0 && !period:
		return wrongUsage("argument FILE is missing")
	case len(a.files) > 1 || len(a.files) == 1 && period:
		return wrongUsage("unexpected argument %.80q", a.files[len(a.files)-1])
	case !period && (!a.since.IsZero() || !a.until.IsZero()):
		return wrongUsage("--since and --until need --tiles: one file of evidence is about one run or dispatch")
	case period && (a.html != "" || a.stamps != ""):
		return wrongUsage("--html and --stamps are for a file of evidence, not for --tiles")
	case period && !a.until.IsZero() && !a.since.Before(a.until):
		return wrongUsage("--since %s is not before --until %s", report.Clock(a.since), report.Clock(a.until))
	case a.trust == "":
		return wrongUsage("--trust is required: the file with the keys whose signatures count")
	case a.output != "text" && a.output != "json":
		return wrongUsage("-o %.40q: want text or json", a.output)
	}
	return nil
}

// verdictReport is what the command prints.
type verdictReport interface {
	JSON() ([]byte, error)
	Text() string
	Failed() bool
}

func command(args []string, stdout, stderr io.Writer, fs Files) (bool, error) {
	a, err := parse(args, fs.Now)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return false, err
	case err != nil:
		return false, err
	case a.version:
		_, err := fmt.Fprintf(stdout, "bailiwick-verify version %s\n", api.Version())
		return err == nil, err
	}
	if err := a.check(); err != nil {
		return false, err
	}
	t, err := readTrust(fs, a.trust)
	if err != nil {
		return false, err
	}
	copies, err := readCopies(fs, a.anchors)
	if err != nil {
		return false, err
	}
	var r verdictReport
	var claim report.Claim
	if a.tiles != "" {
		open := func(name string) (io.ReadCloser, error) {
			return fs.Open(filepath.Join(a.tiles, filepath.FromSlash(name)))
		}
		whole, err := VerifyPeriod(open, t, Period{Since: a.since, Until: a.until, Copies: copies})
		if err != nil {
			return false, fmt.Errorf("--tiles %s: %w", a.tiles, err)
		}
		r, claim = &whole, whole.Claim
	} else {
		one, err := verifyFile(&a, fs, t, copies)
		if err != nil {
			return false, err
		}
		r, claim = one, one.Claim
	}
	return printed(r, claim, &a, stdout, stderr)
}

// printed prints a report, and reports whether it is what was required.
func printed(r verdictReport, claim report.Claim, a *arguments, stdout, stderr io.Writer) (bool, error) {
	out, err := []byte(nil), error(nil)
	if a.output == "json" {
		out, err = r.JSON()
	} else {
		out = []byte(r.Text())
	}
	if err == nil {
		_, err = stdout.Write(out)
	}
	if err != nil {
		return false, err
	}
	enough := claim.AtLeast(report.Claim(a.require))
	if !r.Failed() && !enough && a.output == "text" {
		fmt.Fprintf(stderr, "bailiwick-verify: no check fails, but the claim is %s, weaker than %s\n", claim, a.require)
	}
	return !r.Failed() && enough, nil
}

// verifyFile verifies a file of evidence.
func verifyFile(a *arguments, fs Files, t Trust, copies []Copy) (*report.Report, error) {
	records := &CallRecords{}
	b, err := readBundle(fs, a.files[0], records)
	if err != nil {
		return nil, err
	}
	if a.stamps != "" {
		if err := writeStamps(fs, a.stamps, b); err != nil {
			return nil, err
		}
	}
	r := Verify(b, t, Options{Copies: copies, Calls: records})
	if a.html != "" {
		if err := writeHTML(fs, a.html, &r); err != nil {
			return nil, err
		}
	}
	return &r, nil
}

// writeHTML writes a report to a new file.
func writeHTML(files Files, name string, r *report.Report) error {
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
