package runverbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *commands) waitCommand(v *console.Verb) {
	var timeout time.Duration
	t.runsVerb(v, func(ctx context.Context, c *client.Conn, ids []api.RunID) error {
		var a console.Args
		if a.Wait("--timeout", timeout); a.Err != nil {
			return a.Err
		}
		return t.follow(c, ids).wait(ctx, timeout)
	})
	v.Flag(&timeout, "timeout")
}

// wait waits until the runs are settled, prints them, and returns their outcome.
func (f *follower) wait(ctx context.Context, timeout time.Duration) error {
	r := f.conn.Runtime()
	people := newApprovalReports(f.Output, r)
	for _, id := range f.ids {
		run, err := wholeRun(ctx, r, id)
		if err != nil {
			return err
		}
		if run.Undriven {
			fmt.Fprintln(f.Stderr, console.Line(undrivenText(&run)))
		}
		for i := range run.Tasks {
			if run.Tasks[i].Asks {
				fmt.Fprintf(f.Stderr, "task %s waits for an answer; see: bailiwick run show %s\n", run.Tasks[i].Task, id)
			}
		}
		people.report(&run)
	}
	what := "run " + string(f.ids[0]) + " is in progress"
	if len(f.ids) > 1 {
		what = record.Plural(len(f.ids), "run") + " are in progress"
	}
	p := f.NewProgress(what)
	err := eachRun(ctx, f.ids, func(ctx context.Context, id api.RunID) error {
		saw, stop := people.follow(ctx, id)
		defer stop()
		err := awaitRun(ctx, r, id, "", timeout, saw)
		if api.CodeOf(err) == api.CodeNotFinished {
			return api.Errorf(api.CodeNotFinished, "run %s has not ended after %s and continues", id, timeout).WithHint("see: bailiwick run show %s", id)
		}
		return err
	})
	p.Close()
	if err != nil {
		return interrupted(ctx, f.Output, f.ids, err)
	}
	_, err = f.finish(ctx, true)
	return err
}

// awaitRun waits until a run has ended, or a task of it if one is named. A wait
// of 0 has no limit; after any other it returns CodeNotFinished. It calls saw with each
// event.
func awaitRun(ctx context.Context, r client.Runtime, id api.RunID, task api.TaskID, wait time.Duration, saw func(api.RunEvent)) error {
	short := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		short, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	err := r.WatchRun(short, id, "", func(e api.RunEvent) error {
		saw(e)
		if task != "" && e.Task == task && settlesTask(e.Event) {
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return api.Errorf(api.CodeNotFinished, "run %s has not ended", id)
	}
	return err
}

// errFound stops reading events at the one that was searched for.
var errFound = errors.New("found")

// settlesTask reports whether an event is the last of a task.
func settlesTask(event string) bool {
	state, ok := strings.CutPrefix(event, "task.")
	return ok && api.TaskState(state).Settled()
}
