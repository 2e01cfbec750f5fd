package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) runPatchCommand() *cobra.Command {
	var all bool
	var dir string
	var f mergeFlags
	cmd := &cobra.Command{
		Use: "patch RUN [TASK]", Short: "Print a task's patch, write all patches, or merge them to a new branch", Args: cobra.RangeArgs(1, 2),
		Long: `Print the patch of a task, for git apply; without TASK, list which tasks have one. With
--all every task's patch is written to DIR/TASK.patch. With --merge the patches of all done tasks are put on a new branch of
the git repository in DIR, each as a commit on what its task started from, merged in
the order in which the tasks depend on each other. No work tree and no branch that is
there is touched. Where patches contradict each other nothing is written, unless
--keep-going leaves out those that do; the exit status is 1 either way.`,
		Example: `  bailiwick run patch RUN TASK | git apply
  bailiwick run patch RUN --all --dir patches
  bailiwick run patch RUN --merge night-work --repo ~/service`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			var task api.TaskID
			merge, wanted := cmd.Flags().Changed("merge"), 0
			for _, one := range []bool{len(args) == 2, all, merge} {
				if one {
					wanted++
				}
			}
			if len(args) == 2 {
				task = p.task(args[1])
			}
			switch {
			case p.err != nil:
				return p.err
			case wanted > 1:
				return api.Errorf(api.CodeInvalid, "patch: want a task, --all or --merge BRANCH, one of the three")
			case !all && cmd.Flags().Changed("dir"), !merge && (f.repo != "" || f.source != "" || f.keepGoing):
				return api.Errorf(api.CodeInvalid, "patch: --dir goes with --all; --repo, --source and --keep-going go with --merge")
			case merge && f.branch == "":
				return api.Errorf(api.CodeInvalid, "patch: --merge wants the name of the new branch")
			}
			return t.withRun(args[0], func(c *client.Conn, id api.RunID) error {
				run, err := wholeRun(cmd.Context(), c.Runtime(), id)
				switch {
				case err != nil:
					return err
				case all:
					return t.writePatches(cmd.Context(), c.Runtime(), &run, dir)
				case merge:
					return t.mergeRun(cmd.Context(), c.Runtime(), run, f)
				case task == "":
					return t.listPatches(cmd.Context(), c.Runtime(), &run)
				}
				return t.printPatch(cmd.Context(), c.Runtime(), &run, task)
			})
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&all, "all", false, "write every task's patch to a new file")
	fl.StringVar(&dir, "dir", ".", "folder for --all, which is made")
	fl.StringVar(&f.branch, "merge", "", "put all patches on this new branch")
	fl.StringVar(&f.repo, "repo", "", "git repository for --merge (default: the one of the current folder)")
	fl.StringVar(&f.source, "source", "", "merge what changes this source (default: the only one)")
	fl.BoolVar(&f.keepGoing, "keep-going", false, "leave out what cannot be merged, and merge the rest")
	return cmd
}

func (t *tree) printPatch(ctx context.Context, r client.Runtime, run *api.Run, id api.TaskID) error {
	task, err := taskOf(run, id)
	if err != nil {
		return err
	}
	if task.DispatchID == "" {
		return api.Errorf(api.CodeNotFound, "task %s of run %s is %s and was never started, so it has no patch", id, run.RunID, task.State)
	}
	return r.Patch(ctx, task.DispatchID, 0, t.Stdout)
}

// runPatch is what there is of a task's patch.
type runPatch struct {
	Task    api.TaskID    `json:"task"`
	State   api.TaskState `json:"state"`
	Size    int64         `json:"size,omitempty"`
	Digest  api.Digest    `json:"digest,omitempty"`
	Partial bool          `json:"partial,omitempty"`
	Why     string        `json:"why,omitempty"`  // there is none
	File    string        `json:"file,omitempty"` // where it was written

	dispatch api.DispatchID
	attempt  int // of the dispatch
}

func (p runPatch) there() bool { return p.Why == "" }

func describePatch(ctx context.Context, r client.Runtime, task *api.RunTask) (runPatch, error) {
	p := runPatch{Task: task.Task, State: task.State}
	if task.DispatchID == "" {
		p.Why = "it was never started"
		return p, nil
	}
	d, err := r.Describe(ctx, task.DispatchID, 0)
	switch {
	case err != nil:
		return p, fmt.Errorf("task %s: %w", task.Task, err)
	case d.Outcome == nil:
		p.Why = "it has not ended"
	case d.Outcome.Patch == nil:
		p.Why = "nothing that a patch takes has changed"
	default:
		p.Size, p.Digest, p.Partial, p.dispatch, p.attempt = d.Outcome.Patch.Size, d.Outcome.Patch.Digest, d.Outcome.Partial, d.ID, d.Attempt
	}
	return p, nil
}

func (t *tree) listPatches(ctx context.Context, r client.Runtime, run *api.Run) error {
	list := []runPatch{}
	for i := range run.Tasks {
		p, err := describePatch(ctx, r, &run.Tasks[i])
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	if t.output == "name" {
		list = slices.DeleteFunc(list, func(p runPatch) bool { return !p.there() })
	}
	return t.printPatches(list, func(p runPatch) string { return string(p.Task) })
}

func (t *tree) printPatches(list []runPatch, name func(runPatch) string) error {
	return printList(t, list, name, "TASK\tSTATE\tPATCH", func(p runPatch) string {
		what := "none: " + p.Why
		if p.there() {
			what = strings.TrimSpace(p.File + " " + bytesText(p.Size))
		}
		if p.Partial {
			what += ", partial: captured before the work was complete"
		}
		return fmt.Sprintf("%s\t%s\t%s", p.Task, p.State, what)
	})
}

// writePatches writes every task's patch below dir and nowhere else.
func (t *tree) writePatches(ctx context.Context, r client.Runtime, run *api.Run, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: the user's own folder
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	list := []runPatch{}
	for i := range run.Tasks {
		p, err := describePatch(ctx, r, &run.Tasks[i])
		if err != nil {
			return err
		}
		if p.there() {
			// The id of a task is the name of a file and nothing else.
			name := string(p.Task) + ".patch"
			if err := writeBelow(root, name, func(w io.Writer) error { return r.Patch(ctx, p.dispatch, p.attempt, w) }); err != nil {
				return fmt.Errorf("task %s: %w", p.Task, err)
			}
			p.File = filepath.Join(dir, name)
		} else if t.output == "name" {
			continue
		}
		list = append(list, p)
	}
	return t.printPatches(list, func(p runPatch) string { return p.File })
}

// writeBelow makes a new file, and keeps it only if it is whole. A file or link
// that is there is left alone.
func writeBelow(root *os.Root, name string, fill func(io.Writer) error) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return inTheWay(err)
	}
	if err := errors.Join(fill(f), f.Close()); err != nil {
		return errors.Join(err, root.Remove(name))
	}
	return nil
}
