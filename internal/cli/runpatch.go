package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
		Long: `Print the patch of a task, for git apply. With --all every task's patch is written to
DIR/TASK.patch. With --merge the patches of all done tasks are put on a new branch of
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
			case wanted != 1:
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

// writtenPatch is a line of run patch --all.
type writtenPatch struct {
	Task    api.TaskID    `json:"task"`
	File    string        `json:"file,omitempty"`
	Size    int64         `json:"size,omitempty"`
	Digest  api.Digest    `json:"digest,omitempty"`
	Partial bool          `json:"partial,omitempty"`
	State   api.TaskState `json:"state"`
	Why     string        `json:"why,omitempty"` // there is none
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
	list := []writtenPatch{}
	for i := range run.Tasks {
		w, err := t.writePatch(ctx, r, root, &run.Tasks[i])
		if err != nil {
			return fmt.Errorf("task %s: %w", run.Tasks[i].Task, err)
		}
		if w.File != "" {
			w.File = filepath.Join(dir, w.File)
		}
		list = append(list, w)
	}
	return printList(t, list, func(w writtenPatch) string { return w.File }, "TASK\tSTATE\tPATCH", func(w writtenPatch) string {
		what := "none: " + w.Why
		if w.File != "" {
			what = fmt.Sprintf("%s (%s)", w.File, bytesText(w.Size))
		}
		if w.Partial {
			what += ", partial: captured before the work was complete"
		}
		return fmt.Sprintf("%s\t%s\t%s", w.Task, w.State, what)
	})
}

func (t *tree) writePatch(ctx context.Context, r client.Runtime, root *os.Root, task *api.RunTask) (writtenPatch, error) {
	w := writtenPatch{Task: task.Task, State: task.State}
	if task.DispatchID == "" {
		w.Why = "it was never started"
		return w, nil
	}
	d, err := r.Describe(ctx, task.DispatchID, 0)
	switch {
	case err != nil:
		return w, err
	case d.Outcome == nil:
		w.Why = "it has not ended"
		return w, nil
	case d.Outcome.Patch == nil:
		w.Why = "nothing that a patch takes has changed"
		return w, nil
	}
	// The id of a task is the name of a file and nothing else. A file or link
	// that is there is left alone.
	name := string(task.Task) + ".patch"
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return w, inTheWay(err)
	}
	if err := errors.Join(r.Patch(ctx, d.ID, d.Attempt, f), f.Close()); err != nil {
		return w, errors.Join(err, root.Remove(name)) // what is not whole must not look like the patch
	}
	w.File, w.Size, w.Digest, w.Partial = name, d.Outcome.Patch.Size, d.Outcome.Patch.Digest, d.Outcome.Partial
	return w, nil
}
