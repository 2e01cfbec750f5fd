package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// Secrets resolves references to secrets. Its errors name no value. In mode system there is
// nil: the launcher resolves them.
type Secrets interface {
	Resolve(ctx context.Context, ref string) (string, error)
}

// secretTime bounds how long the secrets of an attempt may take; less than startTime.
const secretTime = 2 * time.Minute

// launch starts the worker of an admitted attempt with the values that the secrets
// of its manifest have now. A secret store that does not answer delays no caller.
func (l *lifecycle) launch(adm audit.Admission, r row, m record.Manifest) {
	job := l.files.job(l.life, r, m)
	if len(m.Secrets) == 0 || l.cfg.Secrets == nil { // nil: the launcher has the values
		l.withCheckout(r, m, func() { l.start(adm, r, job) })
		return
	}
	ctx, cancel := context.WithTimeout(l.life, secretTime)
	l.pending.begin(r.record.ID, cancel)
	l.work.Go(func() {
		defer cancel()
		defer l.pending.done(r.record.ID)
		var err error
		job.Secrets, err = record.ReadSecrets(ctx, func(ctx context.Context, ref api.SecretRef) (string, error) {
			return l.cfg.Secrets.Resolve(ctx, ref.Ref)
		}, m.Secrets)
		switch {
		case l.life.Err() != nil: // the next service starts it
		case err != nil:
			l.failStart(r, api.ReasonFetch, err)
		default:
			l.start(adm, r, job)
		}
	})
}

// pendingStarts has, for each dispatch whose start waits for secrets or a checkout, how to end the wait. The zero
// value has none.
type pendingStarts struct {
	mu  sync.Mutex
	end map[api.DispatchID]context.CancelFunc // guarded by mu
}

func (s *pendingStarts) begin(id api.DispatchID, end context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.end = map[api.DispatchID]context.CancelFunc{}
	}
	s.end[id] = end
}

func (s *pendingStarts) done(id api.DispatchID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.end, id)
}

// cancel ends the wait of a cancelled dispatch.
func (s *pendingStarts) cancel(id api.DispatchID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.end[id]; end != nil {
		end()
	}
}

func (s *pendingStarts) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.end)
}

// failStart ends an attempt whose worker was not started.
func (l *lifecycle) failStart(r row, reason api.Reason, err error) {
	err = l.endLatest(context.WithoutCancel(l.life), r, func(_ context.Context, now row) (outcome, error) {
		if now.record.CancelBy != "" {
			return cancelled(now.record), nil
		}
		return outcome{event: api.EventFailed, reason: reason, message: err.Error()}, nil
	})
	if err != nil {
		l.logUnrecorded(r, err)
	}
}
