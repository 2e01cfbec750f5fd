package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// dispatchCalls answers the calls about dispatches.
type dispatchCalls struct {
	cfg     *Config
	callers *callers
}

func (c *dispatchCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallDispatchSubmit:    handle(c.submit),
		api.CallDispatchList:      show(c.list),
		api.CallBudgetList:        show(c.budgets),
		api.CallDispatchDescribe:  c.aboutDispatch(show(c.describe)),
		api.CallDispatchCancel:    c.aboutDispatch(handle(c.cancel)),
		api.CallDispatchAnswer:    c.aboutDispatch(handle(c.answer)),
		api.CallDispatchPin:       c.aboutDispatch(show(c.pin(true))),
		api.CallDispatchUnpin:     c.aboutDispatch(show(c.pin(false))),
		api.CallDispatchLog:       c.aboutDispatch(c.log),
		api.CallDispatchPatch:     c.aboutDispatch(c.patch),
		api.CallDispatchOutput:    c.aboutDispatch(c.output),
		api.CallDispatchStatement: c.aboutDispatch(document(c.statement)),

		api.CallDispatchTranscript: c.aboutDispatch(c.transcript),
		api.CallDispatchNetwork:    c.aboutDispatch(c.network),
		api.CallDispatchTools:      c.aboutDispatch(c.tools),
	}
}

func (c *dispatchCalls) submit(ctx context.Context, r *request, req api.DispatchRequest) (api.Dispatch, error) {
	ids := scopes{c.cfg}
	stored, err := ids.choose(ctx, r.caller.Principal, string(req.DispatchID), ids.dispatches)
	if err != nil {
		return api.Dispatch{}, err
	}
	req.DispatchID = api.DispatchID(stored)
	d, err := c.cfg.Dispatch.Submit(ctx, r.caller.Caller, req)
	return d, c.callers.orInactive(ctx, r.caller, err)
}

func (c *dispatchCalls) list(ctx context.Context, r *request) ([]api.Dispatch, error) {
	q := r.query()
	f := api.DispatchFilter{
		Subagent: parameter(q, "subagent", api.ParseName), Principal: parameter(q, "principal", api.ParsePrincipal), Run: parameter(q, "run", api.ParseRunID),
		After: parameter(q, "after", api.ParseDispatchID), Limit: q.limit(50),
		Since: parameter(q, "since", func(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) }),
	}
	for _, s := range q.values["state"] {
		if f.States = append(f.States, api.Event(s)); !slices.Contains(api.Events(), api.Event(s)) {
			q.fail("state=%q: want one of %s", s, api.OneOf(api.Events()))
		}
	}
	if q.err != nil {
		return nil, q.err
	}
	if err := (scopes{c.cfg}).resolve(r, &f.Run, &f.After); err != nil {
		return nil, err
	}
	list, err := c.cfg.Dispatch.List(ctx, r.caller.Principal, f)
	for i := range list {
		err = errors.Join(err, c.cfg.Reader.LimitAnswer(ctx, &list[i]))
	}
	return list, err
}

func (c *dispatchCalls) describe(ctx context.Context, r *request) (d api.Dispatch, err error) {
	q := r.query()
	wait, attempt := q.wait(), q.attempt()
	if q.err != nil {
		return d, q.err
	}
	if attempt > 0 {
		d, err = c.cfg.Dispatch.Attempt(ctx, r.caller.Principal, r.dispatch, attempt)
	} else {
		d, err = c.cfg.Dispatch.Describe(ctx, r.caller.Principal, r.dispatch, wait)
	}
	if err == nil {
		err = c.cfg.Reader.LimitAnswer(ctx, &d)
	}
	if err == nil {
		err = c.callers.checkActive(ctx, r.caller)
	}
	return d, err
}

func (c *dispatchCalls) answer(ctx context.Context, r *request, req api.AnswerRequest) (api.Dispatch, error) {
	d, err := c.answerQuestion(ctx, r, req)
	return d, c.callers.orInactive(ctx, r.caller, err)
}

// answerQuestion answers the question of a dispatch. The answer to a task's
// dispatch goes through its run, where the task reacquires its locks first.
func (c *dispatchCalls) answerQuestion(ctx context.Context, r *request, req api.AnswerRequest) (api.Dispatch, error) {
	who, id := r.caller, r.dispatch
	if c.cfg.Runs == nil || who.byToken {
		return c.cfg.Dispatch.Answer(ctx, who.Caller, id, req)
	}
	d, ok, err := c.cfg.Dispatch.Get(ctx, id)
	if err != nil {
		return d, err
	}
	if !ok || d.Run == "" {
		return c.cfg.Dispatch.Answer(ctx, who.Caller, id, req)
	}
	// A dispatch that the caller may not see gives the same error as a missing one.
	if _, err := c.cfg.Dispatch.Describe(ctx, who.Principal, id, 0); err != nil {
		return d, err
	}
	if _, err := c.cfg.Runs.Answer(ctx, who.Caller, d.Run, api.RunAnswer{Task: d.Task, DispatchID: id, Text: req.Text, Option: req.Option, Attempt: cmp.Or(req.Attempt, d.Attempt)}); err != nil {
		return d, err
	}
	return c.cfg.Dispatch.Describe(ctx, who.Principal, id, 0)
}

func (c *dispatchCalls) cancel(ctx context.Context, r *request, req api.CancelRequest) (api.Dispatch, error) {
	if r.caller.byToken {
		// Cancelling a task's dispatch steers its run.
		d, ok, err := c.cfg.Dispatch.Get(ctx, r.dispatch)
		if err != nil {
			return d, err
		}
		if ok && d.Run != "" && d.Principal == r.caller.Principal {
			return d, c.cfg.refuseSteering(ctx, r.caller, api.CallRunCancel.Spec())
		}
	}
	return c.cfg.Dispatch.Cancel(ctx, r.caller.Principal, r.dispatch, req.Reason)
}

func (c *dispatchCalls) pin(on bool) func(context.Context, *request) (api.Dispatch, error) {
	return func(ctx context.Context, r *request) (api.Dispatch, error) {
		return c.cfg.Dispatch.Pin(ctx, r.caller.Principal, r.dispatch, on)
	}
}

func (c *dispatchCalls) log(w http.ResponseWriter, r *request) error {
	q := r.query()
	req := dispatch.LogRequest{Offset: q.number("offset", 0, 0, maxOffset), Follow: q.flag("follow"), Attempt: q.attempt()}
	if q.err != nil {
		return q.err
	}
	lines := newLines(w)
	return lines.end(c.cfg.Dispatch.Log(r.Context(), r.caller.Principal, r.dispatch, req, func(chunk api.Chunk) error {
		if err := c.callers.checkActive(r.Context(), r.caller); err != nil {
			return err
		}
		return lines.send(chunk)
	}))
}

func (c *dispatchCalls) patch(w http.ResponseWriter, r *request) error {
	return sendContent(w, r, func(attempt int) (io.ReadCloser, int64, error) {
		return c.cfg.Dispatch.Patch(r.Context(), r.caller.Principal, r.dispatch, attempt)
	})
}

func (c *dispatchCalls) output(w http.ResponseWriter, r *request) error {
	return sendContent(w, r, func(attempt int) (io.ReadCloser, int64, error) {
		return c.cfg.Dispatch.Output(r.Context(), r.caller.Principal, r.dispatch, attempt, r.URL.Query().Get("path"))
	})
}

func (c *dispatchCalls) transcript(w http.ResponseWriter, r *request) error {
	return sendContent(w, r, func(attempt int) (io.ReadCloser, int64, error) {
		return c.cfg.Dispatch.Transcript(r.Context(), r.caller.Principal, r.dispatch, attempt)
	})
}

func (c *dispatchCalls) network(w http.ResponseWriter, r *request) error {
	q := r.query()
	req := dispatch.NetworkRequest{Attempt: q.attempt(), Refused: q.flag("refused")}
	if q.err != nil {
		return q.err
	}
	lines := newLines(w)
	return lines.end(c.cfg.Dispatch.Network(r.Context(), r.caller.Principal, r.dispatch, req, func(l *api.NetworkLine) error { return lines.put(l) }))
}

func (c *dispatchCalls) tools(w http.ResponseWriter, r *request) error {
	q := r.query()
	req := dispatch.ToolsRequest{Attempt: q.attempt(), Number: q.number("number", 0, 1, 1<<53), Denied: q.flag("denied")}
	if q.err != nil {
		return q.err
	}
	lines := newLines(w)
	return lines.end(c.cfg.Dispatch.Tools(r.Context(), r.caller.Principal, r.dispatch, req, func(l *api.ToolCallLine) error { return lines.put(l) }))
}

// sendContent opens content of an attempt and sends the part of it that the
// query selects.
func sendContent(w http.ResponseWriter, r *request, open func(attempt int) (io.ReadCloser, int64, error)) error {
	q := r.query()
	attempt := q.attempt()
	if q.err != nil {
		return q.err
	}
	content, size, err := open(attempt)
	if err != nil {
		return err
	}
	return sendPart(w, r, content, size)
}

// statement returns what was signed about a dispatch that has ended, exactly as
// signed.
func (c *dispatchCalls) statement(ctx context.Context, r *request) ([]byte, error) {
	envelope, err := c.cfg.Dispatch.Statement(ctx, r.caller.Principal, r.dispatch)
	if err == nil {
		err = c.callers.checkActive(ctx, r.caller) // it may have waited
	}
	return envelope, err
}
