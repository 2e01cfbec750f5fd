package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// lifecycle takes admitted dispatches from the start of their worker to their
// durable outcome.
type lifecycle struct {
	*records
	files   workFiles
	pending pendingStarts
	times   answerTimes

	// life is cancelled when the service closes; workers outlive it.
	life context.Context //nolint:containedctx // the life of the service, not of a call
	stop context.CancelFunc
	work sync.WaitGroup

	questions  background.Signal // sent when a dispatch begins to wait for an answer
	ended      background.Signal // sent when a dispatch has ended
	cancelTime time.Duration     // see the constant; less in tests
	hangTime   time.Duration     // likewise
	heartbeat  time.Duration     // record.Heartbeat; less in tests

	mu     sync.Mutex
	active map[api.DispatchID]*active // guarded by mu
	closed bool                       // guarded by mu
}

func newLifecycle(ctx context.Context, r *records) *lifecycle {
	l := &lifecycle{records: r, files: workFiles{r}, times: answerTimes{records: r}, active: map[api.DispatchID]*active{}, questions: background.NewSignal(), ended: background.NewSignal(), cancelTime: cancelTime, hangTime: hangTime, heartbeat: record.Heartbeat}
	l.life, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	return l
}

// Close stops the service's own work. Workers keep running; the next Open adopts
// them.
func (l *lifecycle) Close() error {
	l.mu.Lock()
	l.closed = true
	for _, a := range l.active {
		a.worker.Disconnect()
	}
	l.mu.Unlock()
	l.stop()
	l.work.Wait()
	return nil
}

// Running returns how many dispatches have a running worker, or are about to.
func (l *lifecycle) Running() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.active) + l.pending.count()
}

// closing reports whether Close has been called.
func (l *lifecycle) closing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// activeOf returns the running worker of a dispatch, or nil.
func (l *lifecycle) activeOf(id api.DispatchID) *active {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active[id]
}

// unreachableOf returns that the worker of a running attempt cannot connect to its model;
// nil: it can, or has not tried. Attempt 0 is the one that runs.
func (l *lifecycle) unreachableOf(id api.DispatchID, attempt int) *api.Unreachable {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.active[id]; a != nil && (attempt == 0 || a.row.record.Attempt == attempt) {
		return a.unreachable
	}
	return nil
}

// start starts the worker of an admitted dispatch. Nothing else starts one. job has
// the secrets of its manifest.
func (l *lifecycle) start(adm audit.Admission, r row, job executor.Job) {
	if err := adm.Redeem(admissionKind(r.record.Attempt), r.record.ID, r.record.Manifest); err != nil {
		l.logger(&r.record).ErrorContext(l.life, "dispatch not started", slog.Any("err", err))
		return
	}
	w, err := l.cfg.Executor.Start(l.life, job)
	if err != nil && l.life.Err() != nil {
		return // it has not proceeded: the next service starts it
	}
	if err == nil {
		l.supervise(r, w)
		return
	}
	o := outcome{event: api.EventFailed, reason: api.ReasonLost, message: "starting the worker failed: " + err.Error()}
	if api.CodeOf(err) == api.CodeIntegrity && !durable.IsFault(err) { // a blob does not have its digest
		o.reason = api.ReasonIntegrity
	}
	if err := l.end(context.WithoutCancel(l.life), r, o, update); err != nil {
		l.logUnrecorded(r, err)
	}
}

func (l *lifecycle) logUnrecorded(r row, err error) {
	l.logger(&r.record).ErrorContext(l.life, "the outcome of a dispatch was not recorded; the next start of the service retries", slog.Any("err", err))
}

// supervise follows a worker until it exits, then collects its result.
func (l *lifecycle) supervise(r row, w *executor.Worker) {
	a := &active{l: l, row: r, worker: w, refusals: &refusals{records: l.records, row: r}, tools: l.newTools(l.life, r, w), changed: make(chan struct{}), cancelled: background.NewSignal(), ended: make(chan struct{})}
	if r.record.CancelBy != "" { // under an earlier service
		a.cancelled <- struct{}{}
	}
	l.mu.Lock()
	l.active[r.record.ID] = a
	closed := l.closed
	l.mu.Unlock()
	if closed {
		w.Disconnect()
	}
	l.work.Go(func() {
		defer close(a.ended)
		exited := a.follow()
		a.refusals.logging.Wait()
		a.tools.end()
		if !exited {
			return // the next service adopts it
		}
		l.settle(a.row)
		l.mu.Lock()
		if l.active[r.record.ID] == a { // an answer may have started the next attempt
			delete(l.active, r.record.ID)
		}
		l.mu.Unlock()
	})
}

// settlePause is how long settle waits after its first failure; later pauses
// double, up to settleMost.
const (
	settlePause = 100 * time.Millisecond
	settleMost  = 10 * time.Second
)

// settle collects the result of a worker that has exited. It retries after a
// fault of the machine, such as a full disk: the result stays in the directory.
func (l *lifecycle) settle(r row) {
	for failures := 1; ; failures++ {
		err := l.collect(l.life, r)
		switch {
		case err == nil:
			return
		case !durable.IsFault(err) || errors.Is(err, store.ErrPoisoned):
			l.logUnrecorded(r, err)
			return
		}
		l.logger(&r.record).WarnContext(l.life, "the outcome of a dispatch could not be stored yet and is retried", slog.Any("err", err))
		if background.Pause(l.life, background.Backoff{First: settlePause, Most: settleMost}.After(failures)) != nil {
			return // the next service collects
		}
	}
}

// lifeEntry is an entry about the life of a dispatch, and of the run it belongs
// to.
func lifeEntry(kind record.Kind, r row, detail record.Detail) record.Entry {
	e := entryAbout(kind, r, detail)
	e.Run, e.Task = string(r.record.Run), string(r.record.Task)
	return e
}

// entryAbout is an entry about a dispatch that does not name its run, which may
// be settled.
func entryAbout(kind record.Kind, r row, detail record.Detail) record.Entry {
	tier := r.record.Tier
	return record.Entry{
		Kind: kind, Resource: string(r.record.Subagent), Dispatch: r.record.ID, Attempt: r.record.Attempt,
		Role: r.record.Role, Tier: &tier, Detail: detail,
	}
}
