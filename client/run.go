package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// What reads runs, and submits them, is at run time; what steers them is the
// operator's side.
const (
	runs       = "/v1/runtime/runs"
	runSteered = "/v1/operator/runs"
	queues     = "/v1/operator/queues"
)

// Submit hands a plan to the orchestrator. It returns when the run is durable.
// With an id of the caller's choice it can be submitted again without being run
// twice. All that is wrong with the plan is in Problems of the error.
func (r Runtime) Submit(ctx context.Context, req api.RunRequest) (run api.Run, err error) {
	err = r.c.request(ctx, call{http.MethodPost, runs, req, req.RunID != ""}, &run)
	return run, err
}

// Runs returns the newest runs that the caller may see, newest first and without
// their tasks.
func (r Runtime) Runs(ctx context.Context, limit int) (list []api.Run, err error) {
	err = r.c.request(ctx, get(runs+"?limit="+strconv.Itoa(limit)), &list)
	return list, err
}

// Run returns a run and a page of its tasks. The page begins behind after, which
// is Next of the page before or empty, and has at most limit tasks; 0: as many
// as the service gives at once.
func (r Runtime) Run(ctx context.Context, id api.RunID, after string, limit int) (run api.Run, err error) {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	err = r.c.request(ctx, get(runPath(runs, id, "")+"?"+query.Encode()), &run)
	return run, err
}

// RunEvents returns what happened in a run behind a cursor, which is Next of
// the answer before or empty. Where there is nothing yet it waits so long for
// the first of it.
func (r Runtime) RunEvents(ctx context.Context, id api.RunID, after string, wait time.Duration) (events api.RunEvents, err error) {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	err = r.c.request(ctx, get(runPath(runs, id, "/events")+"?"+query.Encode()), &events)
	return events, err
}

// watchWait is how long one request of WatchRun waits for an event.
const watchWait = 30 * time.Second

// WatchRun hands over what happens in a run behind a cursor, until it is
// settled. When the service ends meanwhile it goes on with the next one, and no
// event is missing or comes twice.
func (r Runtime) WatchRun(ctx context.Context, id api.RunID, after string, each func(api.RunEvent) error) error {
	moved, ended := false, false
	wait := time.Duration(0) // the first answer, which comes at once, says that there is a service
	return follow(ctx, func() error {
		for !ended {
			page, err := r.RunEvents(ctx, id, after, wait)
			if err != nil {
				return err
			}
			for i := range page.Events {
				if err := each(page.Events[i]); err != nil {
					return &refusal{err}
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
func (r Runtime) RunPlan(ctx context.Context, id api.RunID) (plan json.RawMessage, err error) {
	err = r.c.request(ctx, get(runPath(runs, id, "/plan")), &plan)
	return plan, err
}

// CancelRun asks for the end of a run, or of one task of it, and returns the run
// after the request, which is not yet its end.
func (o Operator) CancelRun(ctx context.Context, id api.RunID, req api.RunCancel) (api.Run, error) {
	return o.steer(ctx, id, "/cancel", req, true)
}

// PauseRun lets no further task of a run start. What runs goes on.
func (o Operator) PauseRun(ctx context.Context, id api.RunID) (api.Run, error) {
	return o.steer(ctx, id, "/pause", nil, true)
}

// ResumeRun ends a pause.
func (o Operator) ResumeRun(ctx context.Context, id api.RunID) (api.Run, error) {
	return o.steer(ctx, id, "/resume", nil, true)
}

// RetryRun submits the plan of a settled run again and returns the new run. With
// an id of the caller's choice it can be asked for again without being run
// twice.
func (o Operator) RetryRun(ctx context.Context, id api.RunID, req api.RunRetry) (api.Run, error) {
	return o.steer(ctx, id, "/retry", req, req.RunID != "")
}

// AnswerRun answers the question that a task waits with. It is not made again
// where nobody knows whether it arrived: the task may have another question by
// then.
func (o Operator) AnswerRun(ctx context.Context, id api.RunID, req api.RunAnswer) (api.Run, error) {
	return o.steer(ctx, id, "/answer", req, false)
}

func (o Operator) steer(ctx context.Context, id api.RunID, verb string, body any, repeat bool) (run api.Run, err error) {
	err = o.c.request(ctx, call{http.MethodPost, runPath(runSteered, id, verb), body, repeat}, &run)
	return run, err
}

// Queues lists all queues and how full they are.
func (o Operator) Queues(ctx context.Context) (list []api.Queue, err error) {
	err = o.c.request(ctx, get(queues), &list)
	return list, err
}

// PauseQueue lets no further task of a queue's runs start.
func (o Operator) PauseQueue(ctx context.Context, name api.Name) (q api.Queue, err error) {
	err = o.c.request(ctx, call{method: http.MethodPost, path: queues + "/" + url.PathEscape(string(name)) + "/pause", repeat: true}, &q)
	return q, err
}

// ResumeQueue ends a pause.
func (o Operator) ResumeQueue(ctx context.Context, name api.Name) (q api.Queue, err error) {
	err = o.c.request(ctx, call{method: http.MethodPost, path: queues + "/" + url.PathEscape(string(name)) + "/resume", repeat: true}, &q)
	return q, err
}

func runPath(prefix string, id api.RunID, verb string) string {
	return prefix + "/" + url.PathEscape(string(id)) + verb
}
