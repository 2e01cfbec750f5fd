package orchestrator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
)

const (
	// atOnce is how many effects are under way together: each waits for the disk.
	atOnce = 32
	// An effect that could not be had is tried again, ever more slowly.
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// effects is what has to be done and is not under way. Each is harmless to do
// again.
type effects struct {
	mu   sync.Mutex
	list []effect      // guarded by mu
	some chan struct{} // has one when there are effects
}

func (x *effects) init() { x.some = make(chan struct{}, 1) }

func (x *effects) start(o *Orchestrator) {
	for range atOnce {
		o.work.Go(func() {
			for {
				select {
				case <-x.some:
				case <-o.life.Done():
					return
				}
				for e, ok := x.take(); ok && o.life.Err() == nil; e, ok = x.take() {
					o.do(e)
				}
			}
		})
	}
	x.wake()
}

func (x *effects) put(list []effect) {
	if len(list) == 0 {
		return
	}
	x.mu.Lock()
	x.list = append(x.list, list...)
	x.mu.Unlock()
	x.wake()
}

func (x *effects) wake() {
	select {
	case x.some <- struct{}{}:
	default:
	}
}

// take returns the next, and wakes another worker when there are more.
func (x *effects) take() (effect, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.list) == 0 {
		return effect{}, false
	}
	e := x.list[0]
	x.list[0] = effect{}
	x.list = x.list[1:]
	if len(x.list) > 0 {
		x.wake()
	}
	return e, true
}

// do has one effect, and tells the engine what came of it. Where that is
// nothing, the engine says in a while whether it is still wanted.
func (o *Orchestrator) do(x effect) {
	err := o.try(x)
	if err == nil || o.life.Err() != nil {
		return // what is due is in the rows: the next Open begins with it
	}
	o.mail.put(failed{x})
	o.cfg.Logger.LogAttrs(o.life, slog.LevelWarn, "a task's dispatch could not be reached; it is tried again", slog.String("run", string(x.run.id)),
		slog.String("task", string(x.run.plan.Tasks[x.task].ID)), slog.String("what", string(x.kind)), slog.Any("err", err))
	x.pause = min(max(2*x.pause, firstPause), lastPause)
	o.work.Go(func() {
		t := time.NewTimer(x.pause)
		defer t.Stop()
		select {
		case <-t.C:
			o.mail.put(again{x})
		case <-o.life.Done():
		}
	})
}

// try returns an error when it is worth while to try again.
func (o *Orchestrator) try(x effect) error {
	ctx := dispatch.WithTrace(o.life, x.run.doc.Trace)
	var d api.Dispatch
	var err error
	switch x.kind {
	case effectFire:
		failpoint.Hit(failpoint.RunFire, string(x.order.Request.DispatchID))
		d, err = o.cfg.Dispatch.SubmitTask(ctx, x.caller, x.order)
		failpoint.Hit(failpoint.RunFired, string(x.order.Request.DispatchID))
		x.id = x.order.Request.DispatchID
	case effectResume:
		failpoint.Hit(failpoint.RunResume, string(x.id))
		req := api.AnswerRequest{Text: x.answer.Text, Option: x.answer.Option, Attempt: int(x.asked)}
		if req.Option != 0 {
			req.Text = ""
		}
		d, err = o.cfg.Dispatch.ResumeTask(ctx, x.caller, x.id, req, x.answer.By, x.fence)
		failpoint.Hit(failpoint.RunResumed, string(x.id))
	case effectCancel:
		failpoint.Hit(failpoint.RunCancel, string(x.id))
		_, err = o.cfg.Dispatch.Cancel(ctx, x.by, x.id, x.why)
		failpoint.Hit(failpoint.RunCancelled, string(x.id))
		if err != nil && api.CodeOf(err) != api.CodeNotFound {
			return err // refused for good or not: its task has to end, and is asked about ever more slowly
		}
		x.expected = true // it may be over, or never have been
		return o.look(ctx, x, err)
	case effectLook:
		return o.look(ctx, x, nil)
	}
	if err != nil && passing(err) {
		return err
	}
	if err != nil {
		d, err = o.anyway(ctx, x, err)
	}
	o.mail.put(fired{x.run, x.task, x.fence, d, err})
	return nil
}

// look tells the engine what the record of a dispatch says. A dispatch that is
// there and goes on, of which it was said that it is not, was not cancelled.
func (o *Orchestrator) look(ctx context.Context, x effect, missing error) error {
	d, found, err := o.cfg.Dispatch.Get(ctx, x.id)
	if err == nil && missing != nil && found && (!d.State.Ended() || d.State == api.EventNeedsInput) && d.CancelBy == "" {
		err = missing
	}
	if err == nil {
		o.mail.put(looked{x.run, x.task, x.fence, d, found, x.expected})
	}
	return err
}

// anyway returns what the dispatch has come to meanwhile, where it could not be
// asked for again because of that.
func (o *Orchestrator) anyway(ctx context.Context, x effect, err error) (api.Dispatch, error) {
	d, ok, lookErr := o.cfg.Dispatch.Get(ctx, x.id)
	if lookErr != nil || !ok || d.Run != x.run.id || d.Task != x.run.plan.Tasks[x.task].ID || !d.State.Ended() || d.State == api.EventNeedsInput && d.Attempt <= int(x.asked) {
		return api.Dispatch{}, err
	}
	return d, nil
}
