package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// RuntimeDispatches starts, watches and cancels dispatches, and reads what their attempts
// left.
type RuntimeDispatches struct{ c *Conn }

// Dispatch requests one execution of a subagent. It returns as soon as the
// decision is durable; the worker may not have started. With a DispatchID in req
// the request is safe to repeat.
func (r RuntimeDispatches) Dispatch(ctx context.Context, req api.DispatchRequest) (api.Dispatch, error) {
	return fetch[api.Dispatch](ctx, r.c, on(api.CallDispatchSubmit).with(req, req.DispatchID != ""))
}

// Describe returns the record of a dispatch. It waits at most wait for the
// dispatch to end.
func (r RuntimeDispatches) Describe(ctx context.Context, id api.DispatchID, wait time.Duration) (api.Dispatch, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	return fetch[api.Dispatch](ctx, r.c, on(api.CallDispatchDescribe, string(id)).where(query))
}

// List returns the newest dispatches that f selects and the caller may see, newest
// first.
func (r RuntimeDispatches) List(ctx context.Context, f api.DispatchFilter) ([]api.Dispatch, error) {
	query := url.Values{}
	for _, s := range f.States {
		query.Add("state", string(s))
	}
	for name, value := range map[string]string{"subagent": string(f.Subagent), "principal": string(f.Principal), "run": string(f.Run), "after": string(f.After)} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if !f.Since.IsZero() {
		query.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if f.Limit != 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	return fetch[[]api.Dispatch](ctx, r.c, on(api.CallDispatchList).where(query))
}

// Cancel requests the end of a dispatch and returns its record, which need not
// have ended yet.
func (r RuntimeDispatches) Cancel(ctx context.Context, id api.DispatchID, reason string) (api.Dispatch, error) {
	return fetch[api.Dispatch](ctx, r.c, on(api.CallDispatchCancel, string(id)).with(api.CancelRequest{Reason: reason}, false))
}

// Answer answers the question of a dispatch, which then resumes. It returns the
// record of the new attempt.
func (r RuntimeDispatches) Answer(ctx context.Context, id api.DispatchID, req api.AnswerRequest) (api.Dispatch, error) {
	return fetch[api.Dispatch](ctx, r.c, on(api.CallDispatchAnswer, string(id)).with(req, req.Attempt > 0))
}

// Pin protects a dispatch from the service's retention rules; with pinned false it
// ends the protection.
func (r RuntimeDispatches) Pin(ctx context.Context, id api.DispatchID, pinned bool) (api.Dispatch, error) {
	c := api.CallDispatchUnpin
	if pinned {
		c = api.CallDispatchPin
	}
	return fetch[api.Dispatch](ctx, r.c, on(c, string(id)))
}
