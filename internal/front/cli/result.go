package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/runverbs"
)

func stateText(d api.Dispatch) string {
	if d.Reason != "" {
		return string(d.State) + ": " + string(d.Reason)
	}
	return string(d.State)
}

// printed prints the record that a call returned, unless the call failed.
func (t *dispatchVerbs) printed(d api.Dispatch, err error) error {
	if err != nil {
		return err
	}
	return t.printDispatch(d)
}

func (t *dispatchVerbs) printDispatch(d api.Dispatch) error {
	return t.Emit(d, string(d.ID), func() { t.printRecord(d) })
}

// printEnd prints what a dispatch came to, or with f.full its whole record.
func (t *dispatchVerbs) printEnd(d api.Dispatch, f followFlags) error {
	if f.full || t.Format != "text" {
		return t.printDispatch(d)
	}
	t.printState(d)
	if d.Outcome != nil {
		t.printOutcome(*d.Outcome, d.State)
		t.printAgent(&d)
	}
	t.printTools(&d)
	t.Row("next", "%s", nextCommand(d, f.again))
	return nil
}

// nextCommand returns the command that a person wants next. again is the one that
// starts the same work once more, if it is known.
func nextCommand(d api.Dispatch, again string) string {
	verb := func(verb, more string) string { return fmt.Sprintf("bailiwick dispatch %s %s%s", verb, d.ID, more) }
	switch {
	case !d.State.Ended():
		return verb("logs", " -f")
	case d.State == api.EventNeedsInput:
		return verb("answer", " "+d.Question.AnswerForm())
	case d.State == api.EventFailed:
		return afterFailure(d, again, verb)
	case d.Outcome != nil && d.Outcome.Patch != nil:
		return verb("apply", "")
	case d.Outcome != nil && len(d.Outcome.Outputs) > 0:
		return verb("outputs", "")
	}
	return verb("show", "")
}

// afterFailure is nextCommand for a dispatch that failed.
func afterFailure(d api.Dispatch, again string, verb func(string, string) string) string {
	switch d.Reason { //nolint:exhaustive // the others are explained by the log
	case api.ReasonDenied:
		return runverbs.DenialOf(d.Message).Next(d.Principal, d.Subagent)
	case api.ReasonContext:
		return "bailiwick subagent show " + string(d.Subagent)
	case api.ReasonIntegrity:
		return "bailiwick doctor"
	case api.ReasonLost, api.ReasonFetch:
		if again != "" {
			return again
		}
	}
	return verb("logs", "")
}

// printState prints how a dispatch stands, with its question.
func (t *dispatchVerbs) printState(d api.Dispatch) {
	t.Row("dispatch", "%s %s", d.ID, stateText(d))
	switch {
	case d.Message == "" || d.Question != nil && d.State == api.EventNeedsInput: // the message repeats the question
	case d.State == api.EventNeedsInput:
		t.Row("question", "%s", d.Message)
	default:
		t.Row("", "%s", console.Quoted(d.Message))
	}
	t.printQuestion(d)
	if d.CancelBy != "" {
		t.Row("cancelled", "by %s", d.CancelBy)
		if d.CancelReason != "" && !strings.Contains(d.Message, d.CancelReason) {
			t.Row("", "%s", console.Quoted(d.CancelReason))
		}
	}
}

// printRecord prints all of a record.
func (t *dispatchVerbs) printRecord(d api.Dispatch) {
	t.printState(d)
	t.Row("subagent", "%s (role %s, tier %s) on target %s", d.Subagent, d.Role, d.Tier, d.Target)
	t.Row("principal", "%s", d.Principal)
	if r := d.Reused; r != nil {
		t.Row("reused", "from dispatch %s, which ended at %s with the same inputs; this one did not run", r.DispatchID, t.Time(r.EndedAt))
	}
	if d.Source != nil {
		t.Row("source", "%s at %s", d.Source.Name, d.Source.Commit)
	}
	t.Row("accepted", "%s under catalog revision %d", t.Time(d.AcceptedAt), d.Revision)
	t.Row("manifest", "%s", d.Manifest)
	if d.Outcome != nil {
		t.printOutcome(*d.Outcome, d.State)
		t.printAgent(&d)
		if d.Reused == nil {
			t.printConditions(*d.Outcome)
		}
	}
	t.printTools(&d)
	t.OptionalRow("result", "%s", string(d.Result))
	t.OptionalRow("trace", "%s", d.Trace.ID())
	if d.Pinned != nil {
		t.Row("pinned", "by %s at %s: kept until it is unpinned", d.Pinned.By, t.Time(d.Pinned.At))
	}
	for _, r := range d.Removed {
		by := "by the service"
		if r.By != "" {
			by = "for " + string(r.By)
		}
		t.Row("removed", "%s at %s, %s, by rule %s; a copy can be verified by its digest", r.Class, t.Time(r.At), by, r.Rule)
	}
	t.Row("mode", "%s", modeText(d.Mode))
	t.Row("next", "%s", nextCommand(d, ""))
}

// maxFiles is how many changed files are printed; -o json has all of them.
const maxFiles = 20

// printOutcome prints what a worker produced.
func (t *dispatchVerbs) printOutcome(o api.ResultSummary, state api.Event) {
	partial := ""
	if o.Partial {
		partial = " (partial: captured before the work was complete)"
	}
	switch {
	case o.Patch != nil:
		t.Row("patch", "%d bytes %s%s", o.Patch.Size, o.Patch.Digest, partial)
		for i, f := range o.Files {
			if i == maxFiles {
				t.Row("", "and %d more", len(o.Files)-maxFiles)
				break
			}
			t.Row("", "%-8s %s", f.Change, f.Path)
		}
	case o.Captured:
		t.Row("patch", "none: %s%s", console.NoChanges, partial)
	default:
		t.Row("patch", "none: nothing was captured")
	}
	t.Rows("outputs", len(o.Outputs), func(i int) string {
		f := o.Outputs[i]
		return fmt.Sprintf("%s (%d bytes) %s", f.Path, f.Size, f.Digest)
	})
	t.Rows("left out", len(o.LeftOut), func(i int) string { return o.LeftOut[i].Path + ": " + string(o.LeftOut[i].Why) })
	if v := o.Verify; v != nil {
		verdict := "RED"
		if v.Passed {
			verdict = "green"
		}
		t.Row("verify", "%s, exit status %d after %.2fs %s", verdict, v.ExitCode, v.Seconds, v.Message)
		if changed := v.ChangedText(revealed); changed != "" {
			t.Row("", "%s", changed)
		}
	} else if state == api.EventFinished {
		t.Row("verify", "none: the subagent has no verify command")
	}
	if len(o.Value) > 0 {
		t.Row("value", "%s", o.Value)
	}
	if u := o.Usage; u.WallSeconds != 0 || u.CPUSeconds != 0 || u.MaxMemory != 0 {
		t.Row("usage", "%.2fs, %.2fs of processor time, at most %s of memory", u.WallSeconds, u.CPUSeconds, console.Bytes(int64(u.MaxMemory)))
		if len(u.Reached) > 0 {
			t.Row("limits", "reached: %s", console.Line(strings.Join(u.Reached, ", ")))
		}
	}
}

// printConditions prints how long each step of a worker took, and what confined
// it.
func (t *dispatchVerbs) printConditions(o api.ResultSummary) {
	var steps []string
	for _, s := range o.Steps {
		steps = append(steps, fmt.Sprintf("%s %.2fs", s.Name, s.Seconds))
	}
	if len(steps) > 0 {
		t.Row("took", "%s", strings.Join(steps, ", "))
	}
	if o.Isolation.Level != "" {
		t.Row("isolation", "%s: %s", o.Isolation.Level, strings.Join(o.Isolation.Layers, ", "))
		t.Row("limits", "%s", strings.Join(o.Isolation.Limits, ", "))
	}
	if o.LogBytes > o.LogKept {
		t.Row("log", "%d bytes kept of %d written", o.LogKept, o.LogBytes)
	}
	if a := o.Transcript; a != nil {
		t.Row("transcript", "%d bytes %s", a.Size, a.Digest)
	}
	if a := o.Network; a != nil {
		t.Row("network", "%d bytes %s", a.Size, a.Digest)
	}
}

func (t *dispatchVerbs) patchCommand(v *console.Verb) {
	t.contentVerb(v, func(r client.Runtime, ctx context.Context, id api.DispatchID, attempt int, w io.Writer) error {
		if d, err := r.Describe(ctx, id, 0); err == nil && d.Outcome != nil && d.Outcome.Patch != nil && d.Outcome.Patch.Redacted {
			fmt.Fprintln(t.Stderr, console.RedactedPatch)
		}
		return r.Patch(ctx, id, attempt, w)
	})
}

func (t *dispatchVerbs) outputsCommand(v *console.Verb) {
	var dir string
	var attempt int
	var raw bool
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, args []string) error {
		if len(args) == 2 && dir != "" {
			return api.Errorf(api.CodeInvalid, "%s, --dir %s: PATH prints one output, --dir writes all of them; want one of the two", args[1], dir)
		}
		if len(args) == 2 {
			return t.Content(raw, func(w io.Writer) error { return r.Output(ctx, id, attempt, args[1], w) })
		}
		d, err := r.Attempt(ctx, id, attempt)
		switch {
		case err != nil:
			return err
		case d.Outcome == nil:
			return api.Errorf(api.CodeNotFinished, "dispatch %s has not ended", id)
		case dir != "":
			return t.writeOutputs(ctx, r, d, dir)
		}
		return t.listOutputs(d.Outcome.Outputs)
	})
	v.Flag(&dir, "dir")
	v.Flag(&raw, "raw")
	v.Flag(&attempt, "attempt")
}

func (t *dispatchVerbs) listOutputs(list []api.Artifact) error {
	if t.Format != "text" {
		return console.List(&t.Output, list, func(a api.Artifact) string { return a.Path }, "", nil)
	}
	for _, a := range list {
		fmt.Fprintf(t.Stdout, "%10d  %s  %s\n", a.Size, a.Digest, console.Plain(a.Path))
	}
	return nil
}

// writeOutputs writes below dir and nowhere else, whatever the paths are.
func (t *dispatchVerbs) writeOutputs(ctx context.Context, r client.Runtime, d api.Dispatch, dir string) error {
	folder, err := console.CreateFolder(dir)
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // nothing is written through it
	for _, a := range d.Outcome.Outputs {
		path, err := folder.WriteFile(a.Path, func(w io.Writer) error { return r.Output(ctx, d.ID, d.Attempt, a.Path, w) })
		if err != nil {
			return fmt.Errorf("output %s: %w", a.Path, err)
		}
		fmt.Fprintf(t.Stderr, "wrote %s\n", console.Plain(path))
	}
	return nil
}
