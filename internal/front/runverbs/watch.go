package runverbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *commands) watchCommand(v *console.Verb) {
	t.runsVerb(v, func(ctx context.Context, c *client.Conn, ids []api.RunID) error {
		return t.follow(c, ids).watch(ctx, false)
	})
}

// follower follows runs until they are settled.
type follower struct {
	*console.Output
	stdin io.Reader // of answers to the questions of tasks
	conn  *client.Conn
	ids   []api.RunID
}

func (t *commands) follow(c *client.Conn, ids []api.RunID) *follower {
	return &follower{t.Output, t.Stdin, c, ids}
}

// watch shows the runs until they are settled, prints them, and returns their
// outcome.
func (f *follower) watch(ctx context.Context, quiet bool) error {
	r := f.conn.Runtime()
	for _, id := range f.ids {
		f.warnUndriven(ctx, id)
	}
	var mu sync.Mutex // guards the output
	var err error
	switch {
	case f.Format == "jsonl" && !quiet:
		err = eachRun(ctx, f.ids, func(ctx context.Context, id api.RunID) error {
			return r.WatchRun(ctx, id, "", func(e api.RunEvent) error {
				mu.Lock()
				defer mu.Unlock()
				return f.JSON(struct {
					Run api.RunID `json:"runId"`
					api.RunEvent
				}{id, e})
			})
		})
	case f.Terminal && !f.Dumb() && !quiet:
		err = f.live(ctx)
	case f.Format == "text" && !quiet:
		people := newApprovalReports(f.Output, r)
		err = eachRun(ctx, f.ids, func(ctx context.Context, id api.RunID) error { return f.lines(ctx, id, people, &mu) })
	default:
		err = eachRun(ctx, f.ids, func(ctx context.Context, id api.RunID) error {
			return r.WatchRun(ctx, id, "", func(api.RunEvent) error { return nil })
		})
	}
	if err != nil {
		return interrupted(ctx, f.Output, f.ids, err)
	}
	runs, err := f.finish(ctx, quiet || f.Format != "jsonl")
	for i := range runs {
		looked(ctx, f.conn, &runs[i])
	}
	return err
}

// warnUndriven warns a user who is about to wait for a run that nothing continues.
// A run that cannot be read is reported by what follows.
func (f *follower) warnUndriven(ctx context.Context, id api.RunID) {
	if run, err := f.conn.Runtime().Run(ctx, id, "", 1); err == nil && run.Undriven {
		fmt.Fprintln(f.Stderr, console.Line(undrivenText(&run)))
	}
}

// eachRun calls do for every run at once and returns the first error, which ends
// the others.
func eachRun(ctx context.Context, ids []api.RunID, do func(context.Context, api.RunID) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan error, len(ids))
	for _, id := range ids {
		go func() { results <- do(ctx, id) }()
	}
	var first error
	for range ids {
		if err := <-results; err != nil && first == nil {
			first = err
			stop()
		}
	}
	return first
}

// lineInterval is the least time between two lines about a run.
const lineInterval = time.Second

// lines prints a line for each change of a run and its tasks. Changes that
// follow each other within lineInterval share one.
func (f *follower) lines(ctx context.Context, id api.RunID, people *approvalReports, mu *sync.Mutex) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events, ended := make(chan api.RunEvent), make(chan error, 1)
	go func() { // ends with ctx, at the latest when this function returns
		ended <- f.conn.Runtime().WatchRun(ctx, id, "", func(e api.RunEvent) error {
			if !strings.HasPrefix(e.Event, "run.") && !strings.HasPrefix(e.Event, "task.") && !isReport(&e) && !isApproval(&e) {
				return nil
			}
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	var latest api.RunEvent
	changes, asking, reports := 0, askingTasks{}, map[api.TaskID]api.DispatchID{}
	due := time.NewTimer(0)
	defer due.Stop()
	<-due.C
	last := time.Time{}
	show := func() error {
		mu.Lock()
		defer mu.Unlock()
		f.printReports(ctx, reports)
		if changes == 0 {
			return nil
		}
		more := changes - 1
		changes, last = 0, f.Now()
		if err := f.printChange(ctx, people, id, latest, more); err != nil {
			return err
		}
		for _, task := range asking.takeNew() {
			fmt.Fprintf(f.Stderr, "task %s asks; see: bailiwick run show %s, answer with: bailiwick run answer %[2]s --task %[1]s TEXT\n", task, id)
		}
		return nil
	}
	for {
		select {
		case e := <-events:
			if isReport(&e) {
				if len(reports) == 0 && changes == 0 {
					due.Reset(lineInterval)
				}
				reports[e.Task] = e.DispatchID
				continue
			}
			latest = e
			asking.follow(latest)
			if changes++; changes == 1 {
				// A moment, so that what is over already is one line.
				due.Reset(max(lineInterval-f.Now().Sub(last), lineInterval/10))
			}
		case <-due.C:
			if err := show(); err != nil {
				return err
			}
		case err := <-ended:
			if err == nil {
				err = show()
			}
			return err
		}
	}
}

// isReport reports whether an agent reported its progress.
func isReport(e *api.RunEvent) bool { return e.Event == "tool.called" && e.Tool == api.ToolReport }

// printReports prints what the agents of tasks reported last, and forgets them.
func (f *follower) printReports(ctx context.Context, reports map[api.TaskID]api.DispatchID) {
	for _, task := range slices.Sorted(maps.Keys(reports)) {
		if d, err := f.conn.Runtime().Describe(ctx, reports[task], 0); err == nil && d.Progress != nil {
			fmt.Fprintf(f.Stdout, "%s task %s reports %s%s\n", f.Time(d.Progress.At), console.Line(string(task)), console.AgentMarker, console.Line(d.Progress.Text))
		}
	}
	clear(reports)
}

// askingTasks are the tasks with an open question, and whether it was reported.
type askingTasks map[api.TaskID]bool

// follow keeps up with an event. A task whose dispatch waits without a reason asks; any
// other event of a task says that it no longer does.
func (a askingTasks) follow(e api.RunEvent) {
	delete(a, e.Task)
	if e.Event == "task.waiting" && e.Reason == "" && e.DispatchID != "" {
		a[e.Task] = false
	}
}

// takeNew returns the tasks that were not reported.
func (a askingTasks) takeNew() (list []api.TaskID) {
	for _, task := range slices.Sorted(maps.Keys(a)) {
		if !a[task] {
			list, a[task] = append(list, task), true
		}
	}
	return list
}

// printChange prints the latest change of a run, how many others it stands for,
// and how many tasks are in each state.
func (f *follower) printChange(ctx context.Context, people *approvalReports, id api.RunID, e api.RunEvent, more int) error {
	line := f.EntryLine(e.Text)
	if e.Event != "run.settled" { // which says so itself
		if run, err := people.r.Run(ctx, id, "", 1); err == nil {
			line += "; " + countsText(run.Counts)
			defer people.report(&run) // behind the line
		}
		if more > 0 {
			line += " (" + record.Plural(more, "event") + " not shown)"
		}
	}
	_, err := fmt.Fprintln(f.Stdout, line)
	return err
}

// finish prints the settled runs, if print is set, and returns them and the outcome.
func (f *follower) finish(ctx context.Context, print bool) ([]api.Run, error) {
	r := f.conn.Runtime()
	var runs []api.Run
	var result error
	for _, id := range f.ids {
		run, err := wholeRun(ctx, r, id)
		if err != nil {
			return runs, err
		}
		if exit := outcome(&run); result == nil || errors.Is(exit, console.ExitFor(api.CodeDenied)) {
			result = exit
		}
		runs = append(runs, run)
	}
	var err error
	switch {
	case print && len(runs) == 1:
		err = runPrinter{f.Output}.print(ctx, r, &runs[0], nil)
	case print:
		err = runPrinter{f.Output}.list(runs)
	}
	if err != nil {
		return runs, err
	}
	return runs, result
}

// looked records that the user has looked at a failed run, which then no longer
// waits for a person. Where that fails, it waits on.
func looked(ctx context.Context, c *client.Conn, run *api.Run) {
	if run.NeedsAttention() {
		_ = c.Operator().SeeRun(ctx, run.RunID)
	}
}

// interrupted tells a user who interrupts a command that the runs continue.
func interrupted(ctx context.Context, out *console.Output, ids []api.RunID, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if len(ids) == 1 {
		fmt.Fprintf(out.Stderr, "run %s continues; watch it with: bailiwick run watch %[1]s, cancel it with: bailiwick run cancel %[1]s\n", ids[0])
	} else {
		fmt.Fprintf(out.Stderr, "%s continue; watch them with: bailiwick run watch %s\n", record.Plural(len(ids), "run"), console.Joined(ids, " ", ""))
	}
	return err
}
