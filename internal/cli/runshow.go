package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) runShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show RUN", Short: "Print how a run and each of its tasks is, and what to do next", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withRun(args[0], func(c *client.Conn, id api.RunID) error {
				run, err := wholeRun(cmd.Context(), c.Runtime(), id)
				if err != nil {
					return err
				}
				return t.printRun(cmd.Context(), c.Runtime(), &run, true)
			})
		},
	}
}

// printRun prints a run, as text with a line for every task if that is wanted.
func (t *tree) printRun(ctx context.Context, r client.Runtime, run *api.Run, tasks bool) error {
	switch t.output {
	case "json", "jsonl":
		return t.printJSON(run)
	case "name":
		fmt.Fprintln(t.Stdout, run.RunID)
		return nil
	}
	t.row("run", "%s %s", run.RunID, run.State)
	t.row("tasks", "%d: %s", run.Total, countsText(run.Counts))
	t.row("queue", "%s", run.Queue)
	t.row("principal", "%s", run.Principal)
	t.row("submitted", "%s under catalog revision %d", run.SubmittedAt.Format(timeFormat), run.Revision)
	if run.RetryOf != "" {
		t.row("retry of", "%s, whose done tasks are taken over", run.RetryOf)
	}
	switch {
	case run.SettledAt != nil:
		t.row("settled", "%s, after %s", run.SettledAt.Format(timeFormat), short(run.SettledAt.Sub(run.SubmittedAt)))
		if run.Sealed {
			t.row("sealed", "a signed checkpoint of the log covers all of it; for an auditor: bailiwick audit export %s -o FILE", run.RunID)
		}
	case run.Deadline != nil:
		t.row("deadline", "%s: then it is cancelled", run.Deadline.Format(timeFormat))
	}
	if run.CancelBy != "" {
		t.row("cancelled", "by %s", run.CancelBy)
		if run.CancelReason != "" {
			t.row("", "%s", agentText(run.CancelReason))
		}
	}
	t.row("plan", "%s", run.Plan)
	if tasks {
		if err := t.printTasks(run); err != nil {
			return err
		}
	}
	t.printTrouble(ctx, r, run)
	t.row("next", "%s", nextOf(run))
	return nil
}

// agentText is text that others wrote, every line of it behind the marker.
func agentText(s string) string { return agentMarker + quoted(s) }

func (t *tree) printTasks(run *api.Run) error {
	w := tabwriter.NewWriter(t.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nTASK\tSTATE\tSUBAGENT\tATTEMPT\tTOOK\tDISPATCH\tWHY")
	for i := range run.Tasks {
		task := &run.Tasks[i]
		attempt := "-"
		if task.Attempt > 0 {
			attempt = fmt.Sprintf("%d/%d", task.Attempt, max(task.Attempts, task.Attempt))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", lineOf(string(task.Task)), task.State, lineOf(string(task.Subagent)), attempt,
			dash(elapsed(task, t.Now())), dash(lineOf(string(task.DispatchID))), dash(cut(noteOf(task, t.Now()), 200)))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// shownTroubles is how many questions and how many failures are shown whole.
const shownTroubles = 10

// printTrouble shows what asks a question and how to answer it, and what did
// not go well and why.
func (t *tree) printTrouble(ctx context.Context, r client.Runtime, run *api.Run) {
	asks, failed := 0, 0
	for i := range run.Tasks {
		task := &run.Tasks[i]
		switch {
		case task.Asks:
			if asks++; asks <= shownTroubles {
				t.printAsk(ctx, r, run, task)
			}
		case task.State == api.TaskFailed || task.State == api.TaskDenied:
			if failed++; failed > shownTroubles {
				continue
			}
			t.row(string(task.State), "task %s, %s", task.Task, dash(string(task.Reason)))
			if task.Message != "" {
				t.row("", "%s", agentText(task.Message))
			}
			if task.DispatchID != "" {
				t.row("", "see: bailiwick run logs %s %s", run.RunID, task.Task)
			}
		}
	}
	if asks > shownTroubles {
		t.row("", "and %d more tasks that ask", asks-shownTroubles)
	}
	if failed > shownTroubles {
		t.row("", "and %d more tasks that failed or are denied", failed-shownTroubles)
	}
}

func (t *tree) printAsk(ctx context.Context, r client.Runtime, run *api.Run, task *api.RunTask) {
	t.row("question", "of task %s", task.Task)
	options, attempt := 0, ""
	// What is asked is in the record of its dispatch; where that cannot be had,
	// the beginning of it is here.
	if d, err := r.Describe(ctx, task.DispatchID, 0); err == nil && d.Question != nil {
		t.row("", "%s", agentText(d.Question.Question))
		options, attempt = len(d.Question.Options), fmt.Sprintf("--attempt %d ", d.Attempt)
		for i, o := range d.Question.Options {
			t.row("", "%d. %s", i+1, quoted(o))
		}
		if len(d.Question.Context) > 0 {
			t.row("", "context: %s", d.Question.Context)
		}
		if d.AnswerBy != nil {
			t.row("", "answer by %s", d.AnswerBy.Local().Format(timeFormat))
		}
	} else {
		t.row("", "%s", agentText(task.Message))
	}
	how := "TEXT"
	if options > 0 {
		how = "--option N"
	}
	t.row("", "answer: bailiwick run answer %s --task %s %s%s", run.RunID, task.Task, attempt, how)
}

// nextOf is the command that most want to type next.
func nextOf(run *api.Run) string {
	switch run.State {
	case api.RunDone:
		return fmt.Sprintf("bailiwick run patch %s --all --dir DIR, or bailiwick run patch %[1]s --merge BRANCH --repo DIR", run.RunID)
	case api.RunFailed, api.RunCancelled:
		if run.Counts[api.TaskDenied] > 0 && run.Counts[api.TaskFailed] == 0 {
			return "bailiwick audit list --kind dispatch.denied: retrying is useless before somebody changes what is granted"
		}
		return fmt.Sprintf("bailiwick run retry %s: what is done is taken over", run.RunID)
	case api.RunPaused:
		return fmt.Sprintf("bailiwick run resume %s; or if it is the queue: bailiwick queue resume %s", run.RunID, run.Queue)
	case api.RunRunning, api.RunWaiting:
	}
	for i := range run.Tasks {
		if run.Tasks[i].Asks {
			return fmt.Sprintf("bailiwick run answer %s --task %s TEXT", run.RunID, run.Tasks[i].Task)
		}
	}
	return fmt.Sprintf("bailiwick run watch %s", run.RunID)
}
