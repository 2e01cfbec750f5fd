package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) runCancelCommand() *cobra.Command {
	var task, reason string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "cancel RUN", Short: "End a run, or one of its tasks; what was done so far is kept", Args: cobra.ExactArgs(1),
		Long: `End a run: what runs is ended and its work kept as partial, what does not run yet never
does. With --task only that task ends; what depends on it is skipped.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			req := api.RunCancel{Task: p.task(task), Reason: reason}
			if err := checkWait(wait); err != nil || p.err != nil {
				return cmpErr(p.err, err)
			}
			return t.withRun(args[0], func(c *client.Conn, id api.RunID) error {
				run, err := c.Operator().CancelRun(cmd.Context(), id, req)
				if err != nil {
					return err
				}
				if wait > 0 {
					err := awaitEnded(cmd.Context(), c.Runtime(), id, req.Task, wait)
					if api.CodeOf(err) == api.CodeNotFinished {
						return api.Errorf(api.CodeNotFinished, "run %s has been asked to end and has not within %s", id, wait).WithHint("see: bailiwick run show %s", id)
					}
					if err != nil {
						return err
					}
				}
				return t.printSteered(cmd.Context(), c.Runtime(), run.RunID, "is asked to end")
			})
		},
	}
	cmd.Flags().StringVar(&task, "task", "", "only this task")
	cmd.Flags().StringVar(&reason, "reason", "", "why; goes into the log")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "wait for its end so long; 0 to return at once")
	return cmd
}

// awaitEnded is awaitRun for what may have ended long ago, in another run.
func awaitEnded(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID, wait time.Duration) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil || run.State.Settled() {
		return err
	}
	if one, err := taskOf(&run, task); err == nil && one.State.Settled() {
		return nil
	}
	return awaitRun(ctx, r, id, task, wait)
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func (t *tree) runPauseCommand() *cobra.Command {
	return t.steerCommand("pause", "Start nothing more of a run; what runs goes on", "is paused", func(ctx context.Context, o client.Operator, id api.RunID) (api.Run, error) {
		return o.PauseRun(ctx, id)
	})
}

func (t *tree) runResumeCommand() *cobra.Command {
	return t.steerCommand("resume", "Let a run that was paused go on", "goes on", func(ctx context.Context, o client.Operator, id api.RunID) (api.Run, error) {
		return o.ResumeRun(ctx, id)
	})
}

func (t *tree) steerCommand(verb, about, done string, do func(context.Context, client.Operator, api.RunID) (api.Run, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " RUN", Short: about, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withRun(args[0], func(c *client.Conn, id api.RunID) error {
				run, err := do(cmd.Context(), c.Operator(), id)
				if err != nil {
					return err
				}
				return t.printSteered(cmd.Context(), c.Runtime(), run.RunID, done)
			})
		},
	}
}

// printSteered prints a run that somebody did something to, and as text that it
// was done.
func (t *tree) printSteered(ctx context.Context, r client.Runtime, id api.RunID, done string) error {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return err
	}
	if t.output != "text" {
		return t.printRun(ctx, r, &run, false)
	}
	if run.State.Settled() {
		done = "is " + string(run.State)
	}
	fmt.Fprintf(t.Stdout, "run %s %s: %s\n", run.RunID, done, countsText(run.Counts))
	fmt.Fprintf(t.Stderr, "next: %s\n", plainLine(nextOf(&run)))
	return nil
}

func (t *tree) runRetryCommand() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: "retry RUN", Short: "Submit the plan of a settled run again; what is done is taken over", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			req := api.RunRetry{RunID: t.newRunID(&p, id)}
			if p.err != nil {
				return p.err
			}
			return t.withRun(args[0], func(c *client.Conn, old api.RunID) error {
				run, err := c.Operator().RetryRun(cmd.Context(), old, req)
				if err != nil {
					return unsure(err, req.RunID, "bailiwick run retry %s --id %s", old, req.RunID)
				}
				return t.printSubmitted(&run)
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "id of the new run; the same again gives the same run")
	return cmd
}

func (t *tree) runAnswerCommand() *cobra.Command {
	var task string
	var option, attempt int
	cmd := &cobra.Command{
		Use: "answer RUN [TEXT]", Short: "Answer the question that a task of a run waits with", Args: cobra.RangeArgs(1, 2),
		Long: `Answer the question that a task waits with. The task goes on as soon as it has its locks
again.

TEXT is the answer; @FILE reads it from a file and - from standard input.`,
		Example: "  bailiwick run show RUN\n  bailiwick run answer RUN --task TASK 'use the second one'\n  bailiwick run answer RUN --task TASK --option 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			req := api.RunAnswer{Task: p.task(task), Option: option, Attempt: attempt}
			if p.err != nil {
				return p.err
			}
			if req.Task == "" {
				return api.Errorf(api.CodeInvalid, "answer: say which task with --task").WithHint("see which one asks: bailiwick run show %s", plainLine(args[0]))
			}
			if len(args) == 2 {
				b, err := readInput(args[1], t.Stdin)
				if err != nil {
					return err
				}
				req.Text = strings.TrimSuffix(string(b), "\n")
			}
			if (req.Text == "") == (req.Option == 0) {
				return api.Errorf(api.CodeInvalid, "answer: give a text or --option N").WithHint("see the question: bailiwick run show %s", plainLine(args[0]))
			}
			return t.withRun(args[0], func(c *client.Conn, id api.RunID) error {
				asked(cmd.Context(), c.Runtime(), id, &req)
				run, err := c.Operator().AnswerRun(cmd.Context(), id, req)
				if err != nil {
					return err
				}
				return t.printSteered(cmd.Context(), c.Runtime(), run.RunID, "has its answer")
			})
		},
	}
	cmd.Flags().StringVar(&task, "task", "", "the task that asks")
	cmd.Flags().IntVar(&option, "option", 0, "answer with this option of the question, counted from 1")
	cmd.Flags().IntVar(&attempt, "attempt", 0, "answer only the question of this attempt of the task's dispatch (default: the one that waits)")
	return cmd
}

// asked names in an answer the question that waits now: the answer is to that,
// even if it arrives late, or twice. Where nothing waits the service says so.
func asked(ctx context.Context, r client.Runtime, id api.RunID, req *api.RunAnswer) {
	run, err := wholeRun(ctx, r, id)
	if err != nil {
		return
	}
	task, err := taskOf(&run, req.Task)
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
