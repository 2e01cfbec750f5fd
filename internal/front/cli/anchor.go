package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// anchorVerbs are about an anchor for which the service does not start, so bailiwickd
// carries them out without a service.
type anchorVerbs struct {
	*operatorVerbs
	config string
}

func (t *anchorVerbs) noun(v *console.Verb) { v.FlagBelow(&t.config, "config") }

func (t *anchorVerbs) showCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, args []string) error {
		path, argv := t.daemon(t.args(t.Format, "show", args[0]))
		return t.executePath(ctx, path, argv, t.Stdin, t.File(), t.Stderr)
	})
}

// serviceAccount has the state of the machine's installation, and sudo leads there: only an
// administrator looks into it.
const (
	serviceAccount = "bailiwick"
	sudoProgram    = "/usr/bin/sudo"
)

// daemon is the command that runs bailiwickd where the state can be read.
func (t *anchorVerbs) daemon(args []string) (path string, argv []string) {
	path = t.sibling(daemonProgram)
	if !t.Dirs.System() {
		return path, args
	}
	return sudoProgram, append([]string{"-u", serviceAccount, "-H", "--", path}, args...)
}

// args are the arguments of bailiwickd.
func (t *anchorVerbs) args(format, verb string, args ...string) []string {
	all := append([]string{"anchor", verb, "-o", format}, args...)
	if t.config != "" {
		all = append(all, "--config", t.config)
	}
	return all
}

func (t *anchorVerbs) lostCommand(v *console.Verb) {
	var f lostFlags
	v.Do(func(ctx context.Context, args []string) error {
		name, err := api.ParseAnchorName(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		return t.nameLost(ctx, f, name)
	})
	f.addKeys(v)
	v.Flag(&f.with, "with")
	v.Flag(&f.out, "out")
}

// lostFlags let people sign under their own accounts while no service collects signatures.
type lostFlags struct {
	decideFlags
	with string // file with the envelopes of others
	out  string // file to write the envelopes to, instead of recording them
}

func (t *anchorVerbs) nameLost(ctx context.Context, f lostFlags, name string) error {
	signed, err := t.signLost(ctx, f, name)
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := durable.Create(f.out, signed, 0o644); err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		fmt.Fprintf(t.Stderr, "signed, and not recorded yet; the next operator adds a signature within %s: bailiwick anchor lost %s --with %s\n", api.OperatorRecordMaxAge, name, console.ShellText(f.out))
		return nil
	}
	var receipt api.OperatorReceipt
	if err := t.daemonAnswers(ctx, t.args("json", "record"), bytes.NewReader(signed), &receipt); err != nil {
		return err
	}
	return t.printReceipt(receipt, fmt.Sprintf("anchor %s is named as lost and gets no more checkpoints; give the log another anchor, with another name and place", name))
}

// signLost returns the envelopes of the decision that an anchor is lost, one a line. The last
// one is signed by this person.
func (t *anchorVerbs) signLost(ctx context.Context, f lostFlags, name string) ([]byte, error) {
	if f.with == "" {
		envelope, err := t.signFinding(ctx, f.decideFlags, name)
		return append(envelope, '\n'), err
	}
	others, err := readSmall(f.with)
	if err != nil {
		return nil, err
	}
	var e struct{ Payload []byte }
	var r api.OperatorRecord
	line, _, _ := bytes.Cut(others, []byte("\n"))
	if err = json.Unmarshal(line, &e); err == nil {
		err = canon.DecodeExact(e.Payload, &r)
	}
	if err == nil && (r.Verb != api.VerbAnchorLost || r.Anchor != name) {
		err = fmt.Errorf("it is not about the anchor %q", name)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%s: %w", f.with, err).WithHint("want a file that bailiwick anchor lost %s --out wrote", name)
	}
	envelope, err := t.sign(ctx, f.keys, e.Payload)
	return append(append(others, envelope...), '\n'), err
}

// signFinding signs what an anchor has that the log lacks.
func (t *anchorVerbs) signFinding(ctx context.Context, f decideFlags, name string) ([]byte, error) {
	var finding api.AnchorFinding
	if err := t.daemonAnswers(ctx, t.args("json", "show", name), nil, &finding); err != nil {
		return nil, err
	}
	if finding.Found == "" {
		return nil, api.Errorf(api.CodeConflict, "anchor %q agrees with the log: nothing is lost", name).WithHint("run: %s", api.StartService(t.Dirs.Mode))
	}
	fmt.Fprintln(t.Stderr, console.Plain(finding.Message))
	return t.signed(ctx, f, finding.Head, api.OperatorRecord{Verb: api.VerbAnchorLost, Anchor: name, Found: finding.Found})
}

// daemonAnswers runs bailiwickd, reads its answer and returns its error, both in
// JSON.
func (t *anchorVerbs) daemonAnswers(ctx context.Context, args []string, stdin io.Reader, answer any) error {
	var out, said bytes.Buffer
	path, argv := t.daemon(args)
	err := t.executePath(ctx, path, argv, stdin, &out, &said)
	if _, failed := errors.AsType[console.Exit](err); failed {
		var refused struct{ Error *api.Error }
		last := said.Bytes()[bytes.LastIndexByte(bytes.TrimSpace(said.Bytes()), '\n')+1:]
		if json.Unmarshal(last, &refused) == nil && refused.Error != nil {
			return refused.Error
		}
		fmt.Fprint(t.Stderr, console.Plain(said.String()))
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("%s: %w", daemonProgram, err)
	}
	return nil
}
