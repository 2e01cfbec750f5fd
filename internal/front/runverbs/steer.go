package runverbs

import (
	"context"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *commands) cancelCommand(v *console.Verb) {
	var task, reason string
	wait := 30 * time.Second
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, _ []string) error {
		var a console.Args
		req := api.RunCancel{Task: taskID(&a, task), Reason: reason}
		if a.Wait("--wait", wait); a.Err != nil {
			return a.Err
		}
		if over, err := t.over(ctx, c.Runtime(), id, req.Task, "cancel"); over || err != nil {
			return err
		}
		if _, err := c.Operator().CancelRun(ctx, id, req); err != nil {
			return err
		}
		if wait > 0 {
			err := awaitCancelled(ctx, c.Runtime(), id, req.Task, wait)
			if api.CodeOf(err) == api.CodeNotFinished {
				what := "run " + string(id)
				if req.Task != "" {
					what = "task " + string(req.Task) + " of " + what
				}
				return api.Errorf(api.CodeNotFinished, "%s was cancelled but has not ended within %s", what, wait).WithHint("see: bailiwick run show %s", id)
			}
			if err != nil {
				return err
			}
		}
		if req.Task != "" && t.Format == "text" {
			return t.printCancelledTask(ctx, c.Runtime(), id, req.Task)
		}
		return t.printSteered(ctx, c.Runtime(), id, "is being cancelled")
	})
	v.Flag(&task, "task")
	v.Flag(&reason, "reason")
	v.Flag(&wait, "wait")
}

// printCancelledTask says what became of a cancelled task, of those that depend on
// it, and of the run.
func (t *commands) printCancelledTask(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	one, err := taskOf(&run, task)
	if err != nil {
		return err
	}
	skipped, open := 0, 0
	for i := range run.Tasks {
		switch other := &run.Tasks[i]; {
		case other.Cause == task:
			skipped++
		case other.Task != task && !other.State.Settled():
			open++
		}
	}
	state := "is being cancelled"
	if one.State.Settled() {
		state = "is " + string(one.State)
	}
	fmt.Fprintf(t.Stdout, "task %s of run %s %s", task, id, state)
	if skipped > 0 {
		fmt.Fprintf(t.Stdout, ", %s skipped because of it", record.Plural(skipped, "task"))
	}
	if run.State.Settled() {
		fmt.Fprintf(t.Stdout, "; the run is %s: %s\n", run.State, countsText(run.Counts))
	} else {
		fmt.Fprintf(t.Stdout, "; the run continues with %s\n", record.Plural(open, "other task"))
	}
	fmt.Fprintf(t.Stderr, "next: %s\n", console.Line(nextCommand(&run)))
	return nil
}

// awaitCancelled is awaitRun for a run or task that may have ended long ago: its
// last event may belong to an earlier run.
func awaitCancelled(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID, wait time.Duration) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil || run.State.Settled() {
		return err
	}
	if one, err := taskOf(&run, task); err == nil && one.State.Settled() {
		return nil
	}
	return awaitRun(ctx, r, id, task, wait, func(api.RunEvent) {})
}

// steerVerb makes a verb that changes how a run continues.
func (t *commands) steerVerb(done string, do func(client.Operator, context.Context, api.RunID) (api.Run, error)) func(*console.Verb) {
	return func(v *console.Verb) {
		t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, _ []string) error {
			if over, err := t.over(ctx, c.Runtime(), id, "", v.Name()); over || err != nil {
				return err
			}
			if _, err := do(c.Operator(), ctx, id); err != nil {
				return err
			}
			return t.printSteered(ctx, c.Runtime(), id, done)
		})
	}
}

// over reports whether there is nothing left to do for a verb that steers a run
// or one of its tasks: it was cancelled before. Any other end is an error.
func (t *commands) over(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID, verb string) (bool, error) {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return false, err
	}
	what, state, settled, cancelled := "run "+string(id), string(run.State), run.State.Settled(), run.State == api.RunCancelled
	if task != "" {
		one, err := taskOf(&run, task)
		if err != nil {
			return false, nil //nolint:nilerr // the service refuses it, and logs that
		}
		what, state = fmt.Sprintf("task %s of %s", task, what), string(one.State)
		settled, cancelled = one.State.Settled(), one.State == api.TaskCancelled
	}
	switch {
	case !settled:
		return false, nil
	case !cancelled || verb != "cancel":
		return false, api.Errorf(api.CodeConflict, "%s is %s: there is nothing to %s", what, state, verb).WithHint("see: bailiwick run show %s", id)
	case t.Format != "text":
		return true, runPrinter{t.Output}.print(ctx, r, &run, nil)
	}
	fmt.Fprintf(t.Stdout, "%s is already cancelled\n", what)
	return true, nil
}

// printSteered prints a run after a verb that changed it, and as text what was
// done.
func (t *commands) printSteered(ctx context.Context, r client.Runtime, id api.RunID, done string) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	if t.Format != "text" {
		return runPrinter{t.Output}.print(ctx, r, &run, nil)
	}
	if run.State.Settled() {
		done = "is " + string(run.State)
	}
	fmt.Fprintf(t.Stdout, "run %s %s: %s\n", run.RunID, done, countsText(run.Counts))
	fmt.Fprintf(t.Stderr, "next: %s\n", console.Line(nextCommand(&run)))
	return nil
}

func (t *commands) answerCommand(v *console.Verb) {
	var task string
	var option, attempt int
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, args []string) error {
		var a console.Args
		req := api.RunAnswer{Task: taskID(&a, task), Option: option, Attempt: attempt}
		if a.Err != nil {
			return a.Err
		}
		run, err := wholeRun(ctx, c.Runtime(), id)
		if err != nil {
			return err
		}
		if req.Task == "" {
			if req.Task, err = askingTask(&run); err != nil {
				return err
			}
		}
		if req.Text, err = console.ReadAnswer(args[1:], option, t.Stdin, "bailiwick run show "+console.Line(args[0])); err != nil {
			return err
		}
		pinQuestion(ctx, c.Runtime(), &run, &req)
		if _, err := c.Operator().AnswerRun(ctx, id, req); err != nil {
			return err
		}
		return t.printSteered(ctx, c.Runtime(), id, "has its answer")
	})
	v.Flag(&task, "task")
	v.Flag(&option, "option")
	v.Flag(&attempt, "attempt")
}

// askingTask returns the only task of a run that asks.
func askingTask(run *api.Run) (api.TaskID, error) {
	var asking []api.TaskID
	for i := range run.Tasks {
		if run.Tasks[i].Asks {
			asking = append(asking, run.Tasks[i].Task)
		}
	}
	switch len(asking) {
	case 0:
		return "", api.Errorf(api.CodeConflict, "run %s is %s and has no open question", run.RunID, run.State).WithHint("see: bailiwick run show %s", run.RunID)
	case 1:
		return asking[0], nil
	}
	shown := console.Joined(asking[:min(len(asking), maxTroubles)], ", ", "")
	if rest := len(asking) - maxTroubles; rest > 0 {
		shown += fmt.Sprintf(" and %d more", rest)
	}
	return "", api.Errorf(api.CodeInvalid, "%d tasks of run %s ask: %s", len(asking), run.RunID, shown).
		WithHint("name one with --task; see the questions: bailiwick run show %s", run.RunID)
}

// pinQuestion names in an answer the dispatch and the attempt whose question is
// open now, so that a late or repeated answer reaches no other question. Without
// an open question the service refuses the answer.
func pinQuestion(ctx context.Context, r client.Runtime, run *api.Run, req *api.RunAnswer) {
	task, err := taskOf(run, req.Task)
	if err != nil || !task.Asks {
		return
	}
	req.DispatchID = task.DispatchID
	if req.Attempt > 0 {
		return
	}
	if d, err := r.Describe(ctx, task.DispatchID, 0); err == nil {
		req.Attempt = d.Attempt
	}
}
