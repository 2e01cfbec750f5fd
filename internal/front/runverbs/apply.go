package runverbs

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *patchVerbs) applyCommand(v *console.Verb) {
	var f mergeFlags
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error {
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
	f.add(v)
	v.Flag(&f.source, "source")
	v.Flag(&f.keepGoing, "keep-going")
}

func (f *mergeFlags) add(v *console.Verb) {
	v.Flag(&f.branch, "branch")
	v.Flag(&f.repo, "repo")
}

func (t *patchVerbs) dispatchApplyCommand(v *console.Verb) {
	var f mergeFlags
	v.Do(func(ctx context.Context, args []string) error {
		id, err := api.ParseDispatchID(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		c := t.Start()
		defer c.Close()
		d, err := c.Runtime().Describe(ctx, id, 0)
		if err != nil {
			return err
		}
		if err := appliable(&d); err != nil {
			return err
		}
		work := doneTask{api.RunTask{Task: d.Task, Subagent: d.Subagent, DispatchID: id, State: api.TaskDone}, d}
		return t.mergePatches(ctx, c.Runtime(), mergeReport{Run: d.Run, Dispatch: id, LeftOut: []taskLeftOut{}}, []doneTask{work}, f)
	})
	f.add(v)
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
