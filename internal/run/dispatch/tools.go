package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

// Tools is what agents call tools through. *gateway.Gateway implements it.
type Tools interface {
	// Open opens the view of an attempt.
	Open(ctx context.Context, a gateway.Attempt) (*gateway.View, error)
	// ClosedSince returns when a tool was found to be closed; the zero time for an open one.
	ClosedSince(revision *catalog.Revision, tool api.Tool) time.Time
	// Seal records as unknown the calls of an attempt that are out, and returns the record
	// of all its calls; nil without calls.
	Seal(ctx context.Context, id api.DispatchID, attempt int) (*api.Artifact, error)
	// Calls passes the calls of an attempt with their arguments and answers to each, in
	// their order: from sealed, which an ended attempt has, or while it runs from where they
	// are kept.
	Calls(ctx context.Context, id api.DispatchID, attempt int, sealed *api.Artifact, each func(*api.ToolCallLine) error) error
}

const (
	// toolPause is how long the service waits before it dials a worker again, after the
	// first failure; later pauses double, up to toolPauseMost.
	toolPause     = 100 * time.Millisecond
	toolPauseMost = 5 * time.Second
	// toolPing is how long the worker may be silent before it is asked whether it is there.
	toolPing = 30 * time.Second
)

// tools serves the tools of an attempt while its worker runs. It implements
// gateway.Running.
type tools struct {
	*records
	row     row // of the attempt, as it was when the service met its worker
	worker  *executor.Worker
	service context.Context //nolint:containedctx // ends when the service closes; the worker may run on

	once   sync.Once
	ctx    context.Context //nolint:containedctx // ends with the worker, or the service
	cancel context.CancelFunc
	done   sync.WaitGroup

	ack   sync.Once
	asked chan struct{} // closed when the worker has the question
}

func (s *records) newTools(service context.Context, r row, w *executor.Worker) *tools {
	t := &tools{records: s, row: r, worker: w, service: service, asked: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(service)
	return t
}

// end returns when nothing serves the tools any more.
func (t *tools) end() {
	t.cancel()
	t.done.Wait()
}

// serve opens the view of an attempt whose worker may proceed, once, and serves it until
// the worker has exited. It does not wait.
func (t *tools) serve() {
	t.once.Do(func() {
		t.done.Go(func() {
			for failures := 1; t.ctx.Err() == nil; failures++ {
				err := t.serveView(t.ctx)
				if t.ctx.Err() == nil {
					t.logger(&t.row.record).WarnContext(t.ctx, "the view of an agent's tools could not be opened and is retried", slog.Any("err", err))
					_ = background.Pause(t.ctx, toolRetry(failures))
				}
			}
		})
	})
}

// serveView opens the view of an attempt and serves it until the tools end.
func (t *tools) serveView(ctx context.Context) error {
	m, err := t.manifest(ctx, t.row.record.Manifest)
	if err != nil {
		return err
	}
	snap, err := t.cfg.InForce.At(ctx, m.RevisionDigest)
	if err != nil {
		return err
	}
	v, err := t.cfg.Tools.Open(ctx, gateway.Attempt{Manifest: &m, Revision: snap.Revision, Taint: t.row.record.Taint, Running: t})
	if err != nil {
		return err
	}
	defer v.Close()
	for failures := 0; ctx.Err() == nil; {
		conn, err := t.worker.Tools(ctx)
		if err == nil {
			serveConn(ctx, conn, v, func() bool {
				stopping := t.service.Err() != nil // while the worker runs on
				if stopping {
					v.Stop()
				}
				return stopping
			})
			failures = 0
		}
		failures++
		_ = background.Pause(ctx, toolRetry(failures))
	}
	return nil
}

func toolRetry(failures int) time.Duration {
	return background.Backoff{First: toolPause, Most: toolPauseMost}.After(failures)
}

// finish is why the service ends an attempt whose agent called a tool. It is durable with
// the entry of that call, so that the next service tells the worker again.
type finish struct {
	Question *api.Question `json:"question,omitempty"`
	Spent    string        `json:"spent,omitempty"`
}

// Mark implements gateway.Running. A call may be allowed only while the attempt runs.
func (t *tools) Mark(tx *store.Tx, k gateway.Mark) error {
	was := &t.row.record
	if (k == gateway.Mark{Allowed: k.Allowed, Tier: k.Tier}) { // it changes nothing else
		if counted, err := countCall(tx, was, k.Allowed); counted || err != nil {
			if err == nil && k.Allowed {
				err = t.checkForce(tx, was, k.Tier)
			}
			return err
		}
	}
	r, ok, err := load(tx, was.ID)
	d := &r.record
	switch {
	case err != nil:
		return err
	case !ok || d.Attempt != was.Attempt || d.State != api.EventStarted:
		return gateway.ErrEnded
	case k.Allowed:
		if err := t.checkCall(tx, r, k); err != nil {
			return err
		}
	}
	if d.Calls == nil {
		d.Calls = &api.ToolCalls{}
	}
	calls := *d.Calls
	if d.Calls = &calls; k.Allowed {
		calls.Allowed++
	} else {
		calls.Denied++
	}
	if d.Taint == nil {
		d.Taint = k.Taint // the first one says it
	}
	if k.Progress != nil {
		d.Progress = k.Progress
	}
	if k.Question != nil {
		r.finish.Question = k.Question
	}
	if k.Spent != "" && r.finish.Spent == "" {
		r.finish.Spent = k.Spent
	}
	return update(tx, r)
}

// checkCall refuses a call that something overtook since it was decided.
func (t *tools) checkCall(tx *store.Tx, r row, k gateway.Mark) error {
	d := &r.record
	switch {
	case d.CancelBy != "":
		return gateway.ErrOvertaken
	case r.finish.Spent != "":
		return gateway.ErrEnded
	case k.Question != nil && r.finish.Question != nil:
		return gateway.ErrAsked
	}
	return t.checkForce(tx, d, k.Tier)
}

// checkForce refuses a call that a stop or a lower ceiling overtook.
func (t *tools) checkForce(tx *store.Tx, d *api.Dispatch, tier api.Tier) error {
	stops, err := t.cfg.Registry.StopsIn(tx, api.StopSubject{Principal: d.Principal, Target: d.Target, Run: d.Run, Dispatch: d.ID})
	if err != nil {
		return err
	}
	consent, err := t.cfg.Registry.ConsentIn(tx, d.Principal)
	if err == nil && (len(stops) > 0 || consent < tier) {
		err = gateway.ErrOvertaken
	}
	return err
}

// Ask implements gateway.Running: the question is durable, and the worker keeps it when
// Ask returns.
func (t *tools) Ask(ctx context.Context, q api.Question) error {
	if err := t.worker.Ask(q); err != nil {
		return err
	}
	select {
	case <-t.asked:
		return nil
	case <-t.worker.Exited():
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Spent implements gateway.Running.
func (t *tools) Spent(limit string) {
	if err := t.worker.Spent(limit); err != nil {
		t.logger(&t.row.record).WarnContext(t.ctx, "telling a worker that a limit ends it failed", slog.Any("err", err))
	}
}

// acknowledged notes that the worker keeps the question.
func (t *tools) acknowledged() { t.ack.Do(func() { close(t.asked) }) }

// tell tells a worker again why its attempt ends.
func (f finish) tell(w *executor.Worker) error {
	var err error
	if f.Spent != "" {
		err = w.Spent(f.Spent)
	}
	if f.Question != nil {
		err = errors.Join(err, w.Ask(*f.Question))
	}
	return err
}
