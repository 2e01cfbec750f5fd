package runverbs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// applyRules is what the help of both verbs says about where patches go.
const applyRules = `Without --branch they become changes of the work tree, not staged and not committed, on top
of the commit that is checked out there; with --branch a new branch. The repository must have
the commit that the work started from. If a patch conflicts, or the work tree has changes of
its own in the same files, nothing is written. No hook, filter or setting of the repository
takes part, and a path or a symbolic link that leads out of the work tree is refused.`

func (t *commands) applyCommand() *cobra.Command {
	var f mergeFlags
	cmd := t.runVerb(&cobra.Command{
		Use: "apply RUN [TASK]", Short: "Apply the patches of done tasks to a work tree, or to a new branch", Args: cobra.RangeArgs(1, 2),
		Long:    "Apply the patches of all done tasks of a run, in the order of their dependencies, or the patch\nof one task.\n\n" + applyRules,
		Example: console.Examples("bailiwick run apply RUN", "bailiwick run apply RUN TASK --repo ~/service", "bailiwick run apply RUN --branch night-work"),
	}, func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error {
		var a console.Args
		if len(args) == 2 {
			if f.task = console.Parse(&a, args[1], api.ParseGrownTaskID); a.Err != nil {
				return a.Err
			}
		}
		run, err := wholeRun(ctx, c.Runtime(), id)
		if err != nil {
			return err
		}
		return t.mergeRun(ctx, c.Runtime(), run, f)
	})
	f.add(cmd)
	cmd.Flags().StringVar(&f.source, "source", "", "apply the patches of this source (default: the only one)")
	cmd.Flags().BoolVar(&f.keepGoing, "keep-going", false, "leave out patches that conflict, and apply the rest")
	return cmd
}

func (f *mergeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.branch, "branch", "", "put them on this new branch (default: into the work tree)")
	cmd.Flags().StringVar(&f.repo, "repo", "", "git repository (default: that of the current folder)")
}

// DispatchApply is the verb apply of the noun dispatch, which shares everything
// with that of runs.
func DispatchApply(cfg Config) *cobra.Command {
	t, f := &commands{cfg}, mergeFlags{}
	cmd := &cobra.Command{
		Use: "apply ID", Short: "Apply the patch of a dispatch to a work tree, or to a new branch", Args: cobra.ExactArgs(1),
		Long:    "Apply the patch of a finished dispatch.\n\n" + applyRules,
		Example: console.Examples("bailiwick dispatch apply ID", "bailiwick dispatch apply ID --repo ~/service --branch fix"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := api.ParseDispatchID(args[0])
			if err != nil {
				return api.Errorf(api.CodeInvalid, "%w", err)
			}
			c := t.Start()
			defer c.Close()
			d, err := c.Runtime().Describe(cmd.Context(), id, 0)
			if err != nil {
				return err
			}
			if err := appliable(&d); err != nil {
				return err
			}
			work := doneTask{api.RunTask{Task: d.Task, Subagent: d.Subagent, DispatchID: id, State: api.TaskDone}, d}
			return t.mergePatches(cmd.Context(), c.Runtime(), mergeReport{Run: d.Run, Dispatch: id, LeftOut: []taskLeftOut{}}, []doneTask{work}, f)
		},
	}
	f.add(cmd)
	return cmd
}

// appliable refuses a dispatch that has not finished, or has no patch to apply.
func appliable(d *api.Dispatch) error {
	switch {
	case !d.State.Ended():
		return api.Errorf(api.CodeNotFinished, "dispatch %s has not ended", d.ID)
	case d.State != api.EventFinished:
		return api.Errorf(api.CodeConflict, "dispatch %s is %s: only the patch of a finished one is applied", d.ID, d.State).
			WithHint("if it kept a partial patch, look at it: bailiwick dispatch patch %s", d.ID)
	case d.Outcome == nil || d.Outcome.Patch == nil || d.Source == nil:
		return api.Errorf(api.CodeNotFound, "dispatch %s has no patch: %s", d.ID, console.NoChanges)
	case d.Outcome.Patch.Redacted:
		return api.Errorf(api.CodeConflict, "dispatch %s: values of secrets were removed from its patch, so it is not what the agent wrote", d.ID).
			WithHint("look at it: bailiwick dispatch patch %s; have the agent work without writing values into files", d.ID)
	case !isCommit(d.Source.Commit):
		return api.Errorf(api.CodeIntegrity, "dispatch %s: source %s at %q, which is not a commit id", d.ID, d.Source.Name, d.Source.Commit)
	}
	return nil
}
