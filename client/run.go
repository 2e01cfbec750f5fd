package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// RuntimeRuns submits runs and watches those that the caller may see.
type RuntimeRuns struct{ c *Conn }

// Submit submits a plan to the orchestrator. It returns when the run is
// durable. With a RunID in req the request is safe to repeat. The run is Existing
// if an earlier call made it. An invalid plan gives an error whose Problems list
// everything wrong with it.
func (r RuntimeRuns) Submit(ctx context.Context, req api.RunRequest) (api.Run, error) {
	req.Key = cmp.Or(req.Key, rand.Text())
	return fetch[api.Run](ctx, r.c, on(api.CallRunSubmit).with(req, req.RunID != ""))
}

// Append adds tasks to a run, which needs a grant with append, also by its owner. It is
// safe to repeat.
func (r RuntimeRuns) Append(ctx context.Context, id api.RunID, req api.RunAppend) (api.Run, error) {
	req.Key = cmp.Or(req.Key, rand.Text())
	return fetch[api.Run](ctx, r.c, on(api.CallRunAppend, string(id)).with(req, true))
}

// Runs returns the runs that the caller may see and f selects, newest first and
// without their tasks.
func (r RuntimeRuns) Runs(ctx context.Context, f api.RunFilter) ([]api.Run, error) {
	return fetch[[]api.Run](ctx, r.c, on(api.CallRunList).where(f.Query()))
}

// Waiting returns what waits for a person, of what the caller may see, oldest
// first.
func (r RuntimeRuns) Waiting(ctx context.Context) ([]api.Waiting, error) {
	return fetch[[]api.Waiting](ctx, r.c, on(api.CallWaiting))
}

// Run returns a run and a page of its tasks. The page begins after the cursor
// after, which is Next of the page before or empty, and has at most limit tasks;
// 0: the service's page size.
func (r RuntimeRuns) Run(ctx context.Context, id api.RunID, after string, limit int) (api.Run, error) {
	query := cursorQuery(after)
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return fetch[api.Run](ctx, r.c, on(api.CallRunDescribe, string(id)).where(query))
}

// tasksPage is the largest number of tasks per answer of the service.
const tasksPage = 1000

// WholeRun returns a run with all of its tasks.
func (r RuntimeRuns) WholeRun(ctx context.Context, id api.RunID) (api.Run, error) {
	run, err := r.Run(ctx, id, "", tasksPage)
	for next := run.Next; err == nil && next != ""; {
		var page api.Run
		if page, err = r.Run(ctx, id, next, tasksPage); err != nil {
			break
		}
		// The head is the newest one; earlier tasks may be a moment older.
		page.Tasks = append(run.Tasks, page.Tasks...)
		if len(page.Tasks) > api.MaxRunTasks || page.Next == next {
			return run, api.Errorf(api.CodeInternal, "run %s: the service sent more tasks than a run can have", id)
		}
		run, next = page, page.Next
	}
	return run, err
}

// RunEvents returns the events of a run after a cursor, which is Next of the
// previous answer or empty. If there are no new events, it waits at most wait for
// the first.
func (r RuntimeRuns) RunEvents(ctx context.Context, id api.RunID, after string, wait time.Duration) (api.RunEvents, error) {
	query := cursorQuery(after)
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	return fetch[api.RunEvents](ctx, r.c, on(api.CallRunEvents, string(id)).where(query))
}

func cursorQuery(after string) url.Values {
	if after == "" {
		return url.Values{}
	}
	return url.Values{"after": {after}}
}

// watchWait is how long one request of WatchRun waits for an event.
const watchWait = 30 * time.Second

// WatchRun passes the events of a run after a cursor to each until the run is
// settled. When the service restarts meanwhile, it continues with the next one;
// no event is lost or repeated.
func (r RuntimeRuns) WatchRun(ctx context.Context, id api.RunID, after string, each func(api.RunEvent) error) error {
	moved, ended := false, false
	wait := time.Duration(0) // the first request only finds out whether a service answers
	return follow(ctx, func() error {
		for !ended {
			page, err := r.RunEvents(ctx, id, after, wait)
			if err != nil {
				return err
			}
			for i := range page.Events {
				if err := each(page.Events[i]); err != nil {
					return &consumerError{err}
				}
			}
			after, moved, ended, wait = page.Next, true, page.Done, watchWait
		}
		return nil
	}, func() (bool, bool) {
		was := moved
		moved = false
		return was, ended
	})
}

// RunPlan returns the plan of a run in its canonical form.
func (r RuntimeRuns) RunPlan(ctx context.Context, id api.RunID) (json.RawMessage, error) {
	return fetch[json.RawMessage](ctx, r.c, on(api.CallRunPlan, string(id)))
}
