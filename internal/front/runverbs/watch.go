package runverbs

import (
	"context"
	"errors"
	"fmt"
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
	t.runsVerb(v, func(ctx context.Context, c *client.Conn, ids []api.RunID) error { return t.watch(ctx, c, ids, false) })
}

// watch shows runs until they are settled, prints them, and returns their
// outcome.
func (t *commands) watch(ctx context.Context, c *client.Conn, ids []api.RunID, quiet bool) error {
	r := c.Runtime()
	for _, id := range ids {
		t.warnUndriven(ctx, r, id)
	}
	var mu sync.Mutex // guards the output
	var err error
	switch {
	case t.Format == "jsonl" && !quiet:
		err = eachRun(ctx, ids, func(ctx context.Context, id api.RunID) error {
			return r.WatchRun(ctx, id, "", func(e api.RunEvent) error {
				mu.Lock()
				defer mu.Unlock()
				return t.JSON(struct {
					Run api.RunID `json:"runId"`
					api.RunEvent
				}{id, e})
			})
		})
	case t.Terminal && !t.Dumb() && !quiet:
		err = t.watchLive(ctx, c, ids)
	case t.Format == "text" && !quiet:
		people := t.newApprovalReports(r)
		err = eachRun(ctx, ids, func(ctx context.Context, id api.RunID) error { return t.watchLines(ctx, r, id, people, &mu) })
	default:
		err = eachRun(ctx, ids, func(ctx context.Context, id api.RunID) error {
			return r.WatchRun(ctx, id, "", func(api.RunEvent) error { return nil })
		})
	}
	if err != nil {
		return t.interrupted(ctx, ids, err)
	}
	runs, err := t.finish(ctx, r, ids, quiet || t.Format != "jsonl")
	for i := range runs {
		t.looked(ctx, c, &runs[i])
	}
	return err
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

// watchLines prints a line for each change of a run and its tasks. Changes that
// follow each other within lineInterval share one.
func (t *commands) watchLines(ctx context.Context, r client.Runtime, id api.RunID, people *approvalReports, mu *sync.Mutex) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events, ended := make(chan api.RunEvent), make(chan error, 1)
	go func() { // ends with ctx, at the latest when this function returns
		ended <- r.WatchRun(ctx, id, "", func(e api.RunEvent) error {
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
		t.printReports(ctx, r, reports)
		if changes == 0 {
			return nil
		}
		more := changes - 1
		changes, last = 0, t.Now()
		if err := t.printChange(ctx, people, id, latest, more); err != nil {
			return err
		}
		for _, task := range asking.takeNew() {
			fmt.Fprintf(t.Stderr, "task %s asks; see: bailiwick run show %s, answer with: bailiwick run answer %[2]s --task %[1]s TEXT\n", task, id)
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
				due.Reset(max(lineInterval-t.Now().Sub(last), lineInterval/10))
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
func (t *commands) printReports(ctx context.Context, r client.Runtime, reports map[api.TaskID]api.DispatchID) {
	for _, task := range slices.Sorted(maps.Keys(reports)) {
		if d, err := r.Describe(ctx, reports[task], 0); err == nil && d.Progress != nil {
			fmt.Fprintf(t.Stdout, "%s task %s reports %s%s\n", t.Time(d.Progress.At), console.Line(string(task)), console.AgentMarker, console.Line(d.Progress.Text))
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
func (t *commands) printChange(ctx context.Context, people *approvalReports, id api.RunID, e api.RunEvent, more int) error {
	line := t.EntryLine(e.Text)
	if e.Event != "run.settled" { // which says so itself
		if run, err := people.r.Run(ctx, id, "", 1); err == nil {
			line += "; " + countsText(run.Counts)
			defer people.report(&run) // behind the line
		}
		if more > 0 {
			line += " (" + record.Plural(more, "event") + " not shown)"
		}
	}
	_, err := fmt.Fprintln(t.Stdout, line)
	return err
}

// finish prints settled runs, if print is set, and returns them and the outcome.
func (t *commands) finish(ctx context.Context, r client.Runtime, ids []api.RunID, print bool) ([]api.Run, error) {
	var runs []api.Run
	var result error
	for _, id := range ids {
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
		err = t.printRun(ctx, r, &runs[0], nil)
	case print:
		err = t.printRuns(runs)
	}
	if err != nil {
		return runs, err
	}
	return runs, result
}

// looked records that the user has looked at a failed run, which then no longer
// waits for a person. Where that fails, it waits on.
func (t *commands) looked(ctx context.Context, c *client.Conn, run *api.Run) {
	if run.NeedsAttention() {
		_ = c.Operator().SeeRun(ctx, run.RunID)
	}
}

// interrupted tells a user who interrupts a command that the runs continue.
func (t *commands) interrupted(ctx context.Context, ids []api.RunID, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if len(ids) == 1 {
		fmt.Fprintf(t.Stderr, "run %s continues; watch it with: bailiwick run watch %[1]s, cancel it with: bailiwick run cancel %[1]s\n", ids[0])
	} else {
		fmt.Fprintf(t.Stderr, "%s continue; watch them with: bailiwick run watch %s\n", record.Plural(len(ids), "run"), console.Joined(ids, " ", ""))
	}
	return err
}
