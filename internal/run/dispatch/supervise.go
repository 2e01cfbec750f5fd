package dispatch

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// lifecycle takes admitted dispatches from the start of their worker to their
// durable outcome.
type lifecycle struct {
	*records
	files workFiles
	reads secretReads
	times answerTimes

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
	return len(l.active) + l.reads.count()
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

// overtime is how long the service lets a worker run past the agent's time
// limit before it kills it. A worker keeps its own limits, those of capture and
// verification included; this one catches a worker that does not.
const overtime = 6 * time.Hour

// cancelTime is how long a cancelled worker may take to stop its agent and keep
// the work so far, before the service kills it.
const cancelTime = 10 * time.Minute

// hangTime is how long a worker may be silent, and how much later than its agent's
// time limit and grace, before the service kills it: it has stopped, and holds
// locks. A worker that lives sends a message every record.Heartbeat.
const hangTime = time.Minute

// active is a dispatch whose worker is running. It follows the worker until it exits.
type active struct {
	l      *lifecycle
	row    row
	worker *executor.Worker

	refusals    *refusals        // that the worker reported
	unreachable *api.Unreachable // likewise; guarded by lifecycle.mu
	tools       *tools
	changed     chan struct{}     // closed and replaced when the log grows; guarded by lifecycle.mu
	cancelled   background.Signal // sent by a cancel
	ended       chan struct{}     // closed when the end is in the records
}

// follow handles the messages of a worker until it exits. It returns false when
// the service closes first.
func (a *active) follow() bool {
	agent := a.timeLimit()
	limit, overdue, beat := time.NewTimer(agent+overtime), time.NewTimer(agent+record.AgentGrace+a.l.hangTime), time.NewTicker(a.l.heartbeat)
	defer limit.Stop()
	defer overdue.Stop()
	defer beat.Stop()
	// Heartbeats missed in a row. A machine or service that slept has missed one.
	missed, late := 0, false
	for events, cancelled := a.worker.Events(), a.cancelled; ; {
		select {
		case m, ok := <-events:
			if !ok {
				events = nil // it is about to exit
				continue
			}
			missed = 0
			a.handle(m)
		case <-beat.C:
			if missed++; late && time.Duration(missed)*a.l.heartbeat >= a.l.hangTime {
				a.kill(fmt.Sprintf("it had not responded for %s", a.l.hangTime))
				missed = 0 // the kill may have failed
			}
		case <-overdue.C:
			late = true
		case <-limit.C:
			a.kill("it was far beyond its time limit, or had not stopped when it was cancelled")
			limit.Reset(a.l.cancelTime) // the kill may have failed
		case <-cancelled:
			limit.Reset(a.l.cancelTime)
			late, cancelled = true, nil // a second cancel gives it no more time
		case <-a.worker.Exited():
			return true
		case <-a.l.life.Done():
			return false
		}
	}
}

// timeLimit returns the time limit of a dispatch's agent. Time is measured from
// here on, by the monotonic clock.
func (a *active) timeLimit() time.Duration {
	m, err := a.l.manifest(a.l.life, a.row.record.Manifest)
	if err != nil {
		return time.Duration(api.DefaultLimits().Timeout)
	}
	return time.Duration(m.Limits.Timeout)
}

func (a *active) kill(why string) {
	a.l.logger(&a.row.record).ErrorContext(a.l.life, "killing a worker", slog.String("why", why))
	if err := a.worker.Kill(why); err != nil {
		a.l.logger(&a.row.record).ErrorContext(a.l.life, "killing a worker failed", slog.Any("err", err))
	}
}

func (a *active) handle(m record.WorkerMessage) {
	switch m.Event {
	case "ready":
		if err := a.ready(m.Key); err != nil {
			if a.l.closing() {
				return // it failed because the service is closing: the next one retries
			}
			a.kill("it may not proceed: " + err.Error())
		}
	case "refused":
		if m.Refused != nil {
			a.refusals.report(a.l.life, *m.Refused)
		}
	case "model":
		a.l.mu.Lock()
		a.unreachable = m.Unreachable
		a.l.mu.Unlock()
	case "asked":
		a.tools.acknowledged()
	case "log":
		a.l.mu.Lock()
		close(a.changed)
		a.changed = make(chan struct{})
		a.l.mu.Unlock()
	}
}

// ready binds the worker's key in the log, and tells the worker to proceed once
// that is durable. A cancel that came before the worker was ready is delivered
// now.
func (a *active) ready(key string) error {
	if _, err := decodeKey(key); err != nil {
		return api.Errorf(api.CodeIntegrity, "invalid worker key")
	}
	r, ok, err := a.l.row(a.l.life, a.row.record.ID)
	if err != nil || !ok {
		return errors.Join(err, errNoRecord)
	}
	if r.key == "" {
		failpoint.Hit(failpoint.StartCommit, string(r.record.ID))
		if r, err = a.bind(r, key, a.worker.PID()); err != nil {
			return err
		}
		failpoint.Hit(failpoint.StartCommitted, string(r.record.ID))
	}
	if r.key != key {
		return api.Errorf(api.CodeIntegrity, "the log binds another worker key")
	}
	if r.record.CancelBy != "" {
		return a.worker.Cancel(cancelReason(r.record))
	}
	err = a.worker.Proceed()
	failpoint.Hit(failpoint.StartProceed, string(r.record.ID))
	if err == nil {
		err = r.finish.tell(a.worker)
		a.tools.serve()
	}
	return err
}

func (a *active) bind(r row, key string, pid int) (row, error) {
	now := a.l.cfg.Now().UTC()
	entry := lifeEntry(record.KindDispatchStarted, r, record.DispatchStart{WorkerKey: key, PID: int64(pid)})
	entry.Refs = map[string]api.Digest{record.RefManifest: r.record.Manifest}
	_, err := a.l.cfg.Ledger.Record(a.l.life, entry, func(tx *store.Tx) error {
		// Keeps what happened meanwhile, such as a cancel.
		latest, ok, err := load(tx, r.record.ID)
		if err != nil || !ok {
			return errors.Join(err, errNoRecord)
		}
		r = latest
		r.key, r.record.State, r.record.StartedAt = key, api.EventStarted, &now
		return update(tx, r)
	})
	if err == nil {
		a.l.observeStarted(a.l.life, r.record)
	}
	return r, err
}

// decodeKey parses the public key of a worker.
func decodeKey(key string) (ed25519.PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errors.New("the log binds no valid worker key")
	}
	return raw, nil
}
