package orchestrator

import (
	"context"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// maxReason bounds the reason of a cancel.
const maxReason = 4096

// Cancel cancels a run, or one task of it and its dependents. Running tasks are
// cancelled and captured; they may still run when Cancel returns. A settled run
// stays as it is.
func (o *Orchestrator) Cancel(ctx context.Context, caller dispatch.Caller, id api.RunID, req api.RunCancel) (api.Run, error) {
	if len(req.Reason) > maxReason {
		return api.Run{}, dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, "run.cancel", api.Errorf(api.CodeInvalid, "cancel: reason of %d bytes, the limit is %d", len(req.Reason), maxReason))
	}
	return o.steer(ctx, caller, id, policy.ActionRunCancel, steering{
		kind: record.KindRunCancelled, task: req.Task, detail: record.RunAction{Why: req.Reason},
		do: func(e *engine, b *batch, r *run, i int32) error {
			if i < 0 {
				e.cancelRun(b, r, api.Actor(caller.Principal), req.Reason)
			} else {
				e.cancelTask(b, r, i, api.Actor(caller.Principal), req.Reason)
			}
			return nil
		},
	})
}

// Pause keeps a run from starting further tasks; running ones continue.
func (o *Orchestrator) Pause(ctx context.Context, caller dispatch.Caller, id api.RunID) (api.Run, error) {
	return o.pause(ctx, caller, id, record.KindRunPaused, caller.Principal)
}

// Resume resumes a paused run.
func (o *Orchestrator) Resume(ctx context.Context, caller dispatch.Caller, id api.RunID) (api.Run, error) {
	return o.pause(ctx, caller, id, record.KindRunResumed, "")
}

// pause pauses a run, or resumes it when by is empty.
func (o *Orchestrator) pause(ctx context.Context, caller dispatch.Caller, id api.RunID, kind record.Kind, by api.Principal) (api.Run, error) {
	return o.steer(ctx, caller, id, policy.ActionRunPause, steering{kind: kind, do: func(e *engine, b *batch, r *run, _ int32) error {
		if (r.pausedBy == "") == (by == "") {
			return nil
		}
		r.pausedBy = by
		b.run(r)
		if by == "" {
			e.resources.unpark(r)
		} else {
			e.resources.park(r)
		}
		return nil
	}})
}

// Answer answers the question that a task waits with. The task resumes as soon as
// it has its locks and a slot again.
func (o *Orchestrator) Answer(ctx context.Context, caller dispatch.Caller, id api.RunID, req api.RunAnswer) (api.Run, error) {
	var attempt int32
	var asker api.DispatchID
	return o.steer(ctx, caller, id, policy.ActionRunAnswer, steering{
		kind: record.KindTaskAnswered, task: req.Task, needsTask: true,
		check: func(ctx context.Context, t *task, detail *record.RunAction) error {
			if !t.answerable() {
				return notAskingError(id, req.Task, t)
			}
			attempt, asker = t.questionOf, t.dispatch
			if req.DispatchID != "" && req.DispatchID != asker {
				return api.Errorf(api.CodeConflict, "run %s task %s: the open question is of dispatch %s, not of %s", id, req.Task, asker, req.DispatchID).
					WithHint("see: bailiwick run show %s", id)
			}
			if req.Attempt != 0 && req.Attempt != int(attempt) {
				return api.Errorf(api.CodeConflict, "run %s task %s: the open question is of attempt %d, not of attempt %d", id, req.Task, attempt, req.Attempt).
					WithHint("see: bailiwick run show %s", id)
			}
			option, err := o.cfg.Dispatch.ValidateAnswer(ctx, t.dispatch, api.AnswerRequest{Text: req.Text, Option: req.Option, Attempt: int(attempt)})
			detail.Option = int64(option)
			return err
		},
		do: func(e *engine, b *batch, r *run, i int32) error {
			t := &r.tasks[i]
			if !t.answerable() || t.questionOf != attempt || t.dispatch != asker {
				return api.Errorf(api.CodeConflict, "run %s task %s was answered or cancelled meanwhile", id, req.Task).WithHint("see: bailiwick run show %s", id)
			}
			t.answer = &answer{Text: req.Text, Option: req.Option, By: caller.Principal}
			b.answers = append(b.answers, t.dispatch)
			b.task(r, i)
			e.transition(r, i, record.EventAnswer)
			e.resources.enqueue(r, i)
			return nil
		},
	})
}

// answerable reports whether the task has an open question.
func (t *task) answerable() bool {
	return t.asking() && t.dispatch != "" && !t.writing() && t.answer == nil && t.cancelBy == ""
}

func notAskingError(id api.RunID, task api.TaskID, t *task) error {
	state := string(t.state)
	switch {
	case t.cancelBy != "" && !t.state.Settled():
		state = "being cancelled"
	case t.answer != nil:
		state = "answered already"
	}
	return api.Errorf(api.CodeConflict, "run %s task %s is %s and has no open question", id, task, state).WithHint("see: bailiwick run show %s", id)
}

// steering is a change that a principal makes to a run.
type steering struct {
	kind      record.Kind
	task      api.TaskID // empty: the run
	needsTask bool
	detail    record.RunAction
	// check refuses a change before it is committed, or completes its detail; may be
	// nil.
	check func(ctx context.Context, t *task, detail *record.RunAction) error
	// do makes the change in the engine, or refuses it when the run has changed
	// meanwhile; task is -1 for the run.
	do func(e *engine, b *batch, r *run, task int32) error
}

var errSettled = errors.New("the run is settled")

// steer decides about a change and has the engine make it: the entry of the
// decision and everything that follows from it are durable in one commit.
func (o *Orchestrator) steer(ctx context.Context, caller dispatch.Caller, id api.RunID, action policy.Action, s steering) (api.Run, error) {
	if err := o.driver.halted(); err != nil {
		return api.Run{}, err
	}
	decision, err := o.decide(ctx, caller, action, id)
	if err != nil {
		return api.Run{}, err
	}
	err = o.steerOpen(ctx, id, s, decision)
	if errors.Is(err, errSettled) {
		return o.logLate(ctx, decision, id, s)
	}
	if err != nil {
		if code := api.CodeOf(err); code == api.CodeInvalid || code == api.CodeConflict || code == api.CodeNotFound {
			err = dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, string(action), err)
		}
		return api.Run{}, err
	}
	return o.show(ctx, id, 0, defaultPage)
}

// steerOpen steers an unsettled run.
func (o *Orchestrator) steerOpen(ctx context.Context, id api.RunID, s steering, decision policy.Decision) error {
	now, err := o.driver.lookUp(ctx, id, s.task)
	switch {
	case err != nil:
		return err
	case now.index < 0 && (s.task != "" || s.needsTask):
		return api.Errorf(api.CodeNotFound, "run %s has no task %q", id, s.task).WithHint("see: bailiwick run show %s", id)
	}
	if s.check != nil {
		if err := s.check(ctx, &now.task, &s.detail); err != nil {
			return err
		}
	}
	if err := o.cfg.Ledger.Admits(s.kind); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RunSteerCommit, string(id))
	if err := o.driver.execute(func(e *engine, b *batch) error {
		r := e.byID[id]
		if r == nil {
			return errSettled
		}
		at := len(b.items)
		b.items = append(b.items, audit.Item{Decision: decision, Entry: record.Entry{Kind: s.kind, Run: string(id), Task: string(s.task), Detail: s.detail}})
		if err := s.do(e, b, r, now.index); err != nil {
			b.items = b.items[:at] // nothing was changed
			return err
		}
		e.settleRun(b, r)
		return nil
	}); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RunSteerCommitted, string(id))
	return nil
}

// logLate logs a change to a settled run, which has no effect. The entry does not
// belong to the run, whose history is sealed.
func (o *Orchestrator) logLate(ctx context.Context, decision policy.Decision, id api.RunID, s steering) (api.Run, error) {
	if _, err := o.cfg.Ledger.Commit(ctx, decision, audit.AccessEntry("", decision.Action()+" "+string(id)+", which is settled"), nil); err != nil {
		return api.Run{}, err
	}
	if s.needsTask {
		return api.Run{}, api.Errorf(api.CodeConflict, "run %s is settled", id)
	}
	return o.show(ctx, id, 0, defaultPage)
}

// PauseQueue keeps a queue from starting further tasks.
func (o *Orchestrator) PauseQueue(ctx context.Context, caller dispatch.Caller, name api.Name) (api.Queue, error) {
	return o.steerQueue(ctx, caller, name, record.KindQueuePaused, caller.Principal)
}

// ResumeQueue resumes a paused queue.
func (o *Orchestrator) ResumeQueue(ctx context.Context, caller dispatch.Caller, name api.Name) (api.Queue, error) {
	return o.steerQueue(ctx, caller, name, record.KindQueueResumed, "")
}

func (o *Orchestrator) steerQueue(ctx context.Context, caller dispatch.Caller, name api.Name, kind record.Kind, pausedBy api.Principal) (api.Queue, error) {
	if err := o.driver.halted(); err != nil {
		return api.Queue{}, err
	}
	rules, err := o.cfg.Dispatch.Engine(ctx)
	if err != nil {
		return api.Queue{}, err
	}
	d := rules.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionQueuePause, Resource: string(name), Token: caller.TokenValid != nil})
	if !d.Allowed() {
		return api.Queue{}, o.cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", d.Action()+" "+string(name)), nil)
	}
	if !o.cfg.configured(name) {
		err := api.Errorf(api.CodeNotFound, "no such queue %q", name).WithHint("see: bailiwick queue list")
		return api.Queue{}, dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, string(policy.ActionQueuePause), err)
	}
	if err := o.cfg.Ledger.Admits(kind); err != nil {
		return api.Queue{}, err
	}
	failpoint.Hit(failpoint.RunSteerCommit, string(name))
	if err := o.driver.execute(func(e *engine, b *batch) error {
		b.items = append(b.items, audit.Item{Decision: d, Entry: record.Entry{Kind: kind, Detail: record.RunAction{Queue: string(name)}}})
		if q := e.resources.queues[name]; q.paused() != (pausedBy != "") {
			e.pauseQueue(b, q, pausedBy)
		}
		return nil
	}); err != nil {
		return api.Queue{}, err
	}
	failpoint.Hit(failpoint.RunSteerCommitted, string(name))
	list, err := o.Queues(ctx)
	for _, q := range list {
		if q.Name == name {
			return q, nil
		}
	}
	return api.Queue{}, err
}
