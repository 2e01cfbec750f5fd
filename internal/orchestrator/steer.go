package orchestrator

import (
	"context"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// maxWhy bounds the reason that somebody gives.
const maxWhy = 4096

// Cancel ends a run, or one task of it and what depends on that. What runs is
// told to end and captured; it has not ended when this returns. A run that is
// settled stays as it is.
func (o *Orchestrator) Cancel(ctx context.Context, caller dispatch.Caller, id api.RunID, req api.RunCancel) (api.Run, error) {
	if len(req.Reason) > maxWhy {
		return api.Run{}, dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, "run.cancel", api.Errorf(api.CodeInvalid, "cancel: a reason of %d bytes, more than %d", len(req.Reason), maxWhy))
	}
	return o.steer(ctx, caller, id, policy.ActionRunCancel, steering{
		kind: record.KindRunCancelled, task: req.Task, detail: record.RunAction{Why: req.Reason},
		heed: func(e *engine, b *batch, r *run, i int32) error {
			if i < 0 {
				e.cancelRun(b, r, caller.Principal, req.Reason)
			} else {
				e.cancelTask(b, r, i, caller.Principal, req.Reason)
			}
			return nil
		},
	})
}

// Pause keeps anything new of a run from starting; what runs goes on.
func (o *Orchestrator) Pause(ctx context.Context, caller dispatch.Caller, id api.RunID) (api.Run, error) {
	return o.steer(ctx, caller, id, policy.ActionRunPause, steering{
		kind: record.KindRunPaused,
		heed: func(e *engine, b *batch, r *run, _ int32) error {
			if r.pausedBy == "" {
				r.pausedBy = caller.Principal
				b.run(r)
				e.park(r)
			}
			return nil
		},
	})
}

// Resume lets a run that was paused go on.
func (o *Orchestrator) Resume(ctx context.Context, caller dispatch.Caller, id api.RunID) (api.Run, error) {
	return o.steer(ctx, caller, id, policy.ActionRunPause, steering{
		kind: record.KindRunResumed,
		heed: func(e *engine, b *batch, r *run, _ int32) error {
			if r.pausedBy != "" {
				r.pausedBy = ""
				b.run(r)
				e.unpark(r)
			}
			return nil
		},
	})
}

// Answer answers the question that a task waits with. The task goes on as soon
// as it has its locks and a slot again.
func (o *Orchestrator) Answer(ctx context.Context, caller dispatch.Caller, id api.RunID, req api.RunAnswer) (api.Run, error) {
	var asked int32
	var of api.DispatchID
	return o.steer(ctx, caller, id, policy.ActionRunAnswer, steering{
		kind: record.KindTaskAnswered, task: req.Task, needsTask: true, detail: record.RunAction{Option: int64(req.Option)},
		check: func(ctx context.Context, t *task) error {
			if !t.waitsForAnswer() {
				return notAsking(id, req.Task, t)
			}
			asked, of = t.asked, t.dispatch
			if req.DispatchID != "" && req.DispatchID != of {
				return api.Errorf(api.CodeConflict, "run %s task %s: the question of dispatch %s is not the one that waits, which is of %s", id, req.Task, req.DispatchID, of).
					WithHint("see: bailiwick run show %s", id)
			}
			if req.Attempt != 0 && req.Attempt != int(asked) {
				return api.Errorf(api.CodeConflict, "run %s task %s: the question of attempt %d is not the one that waits, which is of attempt %d", id, req.Task, req.Attempt, asked).
					WithHint("see: bailiwick run show %s", id)
			}
			return o.cfg.Dispatch.ValidateAnswer(ctx, t.dispatch, api.AnswerRequest{Text: req.Text, Option: req.Option, Attempt: int(asked)})
		},
		heed: func(e *engine, b *batch, r *run, i int32) error {
			t := &r.tasks[i]
			if !t.waitsForAnswer() || t.asked != asked || t.dispatch != of {
				return api.Errorf(api.CodeConflict, "run %s task %s: somebody else answered or cancelled it first", id, req.Task).WithHint("see: bailiwick run show %s", id)
			}
			t.answer = &answer{Text: req.Text, Option: req.Option, By: caller.Principal}
			b.answers = append(b.answers, t.dispatch)
			b.task(r, i)
			e.move(r, i, plan.EventAnswer)
			e.queueUp(r, i)
			return nil
		},
	})
}

func (t *task) waitsForAnswer() bool { return t.asks() && t.answer == nil && t.cancelBy == "" }

func notAsking(id api.RunID, task api.TaskID, t *task) error {
	is := string(t.state)
	switch {
	case t.cancelBy != "" && !t.state.Settled():
		is = "being cancelled"
	case t.answer != nil:
		is = "answered already"
	}
	return api.Errorf(api.CodeConflict, "run %s task %s is %s and has no open question", id, task, is).WithHint("see: bailiwick run show %s", id)
}

// steering is one thing that somebody does to a run.
type steering struct {
	kind      record.Kind
	task      api.TaskID // empty: the run
	needsTask bool
	detail    record.RunAction
	// check refuses what cannot be, before it is decided for good; nil: nothing.
	check func(ctx context.Context, t *task) error
	// heed does it, in the engine, and is asked whether it still can be; task is
	// -1 for the run.
	heed func(e *engine, b *batch, r *run, task int32) error
}

var errSettled = errors.New("the run is settled")

// steer decides, and has the engine heed what was decided: the entry of the
// decision and all that follows from it are durable in one commit, so nothing
// comes between them.
func (o *Orchestrator) steer(ctx context.Context, caller dispatch.Caller, id api.RunID, action policy.Action, s steering) (api.Run, error) {
	if o.Err() != nil {
		return api.Run{}, o.ending()
	}
	decision, err := o.decide(ctx, caller, action, id)
	if err != nil {
		return api.Run{}, err
	}
	err = o.steerOpen(ctx, id, s, decision)
	if errors.Is(err, errSettled) {
		return o.late(ctx, decision, id, s)
	}
	if err != nil {
		if code := api.CodeOf(err); code == api.CodeInvalid || code == api.CodeConflict || code == api.CodeNotFound {
			err = dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, string(action), err)
		}
		return api.Run{}, err
	}
	return o.show(ctx, id, 0, defaultPage)
}

// steerOpen steers a run that is not settled.
func (o *Orchestrator) steerOpen(ctx context.Context, id api.RunID, s steering, decision policy.Decision) error {
	now, err := o.sight(ctx, id, s.task)
	switch {
	case err != nil:
		return err
	case now.index < 0 && (s.task != "" || s.needsTask):
		return api.Errorf(api.CodeNotFound, "run %s has no task %q", id, s.task).WithHint("see: bailiwick run show %s", id)
	}
	if s.check != nil {
		if err := s.check(ctx, &now.task); err != nil {
			return err
		}
	}
	if err := o.cfg.Ledger.Admits(s.kind); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RunSteerCommit, string(id))
	t := told{answer: make(chan error, 1), heed: func(e *engine, b *batch) error {
		r := e.byID[id]
		if r == nil {
			return errSettled
		}
		at := len(b.items)
		b.items = append(b.items, audit.Item{Decision: decision, Entry: record.Entry{Kind: s.kind, Run: string(id), Task: string(s.task), Detail: s.detail}})
		if err := s.heed(e, b, r, now.index); err != nil {
			b.items = b.items[:at] // and nothing was done
			return err
		}
		e.close(b, r)
		return nil
	}}
	if err := o.have(t); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RunSteerCommitted, string(id))
	return nil
}

// told is what somebody does to a run or a queue.
type told struct {
	heed   func(e *engine, b *batch) error
	answer chan error // has one once it is durable, or refused
}

// apply does it, and says so after the commit.
func (t told) apply(e *engine, b *batch) {
	err := t.heed(e, b)
	b.after = append(b.after, func(*engine) { t.answer <- err })
}

// have has the engine heed something, and waits until that is durable: who asked
// may go, but what was asked cannot be taken back.
func (o *Orchestrator) have(t told) error {
	o.mail.put(t)
	select {
	case err := <-t.answer:
		return err
	case <-o.done:
	}
	select {
	case err := <-t.answer:
		return err
	default:
		return o.ending()
	}
}

// sight is what is known of a run that is not settled, and of one of its tasks.
type sight struct {
	index int32 // of the task; -1: there is none of that name
	task  task
}

// sight looks at a run. One whose submission has just become durable may not
// have reached the engine yet, and is waited for.
func (o *Orchestrator) sight(ctx context.Context, id api.RunID, name api.TaskID) (sight, error) {
	for {
		coming := o.coming.of(id)
		found, err := ask(ctx, o, func(e *engine) *sight {
			r := e.byID[id]
			if r == nil {
				return nil
			}
			i, ok := r.plan.Index(name)
			if !ok {
				return &sight{index: -1}
			}
			return &sight{int32(i), r.tasks[i]} //nolint:gosec // G115: bounded by api.MaxPlanTasks
		})
		switch {
		case err != nil:
			return sight{}, err
		case found != nil:
			return *found, nil
		case coming == nil:
			return sight{}, errSettled
		}
		select {
		case <-coming:
		case <-ctx.Done():
			return sight{}, ctx.Err()
		case <-o.done:
			return sight{}, o.ending()
		}
	}
}

// late logs what was done to a run that is settled. It changes nothing, and
// nothing is appended to what is sealed: the entry is not the run's.
func (o *Orchestrator) late(ctx context.Context, decision policy.Decision, id api.RunID, s steering) (api.Run, error) {
	if _, err := o.cfg.Ledger.Commit(ctx, decision, audit.AccessEntry("", decision.Action()+" "+string(id)+", which is settled"), nil); err != nil {
		return api.Run{}, err
	}
	if s.needsTask {
		return api.Run{}, api.Errorf(api.CodeConflict, "run %s is settled", id)
	}
	return o.show(ctx, id, 0, defaultPage)
}

// PauseQueue keeps anything new from starting in a queue.
func (o *Orchestrator) PauseQueue(ctx context.Context, caller dispatch.Caller, name api.Name) (api.Queue, error) {
	return o.steerQueue(ctx, caller, name, record.KindQueuePaused, caller.Principal)
}

// ResumeQueue lets a queue that was paused go on.
func (o *Orchestrator) ResumeQueue(ctx context.Context, caller dispatch.Caller, name api.Name) (api.Queue, error) {
	return o.steerQueue(ctx, caller, name, record.KindQueueResumed, "")
}

func (o *Orchestrator) steerQueue(ctx context.Context, caller dispatch.Caller, name api.Name, kind record.Kind, pausedBy api.Principal) (api.Queue, error) {
	if o.Err() != nil {
		return api.Queue{}, o.ending()
	}
	rules, err := o.cfg.Dispatch.Engine(ctx)
	if err != nil {
		return api.Queue{}, err
	}
	d := rules.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionQueuePause, Resource: string(name), Token: caller.TokenValid != nil})
	if !d.Allowed() {
		return api.Queue{}, o.cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", d.Action()+" "+string(name)), nil)
	}
	if !o.configured(name) {
		err := api.Errorf(api.CodeNotFound, "there is no queue %q", name).WithHint("see: bailiwick queue list")
		return api.Queue{}, dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, string(policy.ActionQueuePause), err)
	}
	if err := o.cfg.Ledger.Admits(kind); err != nil {
		return api.Queue{}, err
	}
	failpoint.Hit(failpoint.RunSteerCommit, string(name))
	if err := o.have(told{answer: make(chan error, 1), heed: func(e *engine, b *batch) error {
		b.items = append(b.items, audit.Item{Decision: d, Entry: record.Entry{Kind: kind, Detail: record.RunAction{Queue: string(name)}}})
		if q := e.queues[name]; q.paused() != (pausedBy != "") {
			e.pauseQueue(b, q, pausedBy)
		}
		return nil
	}}); err != nil {
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
