package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) printDispatches(list []api.Dispatch) error {
	switch t.output {
	case "json":
		return t.printJSON(list)
	case "jsonl":
		for _, d := range list {
			if err := t.printJSON(d); err != nil {
				return err
			}
		}
		return nil
	case "name":
		for _, d := range list {
			fmt.Fprintln(t.Stdout, d.ID)
		}
		return nil
	}
	w := tabwriter.NewWriter(t.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tSUBAGENT\tPRINCIPAL\tACCEPTED")
	for _, d := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.ID, stateText(d), d.Subagent, d.Principal, d.AcceptedAt.Format(timeFormat))
	}
	return w.Flush()
}

func stateText(d api.Dispatch) string {
	if d.Reason != "" {
		return string(d.State) + ": " + string(d.Reason)
	}
	return string(d.State)
}

func (t *tree) printDispatch(d api.Dispatch) error {
	switch t.output {
	case "json", "jsonl":
		return t.printJSON(d)
	case "name":
		fmt.Fprintln(t.Stdout, d.ID)
		return nil
	}
	t.row("dispatch", "%s %s", d.ID, stateText(d))
	switch {
	case d.Message == "" || d.Question != nil && d.State == api.EventNeedsInput: // it is the question's beginning
	case d.State == api.EventNeedsInput:
		t.row("question", "%s", d.Message)
	default:
		t.row("", "%s", quoted(d.Message))
	}
	t.printQuestion(d)
	if d.CancelBy != "" {
		t.row("cancelled", "by %s", d.CancelBy)
		if d.CancelReason != "" && !strings.Contains(d.Message, d.CancelReason) {
			t.row("", "%s", quoted(d.CancelReason))
		}
	}
	t.row("subagent", "%s (role %s, tier %s) on target %s", d.Subagent, d.Role, d.Tier, d.Target)
	t.row("principal", "%s", d.Principal)
	if d.Source != nil {
		t.row("source", "%s at %s", d.Source.Name, d.Source.Commit)
	}
	t.row("accepted", "%s under catalog revision %d", d.AcceptedAt.Format(timeFormat), d.Revision)
	t.row("manifest", "%s", d.Manifest)
	if d.Outcome != nil {
		t.printOutcome(*d.Outcome)
	}
	if d.Result != "" {
		t.row("result", "%s", d.Result)
	}
	if id := d.Trace.ID(); id != "" {
		t.row("trace", "%s", id)
	}
	t.printKept(d)
	t.row("mode", "%s", modeText(d.Mode))
	return nil
}

// shownFiles is how many changed files are printed; -o json has them all.
const shownFiles = 20

func (t *tree) printOutcome(o api.ResultSummary) {
	var steps []string
	for _, s := range o.Steps {
		steps = append(steps, fmt.Sprintf("%s %.2fs", s.Name, s.Seconds))
	}
	if len(steps) > 0 {
		t.row("took", "%s", strings.Join(steps, ", "))
	}
	partial := ""
	if o.Partial {
		partial = " (partial: captured before the work was complete)"
	}
	switch {
	case o.Patch != nil:
		t.row("patch", "%d bytes %s%s", o.Patch.Size, o.Patch.Digest, partial)
		for i, f := range o.Files {
			if i == shownFiles {
				t.row("", "and %d more", len(o.Files)-shownFiles)
				break
			}
			t.row("", "%-8s %s", f.Change, f.Path)
		}
	case o.Captured:
		t.row("patch", "none: nothing that a patch takes has changed%s", partial)
	default:
		t.row("patch", "none: nothing was captured")
	}
	for i, f := range o.Outputs {
		label := "outputs"
		if i > 0 {
			label = ""
		}
		t.row(label, "%s (%d bytes) %s", f.Path, f.Size, f.Digest)
	}
	for i, l := range o.LeftOut {
		label := "left out"
		if i > 0 {
			label = ""
		}
		t.row(label, "%s: %s", l.Path, l.Why)
	}
	if v := o.Verify; v != nil {
		said := "RED"
		if v.Passed {
			said = "green"
		}
		t.row("verify", "%s, exit status %d after %.2fs %s", said, v.ExitCode, v.Seconds, v.Message)
	}
	if len(o.Value) > 0 {
		t.row("value", "%s", o.Value)
	}
	if o.Isolation.Level != "" {
		t.row("isolation", "%s: %s", o.Isolation.Level, strings.Join(o.Isolation.Layers, ", "))
		t.row("limits", "%s", strings.Join(o.Isolation.Limits, ", "))
	}
	if o.LogBytes > o.LogKept {
		t.row("log", "%d bytes kept of %d written", o.LogKept, o.LogBytes)
	}
}

func (t *tree) patchCommand() *cobra.Command {
	var file string
	var attempt int
	cmd := &cobra.Command{
		Use: "patch ID", Short: "Print the patch of a dispatch, for git apply", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				if file == "" {
					return r.Patch(cmd.Context(), id, attempt, t.Stdout)
				}
				return writeFile(file, func(w io.Writer) error { return r.Patch(cmd.Context(), id, attempt, w) })
			})
		},
	}
	cmd.Flags().StringVar(&file, "to", "", "write it to this file")
	attemptFlag(cmd, &attempt)
	return cmd
}

// writeFile makes a new file and keeps it only if it is whole.
func writeFile(path string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // G302, G304: the user's own file, by the user's own name
	if err != nil {
		return inTheWay(err)
	}
	if err := errors.Join(fill(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// inTheWay says what to do about a file that is there already.
func inTheWay(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return api.Errorf(api.CodeConflict, "%w", err).WithHint("nothing is overwritten; name another place")
	}
	return err
}

func (t *tree) outputsCommand() *cobra.Command {
	var dir string
	var attempt int
	cmd := &cobra.Command{
		Use: "outputs ID [PATH]", Short: "List the outputs of a dispatch, print one, or write all to a folder", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				if len(args) == 2 && dir != "" {
					return api.Errorf(api.CodeInvalid, "%s, --dir %s: one output is printed, --dir writes all of them; want one of the two", args[1], dir)
				}
				if len(args) == 2 {
					return r.Output(cmd.Context(), id, attempt, args[1], t.Stdout)
				}
				d, err := r.Attempt(cmd.Context(), id, attempt)
				if err != nil {
					return err
				}
				if d.Outcome == nil {
					return api.Errorf(api.CodeNotFinished, "dispatch %s has not ended", id)
				}
				if dir != "" {
					return t.writeOutputs(cmd.Context(), r, d, dir)
				}
				return t.listOutputs(append([]api.Artifact{}, d.Outcome.Outputs...))
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all of them below this folder, which is made")
	attemptFlag(cmd, &attempt)
	return cmd
}

func (t *tree) listOutputs(list []api.Artifact) error {
	if t.output == "json" {
		return t.printJSON(list)
	}
	for _, a := range list {
		switch t.output {
		case "jsonl":
			if err := t.printJSON(a); err != nil {
				return err
			}
		case "name":
			fmt.Fprintln(t.Stdout, plain(a.Path))
		default:
			fmt.Fprintf(t.Stdout, "%10d  %s  %s\n", a.Size, a.Digest, plain(a.Path))
		}
	}
	return nil
}

// writeOutputs writes below dir and nowhere else, whatever the paths are.
func (t *tree) writeOutputs(ctx context.Context, r client.Runtime, d api.Dispatch, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: the user's own folder
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	for _, a := range d.Outcome.Outputs {
		if err := root.MkdirAll(filepath.Dir(a.Path), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(a.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return inTheWay(err)
		}
		if err := errors.Join(r.Output(ctx, d.ID, d.Attempt, a.Path, f), f.Close()); err != nil {
			// What is not whole must not look like the output.
			return fmt.Errorf("output %s: %w", a.Path, errors.Join(err, root.Remove(a.Path)))
		}
		fmt.Fprintf(t.Stderr, "wrote %s\n", plain(filepath.Join(dir, a.Path)))
	}
	return nil
}
