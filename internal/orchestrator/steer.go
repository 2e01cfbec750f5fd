package orchestrator

import (
	"context"
	"errors"
	"math"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// maxWhy bounds the reason that somebody gives.
const maxWhy = 4096

var errSettled = errors.New("the run is settled")

// Cancel ends a run, or one task of it and what depends on that. What runs is
// told to end and captured; it has not ended when this returns. A run that is
// settled stays as it is.
func (o *Orchestrator) Cancel(ctx context.Context, caller dispatch.Caller, id api.RunID, req api.RunCancel) (api.Run, error) {
	if len(req.Reason) > maxWhy {
		return api.Run{}, dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, "run.cancel", api.Errorf(api.CodeInvalid, "cancel: a reason of %d bytes, more than %d", len(req.Reason), maxWhy))
	}
	return o.steer(ctx, caller, id, steering{action: policy.ActionRunCancel, kind: record.KindRunCancelled, task: req.Task, order: order{kind: orderCancel, text: req.Reason}, detail: record.RunAct{Why: req.Reason}})
}

// Pause keeps anything new of a run from starting; what runs goes on.
func (o *Orchestrator) Pause(ctx context.Context, caller dispatch.Caller, id api.RunID) (api.Run, error) {
	return o.steer(ctx, caller, id, steering{action: policy.ActionRunPause, kind: record.KindRunPaused, order: order{kind: orderPause}})
}

// Resume lets a run that was paused go on.
func (o *Orchestrator) Resume(ctx context.Context, caller dispatch.Caller, id api.RunID) (api.Run, error) {
	return o.steer(ctx, caller, id, steering{action: policy.ActionRunPause, kind: record.KindRunResumed, order: order{kind: orderResume}})
}

// Answer answers the question that a task waits with. The task goes on as soon
// as it has its locks and a slot again.
func (o *Orchestrator) Answer(ctx context.Context, caller dispatch.Caller, id api.RunID, req api.RunAnswer) (api.Run, error) {
	return o.steer(ctx, caller, id, steering{
		action: policy.ActionRunAnswer, kind: record.KindTaskAnswered, task: req.Task,
		order: order{kind: orderAnswer, text: req.Text, option: req.Option, asked: int32(min(max(req.Attempt, 0), math.MaxInt32))}, detail: record.RunAct{Option: int64(req.Option)},
	})
}

// steering is one thing that somebody does to a run.
type steering struct {
	action policy.Action
	kind   record.Kind
	task   api.TaskID
	order  order
	detail record.RunAct
}

// steer decides, makes what is to be done durable, and has the engine heed it.
func (o *Orchestrator) steer(ctx context.Context, caller dispatch.Caller, id api.RunID, s steering) (api.Run, error) {
	if o.Err() != nil {
		return api.Run{}, o.ending()
	}
	seq, decision, err := o.decide(ctx, caller, s.action, id)
	if err != nil {
		return api.Run{}, err
	}
	refuse := func(err error) (api.Run, error) {
		return api.Run{}, dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, string(s.action), err)
	}
	s.order.run, s.order.task, s.order.by = seq, -1, caller.Principal
	now, err := ask(ctx, o, func(e *engine) sight { return e.sight(id, s.task) })
	switch {
	case err != nil:
		return api.Run{}, err
	case !now.open:
		return o.late(ctx, decision, id, s)
	case now.index < 0 && (s.task != "" || s.order.kind == orderAnswer):
		return refuse(api.Errorf(api.CodeNotFound, "run %s has no task %q", id, s.task).WithHint("see: bailiwick run show %s", id))
	}
	s.order.task = now.index
	if s.order.kind == orderAnswer {
		t := &now.task
		if !t.asks() || t.answer != nil || t.cancelBy != "" {
			return refuse(notAsking(id, s.task, t))
		}
		if s.order.asked != 0 && s.order.asked != t.asked {
			return refuse(api.Errorf(api.CodeConflict, "run %s task %s: the question of attempt %d is not the one that waits, which is of attempt %d", id, s.task, s.order.asked, t.asked).
				WithHint("see: bailiwick run show %s", id))
		}
		s.order.asked = t.asked
		if err := o.cfg.Dispatch.CheckAnswer(ctx, t.dispatch, api.AnswerRequest{Text: s.order.text, Option: s.order.option, Attempt: int(t.asked)}); err != nil {
			return refuse(err)
		}
	}
	failpoint.Hit(failpoint.RunSteerCommit, string(id))
	entry := record.Entry{Kind: s.kind, Run: string(id), Task: string(s.task), Detail: s.detail}
	_, err = o.cfg.Ledger.Commit(ctx, decision, entry, func(tx *store.Tx) error {
		if err := caller.Gone(); err != nil {
			return err
		}
		if err := stillOpen(tx, seq); err != nil {
			return err
		}
		if s.order.kind == orderAnswer {
			if err := stillAsking(tx, &s.order); err != nil {
				return err
			}
			if err := dispatch.Answered(tx, now.task.dispatch); err != nil { // it expires no more
				return err
			}
		}
		return insertOrder(tx, &s.order)
	})
	switch {
	case errors.Is(err, errSettled):
		return o.late(ctx, decision, id, s)
	case errors.Is(err, errTaken):
		return refuse(api.Errorf(api.CodeConflict, "run %s task %s: somebody else answered first", id, s.task).WithHint("see: bailiwick run show %s", id))
	case err != nil:
		return api.Run{}, err
	}
	failpoint.Hit(failpoint.RunSteerCommitted, string(id))
	o.mail.put(told{s.order})
	return o.show(ctx, id, 0, defaultPage)
}

// sight is what is known of a run, and of one of its tasks.
type sight struct {
	open  bool
	index int32 // of the task; -1: there is none of that name
	task  task
}

func (e *engine) sight(id api.RunID, name api.TaskID) sight {
	r := e.byID[id]
	if r == nil {
		return sight{}
	}
	i, ok := r.plan.Index(name)
	if !ok {
		return sight{open: true, index: -1}
	}
	return sight{true, int32(i), r.tasks[i]} //nolint:gosec // G115: bounded by api.MaxPlanTasks
}

func notAsking(id api.RunID, task api.TaskID, t *task) error {
	is := string(t.state)
	switch {
	case t.cancelBy != "" && !t.state.Settled():
		is = "being cancelled"
	case t.answer != nil:
		is = "answered already"
	}
	return api.Errorf(api.CodeConflict, "run %s task %s is %s and asks nothing", id, task, is).WithHint("see: bailiwick run show %s", id)
}

// late logs what was done to a run that is settled. It changes nothing, and
// nothing is appended to what is sealed: the entry is not the run's.
func (o *Orchestrator) late(ctx context.Context, decision policy.Decision, id api.RunID, s steering) (api.Run, error) {
	entry := record.Entry{Kind: record.KindAccessAllowed, Detail: record.Access{Operation: string(s.action) + " " + string(id) + ", which is settled"}}
	if _, err := o.cfg.Ledger.Commit(ctx, decision, entry, nil); err != nil {
		return api.Run{}, err
	}
	if s.order.kind == orderAnswer {
		return api.Run{}, api.Errorf(api.CodeConflict, "run %s is settled", id)
	}
	return o.show(ctx, id, 0, defaultPage)
}

func stillOpen(tx *store.Tx, seq int64) error {
	var n int
	if err := tx.Get("SELECT count(*) FROM run WHERE seq = ? AND settled IS NULL", store.Args{seq}, &n); err != nil {
		return err
	}
	if n == 0 {
		return errSettled
	}
	return nil
}

// stillAsking refuses a second answer to a question.
func stillAsking(tx *store.Tx, o *order) error {
	var asks, answered int
	err := tx.Get("SELECT count(*) FROM run_task WHERE run = ? AND task = ? AND state = 'waiting' AND asked = ? AND answer = '' AND cancel_by = ''",
		store.Args{o.run, o.task, o.asked}, &asks)
	if err == nil {
		err = tx.Get("SELECT count(*) FROM run_order WHERE run = ? AND task = ? AND kind = ? AND asked = ?", store.Args{o.run, o.task, orderAnswer, o.asked}, &answered)
	}
	if err == nil && (asks == 0 || answered > 0) {
		err = errTaken
	}
	return err
}

// PauseQueue keeps anything new from starting in a queue.
func (o *Orchestrator) PauseQueue(ctx context.Context, caller dispatch.Caller, name api.Name) (api.Queue, error) {
	return o.steerQueue(ctx, caller, name, record.KindQueuePaused, orderPauseQueue)
}

// ResumeQueue lets a queue that was paused go on.
func (o *Orchestrator) ResumeQueue(ctx context.Context, caller dispatch.Caller, name api.Name) (api.Queue, error) {
	return o.steerQueue(ctx, caller, name, record.KindQueueResumed, orderResumeQueue)
}

func (o *Orchestrator) steerQueue(ctx context.Context, caller dispatch.Caller, name api.Name, kind record.Kind, what orderKind) (api.Queue, error) {
	if o.Err() != nil {
		return api.Queue{}, o.ending()
	}
	engine, err := o.cfg.Dispatch.Engine(ctx)
	if err != nil {
		return api.Queue{}, err
	}
	d := engine.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionQueuePause, Resource: string(name), Token: caller.Good != nil})
	ord := order{kind: what, queue: name, task: -1, by: caller.Principal}
	if d.Allowed() && !o.configured(name) {
		err := api.Errorf(api.CodeNotFound, "there is no queue %q", name).WithHint("see: bailiwick queue list")
		return api.Queue{}, dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, string(policy.ActionQueuePause), err)
	}
	failpoint.Hit(failpoint.RunSteerCommit, string(name))
	if _, err := o.cfg.Ledger.Commit(ctx, d, record.Entry{Kind: kind, Detail: record.RunAct{Queue: string(name)}}, func(tx *store.Tx) error { return insertOrder(tx, &ord) }); err != nil {
		return api.Queue{}, err
	}
	failpoint.Hit(failpoint.RunSteerCommitted, string(name))
	o.mail.put(told{ord})
	list, err := o.Queues(ctx)
	for _, q := range list {
		if q.Name == name {
			return q, nil
		}
	}
	return api.Queue{}, err
}
