package runverbs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *commands) showCommand(v *console.Verb) {
	var states []string
	var failed bool
	t.runVerb(v, func(ctx context.Context, c *client.Conn, id api.RunID, _ []string) error {
		only, err := tasksIn(states, failed)
		if err != nil {
			return err
		}
		run, err := wholeRun(ctx, c.Runtime(), id)
		if err != nil {
			return err
		}
		looked(ctx, c, &run)
		return t.Page(func() error { return runPrinter{t.Output}.print(ctx, c.Runtime(), &run, only) })
	})
	v.Flag(&states, "state")
	v.Flag(&failed, "failed")
}

// taskFilter selects tasks. A nil one selects none.
type taskFilter func(*api.RunTask) bool

// tasksIn selects the tasks in some states; without any, all of them.
func tasksIn(states []string, failed bool) (taskFilter, error) {
	var want []api.TaskState
	for _, s := range states {
		if !slices.Contains(api.TaskStates(), api.TaskState(s)) {
			return nil, api.Errorf(api.CodeInvalid, "--state %q: want one of %s", s, console.Joined(api.TaskStates(), ", ", ""))
		}
		want = append(want, api.TaskState(s))
	}
	if failed {
		want = append(want, api.TaskFailed, api.TaskDenied)
	}
	return func(task *api.RunTask) bool { return len(want) == 0 || slices.Contains(want, task.State) }, nil
}

// runPrinter prints runs as a whole.
type runPrinter struct{ *console.Output }

// print prints a run; as text, with a line per task that only selects.
func (p runPrinter) print(ctx context.Context, r client.Runtime, run *api.Run, only taskFilter) error {
	shown := *run
	if only != nil {
		shown.Tasks = slices.DeleteFunc(slices.Clone(run.Tasks), func(task api.RunTask) bool { return !only(&task) })
	}
	return p.Emit(&shown, string(run.RunID), func() {
		p.head(run)
		if only != nil {
			p.tasks(&shown)
		}
		p.tainted(&shown)
		p.trouble(ctx, r, &shown)
		p.approvals(run)
		p.Row("next", "%s", nextCommand(run))
		if task := denied(run); task != nil && run.State.Settled() {
			p.Row("then", "bailiwick run retry %s, once %s", run.RunID, console.Line(DenialOf(task.Message).Once))
		}
	})
}

func (p runPrinter) head(run *api.Run) {
	p.Row("run", "%s %s", run.RunID, stateText(run))
	if run.Undriven {
		p.Row("STALLED", "%s", console.Line(undrivenText(run)))
	}
	p.Row("tasks", "%d: %s", run.Total, countsText(run.Counts))
	p.Row("queue", "%s", run.Queue)
	p.Rows("budget", len(run.Budgets), func(i int) string { return budgetLine(&run.Budgets[i]) })
	labels := labelWords(run.Labels)
	p.Rows("labels", len(labels), func(i int) string { return labels[i] })
	p.Row("principal", "%s", run.Principal)
	p.Row("submitted", "%s under catalog revision %d", p.Time(run.SubmittedAt), run.Revision)
	if run.NoReuse {
		p.Row("reuse", "no: every task runs")
	}
	if run.RetryOf != "" {
		p.Row("retry of", "%s, whose done tasks are taken over unless a change reaches them", run.RetryOf)
		p.Rows("changed", len(run.Changed), func(i int) string { return run.Changed[i] })
		p.Rows("again from", len(run.From), func(i int) string { return string(run.From[i]) })
	}
	switch {
	case run.SettledAt != nil:
		p.Row("settled", "%s, after %s", p.Time(*run.SettledAt), console.Duration(run.SettledAt.Sub(run.SubmittedAt)))
		if run.Sealed {
			p.Row("sealed", "a signed checkpoint of the log covers all of it; for an auditor: bailiwick audit export %s --out FILE", run.RunID)
		}
	case run.Deadline != nil:
		p.Row("deadline", "%s: then it is cancelled", p.Time(*run.Deadline))
	}
	if run.CancelBy != "" {
		p.Row("cancelled", "by %s", run.CancelBy)
		if run.CancelReason != "" {
			p.Row("", "%s", console.AgentText(run.CancelReason))
		}
	}
	for i := range run.Usage {
		p.Row("models", "%s", console.ModelUsage(run.Usage[i]))
	}
	p.Row("plan", "%s", run.Plan)
}

// wideTable is how wide a terminal must be for the ids of dispatches.
const wideTable = 100

func (p runPrinter) tasks(run *api.Run) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	// A narrow terminal has no room for what other verbs find by the task.
	width, _ := p.Size()
	narrow := p.Screen && width > 0 && width < wideTable
	dispatch := func(text string) string {
		if narrow {
			return ""
		}
		return text + "\t"
	}
	cost := func(text string) string {
		if len(run.Usage) == 0 {
			return ""
		}
		return text + "\t"
	}
	notes := approvalNotes(run, p.Now())
	fmt.Fprintf(w, "\nTASK\tSTATE\tSUBAGENT\tATTEMPT\tTOOK\t%s%sWHY\n", cost("COST"), dispatch("DISPATCH"))
	for i := range run.Tasks {
		task := &run.Tasks[i]
		attempt := "-"
		if task.Attempt > 0 {
			attempt = fmt.Sprintf("%d/%d", task.Attempt, max(task.Attempts, task.Attempt))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s%s%s\n", console.Line(string(task.Task)), task.State, console.Line(string(task.Subagent)), attempt,
			console.Dash(elapsed(task, p.Now())), cost(console.Dash(console.Cost(task.Usage))), dispatch(console.Dash(console.Line(string(task.DispatchID)))), console.Dash(console.Cut(cmp.Or(notes[task.Task], noteOf(task, p.Now())), 200)))
	}
	fmt.Fprintln(w)
	_ = w.Flush() // to memory
	fmt.Fprint(p.Stdout, p.Fit(table.String()))
}

// tainted names the tasks that have text from outside.
func (p runPrinter) tainted(run *api.Run) {
	var list []string
	for i := range run.Tasks {
		if run.Tasks[i].Taint != nil {
			list = append(list, console.Line(string(run.Tasks[i].Task)))
		}
	}
	if more := len(list) - maxTroubles; more > 0 {
		list = append(list[:maxTroubles], fmt.Sprintf("and %d more", more))
	}
	p.OptionalRow("tainted", "%s: text from outside was read", strings.Join(list, ", "))
}

// maxTroubles is how many questions and how many failures are shown in full.
const maxTroubles = 10

// trouble shows the open questions and how to answer them, and the failed
// and denied tasks with the reason.
func (p runPrinter) trouble(ctx context.Context, r client.Runtime, run *api.Run) {
	questions, failed := 0, 0
	for i := range run.Tasks {
		task := &run.Tasks[i]
		switch {
		case task.Asks:
			if questions++; questions <= maxTroubles {
				p.question(ctx, r, run, task)
			}
		case task.State == api.TaskFailed || task.State == api.TaskDenied:
			if failed++; failed > maxTroubles {
				continue
			}
			why := string(task.Reason)
			if task.State == api.TaskDenied {
				why = "by " + DenialOf(task.Message).By
			}
			p.Row(string(task.State), "task %s: %s", task.Task, console.Dash(why))
			if task.Message != "" {
				p.Row("", "%s", console.AgentText(task.Message))
			}
			if task.DispatchID != "" {
				p.Row("", "see: bailiwick run logs %s %s", run.RunID, task.Task)
			}
		}
	}
	if questions > maxTroubles {
		p.Row("", "and %s with a question", record.Plural(questions-maxTroubles, "more task"))
	}
	if failed > maxTroubles {
		p.Row("", "and %s failed or denied", record.Plural(failed-maxTroubles, "more task"))
	}
}

func (p runPrinter) question(ctx context.Context, r client.Runtime, run *api.Run, task *api.RunTask) {
	p.Row("question", "of task %s", task.Task)
	// The record of the dispatch has the question in full; the task has only its
	// beginning.
	if d, err := r.Describe(ctx, task.DispatchID, 0); err == nil && d.Question != nil {
		p.Row("", "%s", console.AgentText(d.Question.Question))
		for i, o := range d.Question.Options {
			p.Row("", "%d. %s", i+1, console.Quoted(o))
		}
		if len(d.Question.Context) > 0 {
			p.Row("", "context: %s", d.Question.Context)
		}
		if d.AnswerBy != nil {
			p.Row("", "answer by %s", p.Time(*d.AnswerBy))
		}
		p.Row("", "answer: %s", answerCommand(run, task, &d))
		return
	}
	p.Row("", "%s", console.AgentText(task.Message))
	p.Row("", "answer: bailiwick run answer %s --task %s TEXT", run.RunID, task.Task)
}

// undrivenText says that nothing continues an open run, and what does.
func undrivenText(run *api.Run) string {
	return fmt.Sprintf("nothing continues run %s: the service has no orchestrator; start one with: %s", run.RunID, run.StartWith)
}

// stateText is the state of a run, and whether nothing continues it.
func stateText(run *api.Run) string {
	if run.Undriven {
		return string(run.State) + " (stalled)"
	}
	return string(run.State)
}

// warnStalled warns of the runs of a list that nothing continues.
func warnStalled(to io.Writer, list []api.Run) {
	n, start := 0, ""
	for i := range list {
		if list[i].Undriven {
			n, start = n+1, list[i].StartWith
		}
	}
	if n > 0 {
		fmt.Fprintf(to, "nothing continues the %s in this list: the service has no orchestrator; start one with: %s\n", record.Plural(n, "stalled run"), console.Line(start))
	}
}

// nextCommand suggests the next command about a run.
func nextCommand(run *api.Run) string {
	if run.Undriven {
		return console.Line(run.StartWith)
	}
	switch run.State {
	case api.RunDone:
		return fmt.Sprintf("bailiwick run apply %s", run.RunID)
	case api.RunFailed, api.RunCancelled:
		if task := denied(run); task != nil {
			return DenialOf(task.Message).Next(run.Principal, task.Subagent)
		}
		return fmt.Sprintf("bailiwick run retry %s", run.RunID)
	case api.RunPaused:
		return fmt.Sprintf("bailiwick run resume %s; or if the queue is paused: bailiwick queue resume %s", run.RunID, run.Queue)
	case api.RunRunning, api.RunWaiting:
	}
	for i := range run.Tasks {
		if run.Tasks[i].Asks {
			return fmt.Sprintf("bailiwick run answer %s --task %s TEXT", run.RunID, run.Tasks[i].Task)
		}
	}
	if len(run.Approvals) > 0 {
		return fmt.Sprintf("bailiwick approval show %s", run.Approvals[0].ID)
	}
	return fmt.Sprintf("bailiwick run watch %s", run.RunID)
}
