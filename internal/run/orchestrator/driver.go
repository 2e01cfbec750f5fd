package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// driver runs the engine in one goroutine: it applies events, commits what follows from
// them, and only then hands out the effects. Other goroutines reach the engine through
// its inbox.
type driver struct {
	cfg        *Config
	engine     *engine // owned by the goroutine of loop
	inbox      *fifo[event]
	effects    *fifo[effect]
	submitting submitting
	capacity   capacity

	life context.Context       //nolint:containedctx // the life of the orchestrator, not of a call
	done chan struct{}         // closed when loop has returned
	err  atomic.Pointer[error] // why the engine has halted
	busy atomic.Bool
}

func newDriver(life context.Context, cfg *Config) *driver {
	d := &driver{cfg: cfg, life: life, done: make(chan struct{}), inbox: newFIFO[event](), effects: newFIFO[effect](), capacity: capacity{tasks: cfg.OpenTasks, bytes: cfg.OpenBytes}}
	d.engine = newEngine(cfg)
	d.engine.grown = d.capacity.grow
	return d
}

// loop is the engine's goroutine: apply the events that arrived, commit, and only
// then carry out the effects.
func (d *driver) loop() {
	defer close(d.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.inbox.ready:
		case <-timer.C:
		case <-d.life.Done():
			return
		}
		b := d.newBatch()
		d.engine.due(b)
		for _, ev := range d.inbox.take(maxEvents) {
			ev.apply(d.engine, b)
		}
		d.engine.schedule(b)
		if err := d.commit(b); err != nil {
			if d.life.Err() == nil {
				d.halt(err)
			}
			return
		}
		d.busy.Store(d.engine.hasPendingWork())
		d.finish(b)
		timer.Reset(max(0, d.engine.timers.next().Sub(d.cfg.Steady())))
	}
}

func (d *driver) newBatch() *batch {
	return &batch{now: d.cfg.Now().UTC(), steady: d.cfg.Steady()}
}

// halt stops the engine until a restart, since memory may be ahead of the
// database.
func (d *driver) halt(err error) {
	d.err.Store(&err)
	d.cfg.Logger.LogAttrs(d.life, slog.LevelError, "the engine has halted until the service is restarted", slog.Any("err", err))
}

// commit makes a batch durable.
func (d *driver) commit(b *batch) error {
	e := d.engine
	if e.fault != nil {
		return e.fault
	}
	if b.changes() == 0 {
		return nil
	}
	failpoint.Hit(failpoint.RunCommit, "")
	if len(b.growths) > 0 {
		failpoint.Hit(failpoint.RunGrowCommit, "")
	}
	// The context cancels a commit only before it begins.
	if err := e.cfg.Ledger.CommitAll(d.life, b.items, func(tx *store.Tx) error {
		return errors.Join(b.write(tx, e.fence), b.endApprovals(tx, d.cfg.Approvals))
	}); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RunCommitted, "")
	if len(b.growths) > 0 {
		failpoint.Hit(failpoint.RunGrowCommitted, "")
	}
	return nil
}

// finish starts the effects of a durable batch, and notifies the observer.
func (d *driver) finish(b *batch) {
	for _, t := range b.tasks {
		t.run.tasks[t.task].dirty = false
	}
	for _, r := range b.runs {
		r.dirty = false
	}
	d.effects.put(b.effects...)
	for _, s := range b.settled {
		d.cfg.Observer.TaskSettled(s.state, s.reason)
	}
	for _, r := range b.done {
		d.capacity.release(r.principal, r.size())
		d.cfg.Logger.LogAttrs(d.life, slog.LevelInfo, "run settled", slog.String("run", string(r.id)), slog.String("state", string(r.state)))
		d.cfg.Observer.RunSettled(r.state)
	}
	if n := len(b.items); n > 0 {
		d.cfg.Observer.Committed(n)
	}
	for _, fn := range b.after {
		fn(d.engine)
	}
}

// query reads the engine's state after the next commit, when all of it is
// durable.
func query[T any](ctx context.Context, d *driver, fn func(e *engine) T) (T, error) {
	result := make(chan T, 1)
	d.inbox.put(engineQuery{func(e *engine) { result <- fn(e) }})
	return await(ctx, d, result)
}

// await returns what the engine sends, or why it does not.
func await[T any](ctx context.Context, d *driver, result <-chan T) (none T, err error) {
	select {
	case v := <-result:
		return v, nil
	case <-ctx.Done():
		return none, ctx.Err()
	case <-d.done:
	}
	select {
	case v := <-result:
		return v, nil
	default:
		return none, d.unavailable()
	}
}

// halted refuses a command when the engine has halted.
func (d *driver) halted() error {
	if d.err.Load() == nil {
		return nil
	}
	return d.unavailable()
}

func (d *driver) unavailable() error {
	if err := d.err.Load(); err != nil {
		return api.Errorf(api.CodeAuditUnavailable, "the engine has halted: %w", *err).WithHint("%s", store.Advice(*err))
	}
	return api.Errorf(api.CodeUnavailable, "the service is stopping")
}

// command is a change to a run or a queue.
type command struct {
	do     func(e *engine, b *batch) error
	result chan<- error // receives once the change is durable, or refused
}

// apply makes the change, and sends the result after the commit.
func (t command) apply(e *engine, b *batch) {
	err := t.do(e, b)
	b.after = append(b.after, func(*engine) { t.result <- err })
}

// execute has the engine make a change, and waits until that is durable. It
// ignores the caller's context: the change cannot be taken back.
func (d *driver) execute(do func(e *engine, b *batch) error) error {
	result := make(chan error, 1)
	d.inbox.put(command{do, result})
	err, stopped := await(context.WithoutCancel(d.life), d, result)
	return cmp.Or(stopped, err)
}

// taskState is a copy of a task of an unsettled run.
type taskState struct {
	index int32 // of the task; -1: no such task
	task  task
}

// lookUp returns a task of an unsettled run. It waits for a run whose submission is
// durable and has not reached the engine yet.
func (d *driver) lookUp(ctx context.Context, id api.RunID, name api.TaskID) (taskState, error) {
	for {
		submitting := d.submitting.of(id)
		found, err := query(ctx, d, func(e *engine) *taskState {
			r := e.byID[id]
			if r == nil {
				return nil
			}
			i, ok := r.plan.Index(name)
			if !ok {
				return &taskState{index: -1}
			}
			return &taskState{int32(i), r.tasks[i]} //nolint:gosec // G115: bounded by api.MaxPlanTasks
		})
		switch {
		case err != nil:
			return taskState{}, err
		case found != nil:
			return *found, nil
		case submitting == nil:
			return taskState{}, errSettled
		}
		select {
		case <-submitting:
		case <-ctx.Done():
			return taskState{}, ctx.Err()
		case <-d.done:
			return taskState{}, d.unavailable()
		}
	}
}
