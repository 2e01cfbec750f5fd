package client

import (
	"cmp"
	"context"
	"crypto/rand"

	"github.com/bailiwick-dev/bailiwick/api"
)

// OperatorRuns steers the runs of all principals, and the queues that they wait in.
type OperatorRuns struct{ c *Conn }

// CancelRun requests the end of a run, or of one of its tasks, and returns the
// run, which need not have ended yet.
func (o OperatorRuns) CancelRun(ctx context.Context, id api.RunID, req api.RunCancel) (api.Run, error) {
	return fetch[api.Run](ctx, o.c, on(api.CallRunCancel, string(id)).with(req, false))
}

// PauseRun keeps further tasks of a run from starting. Running tasks continue.
func (o OperatorRuns) PauseRun(ctx context.Context, id api.RunID) (api.Run, error) {
	return fetch[api.Run](ctx, o.c, on(api.CallRunPause, string(id)))
}

// ResumeRun ends a pause.
func (o OperatorRuns) ResumeRun(ctx context.Context, id api.RunID) (api.Run, error) {
	return fetch[api.Run](ctx, o.c, on(api.CallRunResume, string(id)))
}

// RetryRun submits the plan of a settled run again and returns the new run. With
// a RunID in req the request is safe to repeat. The run is Existing if an earlier
// call made it.
func (o OperatorRuns) RetryRun(ctx context.Context, id api.RunID, req api.RunRetry) (api.Run, error) {
	req.Key = cmp.Or(req.Key, rand.Text())
	return fetch[api.Run](ctx, o.c, on(api.CallRunRetry, string(id)).with(req, req.RunID != ""))
}

// AppendRun adds tasks to a run of the caller. It is safe to repeat.
func (o OperatorRuns) AppendRun(ctx context.Context, id api.RunID, req api.RunAppend) (api.Run, error) {
	req.Key = cmp.Or(req.Key, rand.Text())
	return fetch[api.Run](ctx, o.c, on(api.CallRunAppendTo, string(id)).with(req, true))
}

// AnswerRun answers the question that a task waits with. It is never repeated
// when its effect is unknown: the task may have another question by then.
func (o OperatorRuns) AnswerRun(ctx context.Context, id api.RunID, req api.RunAnswer) (api.Run, error) {
	return fetch[api.Run](ctx, o.c, on(api.CallRunAnswer, string(id)).with(req, false))
}

// SeeRun records that the caller has looked at a settled run, which then no
// longer waits for a person.
func (o OperatorRuns) SeeRun(ctx context.Context, id api.RunID) error {
	return o.c.do(ctx, on(api.CallRunSeen, string(id)))
}

// Queues lists all queues with their load.
func (o OperatorRuns) Queues(ctx context.Context) ([]api.Queue, error) {
	return fetch[[]api.Queue](ctx, o.c, on(api.CallQueueList))
}

// PauseQueue keeps further tasks of a queue's runs from starting.
func (o OperatorRuns) PauseQueue(ctx context.Context, name api.Name) (api.Queue, error) {
	return fetch[api.Queue](ctx, o.c, on(api.CallQueuePause, string(name)))
}

// ResumeQueue ends a pause.
func (o OperatorRuns) ResumeQueue(ctx context.Context, name api.Name) (api.Queue, error) {
	return fetch[api.Queue](ctx, o.c, on(api.CallQueueResume, string(name)))
}
