package dispatch

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

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
