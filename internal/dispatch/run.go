package dispatch

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/executor"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// closing is how far beyond the agent's time the service lets a worker go
// before it ends it. A worker keeps its own times, those of capture and verify
// included; this is for one that does not.
const closing = 6 * time.Hour

// cancelTime is how long a worker may take that was told to end: to end its
// agent and to keep what that has done. One that takes longer does not heed it,
// whatever the cause, and is ended.
const cancelTime = 10 * time.Minute

// active is a dispatch whose worker lives.
type active struct {
	row    row
	worker *executor.Worker

	changed   chan struct{} // closed and replaced when log grows; guarded by Service.mu
	cancelled chan struct{} // has one when it was cancelled
	ended     chan struct{} // closed when the end is in the records
}

// start fires the worker for an admitted dispatch. It is the only way to one.
func (s *Service) start(adm audit.Admission, r row, job executor.Job) {
	if err := adm.Redeem(admittedBy(r.record.Attempt), r.record.ID, r.record.Manifest); err != nil {
		s.logOf(&r.record).ErrorContext(s.life, "a dispatch was not started", slog.Any("err", err))
		return
	}
	w, err := s.cfg.Executor.Start(s.life, job)
	if err != nil && s.life.Err() != nil {
		return // it was never told to proceed: the next service begins it
	}
	if err != nil {
		reason := api.ReasonLost
		if api.CodeOf(err) == api.CodeIntegrity { // what it was to be handed is not what its name says
			reason = api.ReasonIntegrity
		}
		s.settle(r, outcome{event: api.EventFailed, reason: reason, message: "the worker could not be started: " + err.Error()})
		return
	}
	s.supervise(r, w)
}

// supervise follows a worker until it is gone, and then collects.
func (s *Service) supervise(r row, w *executor.Worker) {
	a := &active{row: r, worker: w, changed: make(chan struct{}), cancelled: make(chan struct{}, 1), ended: make(chan struct{})}
	if r.record.CancelBy != "" { // before this service was there
		a.cancelled <- struct{}{}
	}
	s.mu.Lock()
	s.active[r.record.ID] = a
	closed := s.closed
	s.mu.Unlock()
	if closed {
		w.Disconnect()
	}
	s.work.Go(func() {
		defer close(a.ended)
		if !s.attend(a) {
			return // the next service takes it up
		}
		if err := s.collect(s.life, a.row); err != nil {
			s.logOf(&r.record).ErrorContext(s.life, "a dispatch could not be recorded; the next start tries again", slog.Any("err", err))
		}
		s.mu.Lock()
		if s.active[r.record.ID] == a { // an answer may have started the next attempt
			delete(s.active, r.record.ID)
		}
		s.mu.Unlock()
	})
}

// attend hears what the worker says until it is gone. It returns false when
// the service ends first.
func (s *Service) attend(a *active) bool {
	limit := s.deadline(a.row)
	defer limit.Stop()
	for events, cancelled := a.worker.Events(), a.cancelled; ; {
		select {
		case m, ok := <-events:
			if !ok {
				events = nil // it says no more; its end is near
				continue
			}
			s.heard(a, m)
		case <-limit.C:
			s.logOf(&a.row.record).ErrorContext(s.life, "a worker is far beyond its time and is ended")
			s.kill(a)
			limit.Reset(s.cancelTime) // it may not have been possible
		case <-cancelled:
			limit.Reset(s.cancelTime)
			cancelled = nil // asking again gives it no more time
		case <-a.worker.Exited():
			return true
		case <-s.life.Done():
			return false
		}
	}
}

// deadline fires when a worker is so late that it will not end by itself.
func (s *Service) deadline(r row) *time.Timer {
	agent := time.Duration(api.DefaultLimits().Timeout)
	if m, err := s.manifest(s.life, r.record.Manifest); err == nil {
		agent = time.Duration(m.Limits.Timeout)
	}
	return time.NewTimer(agent + closing - s.cfg.Now().Sub(r.record.Since()))
}

func (s *Service) kill(a *active) {
	if err := a.worker.Kill(); err != nil {
		s.logOf(&a.row.record).ErrorContext(s.life, "a worker cannot be ended", slog.Any("err", err))
	}
}

func (s *Service) heard(a *active, m record.WorkerMessage) {
	switch m.Event {
	case "ready":
		if err := s.ready(a, m.Key); err != nil {
			if s.closing() {
				return // it failed because this service ends: the next one goes on from there
			}
			s.logOf(&a.row.record).ErrorContext(s.life, "a worker is not allowed to proceed", slog.Any("err", err))
			s.kill(a)
		}
	case "log":
		s.mu.Lock()
		close(a.changed)
		a.changed = make(chan struct{})
		s.mu.Unlock()
	}
}

// closing reports whether the service has begun to end.
func (s *Service) closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// ready binds the worker's key in the log, and lets the worker proceed once
// that is durable. A cancel that came before the worker was there reaches it
// now.
func (s *Service) ready(a *active, key string) error {
	if raw, err := base64.StdEncoding.DecodeString(key); err != nil || len(raw) != ed25519.PublicKeySize {
		return api.Errorf(api.CodeIntegrity, "the worker's key is not one")
	}
	r, ok, err := s.row(s.life, a.row.record.ID)
	if err != nil || !ok {
		return errors.Join(err, errors.New("no record"))
	}
	if r.key == "" {
		failpoint.Hit(failpoint.StartCommit, string(r.record.ID))
		if r, err = s.bind(r, key, a.worker.PID()); err != nil {
			return err
		}
		failpoint.Hit(failpoint.StartCommitted, string(r.record.ID))
	}
	if r.key != key {
		return api.Errorf(api.CodeIntegrity, "another key is bound in the log")
	}
	if r.record.CancelBy != "" {
		return a.worker.Cancel(cancelWords(r.record))
	}
	err = a.worker.Proceed()
	failpoint.Hit(failpoint.StartProceed, string(r.record.ID))
	return err
}

func (s *Service) bind(r row, key string, pid int) (row, error) {
	now := s.cfg.Now().UTC()
	entry := fact(record.KindDispatchStarted, r, record.DispatchStart{WorkerKey: key, PID: int64(pid)})
	entry.Refs = map[string]api.Digest{record.RefManifest: r.record.Manifest}
	_, err := s.cfg.Ledger.Record(s.life, entry, func(tx *store.Tx) error {
		// Whatever became of it meanwhile, such as a cancel, stays.
		latest, ok, err := load(tx, r.record.ID)
		if err != nil || !ok {
			return errors.Join(err, errors.New("no record"))
		}
		r = latest
		r.key, r.record.State, r.record.StartedAt = key, api.EventStarted, &now
		return update(tx, r)
	})
	if err == nil {
		s.started(r.record)
	}
	return r, err
}

// fact is an entry of the life of a dispatch, and of its run where it is a
// task's.
func fact(kind record.Kind, r row, detail record.Detail) record.Entry {
	e := about(kind, r, detail)
	e.Run, e.Task = string(r.record.Run), string(r.record.Task)
	return e
}

// about is an entry about a dispatch that says nothing of its run, which may be
// over.
func about(kind record.Kind, r row, detail record.Detail) record.Entry {
	tier := r.record.Tier
	return record.Entry{
		Kind: kind, Principal: r.record.Principal, Resource: string(r.record.Subagent), Dispatch: r.record.ID, Attempt: r.record.Attempt,
		Role: r.record.Role, Tier: &tier, Detail: detail,
	}
}

// found logs what a restarted service found of a dispatch.
func (s *Service) found(ctx context.Context, r row, worker string) error {
	_, err := s.cfg.Ledger.Record(ctx, fact(record.KindDispatchRecovered, r, record.DispatchRecovery{State: string(r.record.State), Worker: worker}), nil)
	failpoint.Hit(failpoint.RecoverFound, string(r.record.ID))
	if err == nil {
		s.logOf(&r.record).InfoContext(ctx, "found after a restart", slog.String("worker", worker))
		s.cfg.Observer.Recovered(worker)
	}
	return err
}
