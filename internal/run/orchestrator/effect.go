package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

const (
	// effectWorkers is how many effects run concurrently: each waits for the disk.
	effectWorkers = 32
	// A failed effect is retried after a pause that doubles.
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// effectKind is what an effect does.
type effectKind string

const (
	effectSubmit effectKind = "submit"
	effectResume effectKind = "resume"
	effectCancel effectKind = "cancel"
	effectPoll   effectKind = "poll"
	effectLook   effectKind = "look" // at the products that a task grows by
	effectAsk    effectKind = "ask"  // people for their approval
)

// effect is an action that follows a commit. It has copies of what it needs of the
// task, because only the engine may read its memory.
type effect struct {
	kind       effectKind
	run        *run
	task       int32
	name       api.TaskID // of the task
	look       *look
	ask        *asking
	fence      uint64
	request    dispatch.TaskRequest
	id         api.DispatchID
	questionOf int32
	answer     answer
	by         api.Actor
	why        string
	failures   int // in a row
	caller     dispatch.Caller
	behind     []string // budgets for which earlier tasks wait

	expected bool // of a poll: an end is no missed completion
}

// effect returns an effect on the dispatch of a task.
func (r *run) effect(kind effectKind, i int32) effect {
	t := &r.tasks[i]
	return effect{kind: kind, run: r, task: i, name: r.plan.Tasks[i].ID, fence: t.fence, id: t.dispatch, caller: r.caller()}
}

// performer carries out the effects of durable batches, and sends what comes of each to
// the engine. It never reads the engine's memory.
type performer struct {
	cfg     *Config
	effects *fifo[effect]
	inbox   *fifo[event]    // of the engine
	life    context.Context //nolint:containedctx // the life of the orchestrator, not of a call
	work    *sync.WaitGroup
}

// start starts the workers that carry out effects. Each effect is idempotent.
func (p *performer) start() {
	for range effectWorkers {
		p.work.Go(func() {
			for {
				select {
				case <-p.effects.ready:
				case <-p.life.Done():
					return
				}
				for x := p.effects.take(1); len(x) > 0 && p.life.Err() == nil; x = p.effects.take(1) {
					p.do(x[0])
				}
			}
		})
	}
}

// do carries out an effect and sends the result to the engine. After a transient
// failure the engine decides, after a pause, whether to retry.
func (p *performer) do(x effect) {
	err := p.try(x)
	if err == nil || p.life.Err() != nil {
		return // the next Open derives what is due from the rows
	}
	p.inbox.put(effectFailed{x})
	p.cfg.Logger.LogAttrs(p.life, slog.LevelWarn, "an effect on a task's dispatch failed and is retried", slog.String("run", string(x.run.id)),
		slog.String("task", string(x.name)), slog.String("effect", string(x.kind)), slog.Any("err", err))
	x.failures++
	p.work.Go(func() {
		if background.Pause(p.life, background.Backoff{First: firstPause, Most: lastPause}.After(x.failures)) == nil {
			p.inbox.put(effectDue{x})
		}
	})
}

// try returns an error only when the effect is to be retried.
func (p *performer) try(x effect) error {
	ctx := dispatch.WithTrace(p.life, x.run.doc.Trace)
	var d api.Dispatch
	var err error
	switch x.kind {
	case effectSubmit:
		failpoint.Hit(failpoint.RunRequest, string(x.request.Request.DispatchID))
		x.request.Behind = x.behind
		d, err = p.cfg.Dispatch.SubmitTask(ctx, x.caller, x.request)
		failpoint.Hit(failpoint.RunRequested, string(x.request.Request.DispatchID))
		x.id = x.request.Request.DispatchID
	case effectResume:
		failpoint.Hit(failpoint.RunResume, string(x.id))
		req := api.AnswerRequest{Text: x.answer.Text, Option: x.answer.Option, Attempt: int(x.questionOf)}
		if req.Option != 0 {
			req.Text = ""
		}
		d, err = p.cfg.Dispatch.ResumeTask(ctx, x.caller, x.id, req, x.answer.By, x.fence, x.behind)
		failpoint.Hit(failpoint.RunResumed, string(x.id))
	case effectCancel:
		failpoint.Hit(failpoint.RunCancel, string(x.id))
		if x.by == api.Service {
			_, err = p.cfg.Dispatch.Abort(ctx, x.id, x.why)
		} else {
			_, err = p.cfg.Dispatch.Cancel(ctx, api.Principal(x.by), x.id, x.why)
		}
		failpoint.Hit(failpoint.RunCancelled, string(x.id))
		if err != nil && api.CodeOf(err) != api.CodeNotFound {
			return err // the task has to end, so a refusal is retried too
		}
		x.expected = true // it may have ended, or never have existed
		return p.poll(ctx, x, err)
	case effectPoll:
		return p.poll(ctx, x, nil)
	case effectLook:
		return p.lookAt(ctx, x)
	case effectAsk:
		return p.ask(ctx, x)
	}
	_, people := errors.AsType[*dispatch.Unapproved](err)
	if _, full := errors.AsType[*dispatch.Reserved](err); !people && !full && err != nil && transient(err) {
		return err
	}
	if err != nil {
		d, err = p.outcomeAfter(ctx, x, err)
	}
	p.inbox.put(submitted{x.run, x.task, x.fence, d, err})
	return nil
}

// poll sends the record of a dispatch to the engine. missing is the error of a
// cancel that found no dispatch: when it is running after all, it was not
// cancelled.
func (p *performer) poll(ctx context.Context, x effect, missing error) error {
	d, found, err := p.cfg.Dispatch.Get(ctx, x.id)
	if err == nil && missing != nil && found && (!d.State.Ended() || d.State == api.EventNeedsInput) && d.CancelBy == "" {
		err = missing
	}
	if err == nil {
		p.inbox.put(polled{x.run, x.task, x.fence, d, found, x.expected})
	}
	return err
}

// outcomeAfter returns the outcome of a dispatch whose submission failed with err
// because it has ended meanwhile.
func (p *performer) outcomeAfter(ctx context.Context, x effect, err error) (api.Dispatch, error) {
	d, ok, lookErr := p.cfg.Dispatch.Get(ctx, x.id)
	if lookErr != nil || !ok || d.Run != x.run.id || d.Task != x.name || !d.State.Ended() || d.State == api.EventNeedsInput && d.Attempt <= int(x.questionOf) {
		return api.Dispatch{}, err
	}
	return d, nil
}
