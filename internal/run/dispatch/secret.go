package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// Secrets resolves references to secrets. Its errors name no value.
type Secrets interface {
	Resolve(ctx context.Context, ref string) (string, error)
}

// secretTime bounds how long the secrets of an attempt may take; less than startTime.
const secretTime = 2 * time.Minute

// launch starts the worker of an admitted attempt with the values that the secrets
// of its manifest have now. A secret store that does not answer delays no caller.
func (l *lifecycle) launch(adm audit.Admission, r row, m record.Manifest) {
	job := l.job(r, m)
	if len(m.Secrets) == 0 {
		l.start(adm, r, job)
		return
	}
	ctx, cancel := context.WithTimeout(l.life, secretTime)
	l.reading(r.record.ID, cancel)
	l.work.Go(func() {
		defer cancel()
		defer l.reading(r.record.ID, nil)
		var err error
		job.Secrets, err = l.secrets(ctx, m.Secrets)
		switch {
		case l.life.Err() != nil: // the next service starts it
		case err != nil:
			l.failSecrets(r, err)
		default:
			l.start(adm, r, job)
		}
	})
}

// reading notes how to end the reading of a dispatch's secrets, or with nil that it has
// ended.
func (l *lifecycle) reading(id api.DispatchID, end context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end == nil {
		delete(l.starts, id)
		return
	}
	l.starts[id] = end
}

// endReading ends the reading of the secrets of a cancelled dispatch.
func (l *lifecycle) endReading(id api.DispatchID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := l.starts[id]; end != nil {
		end()
	}
}

// secrets returns the values of refs.
func (l *lifecycle) secrets(ctx context.Context, refs []api.SecretRef) (record.Secrets, error) {
	values := record.Secrets{}
	for _, ref := range refs {
		v, ok := values[ref.Name]
		var err error
		if !ok {
			v, err = l.cfg.Secrets.Resolve(ctx, ref.Ref)
		}
		if err == nil {
			err = api.CheckSecretUse(ref.Use, v)
		}
		if err != nil {
			return nil, fmt.Errorf("secret %q: %w", ref.Name, err)
		}
		values[ref.Name] = v
	}
	return values, nil
}

// failSecrets ends an attempt whose worker was not started.
func (l *lifecycle) failSecrets(r row, err error) {
	err = l.endLatest(context.WithoutCancel(l.life), r, func(_ context.Context, now row) (outcome, error) {
		if now.record.CancelBy != "" {
			return cancelled(now.record), nil
		}
		return outcome{event: api.EventFailed, reason: api.ReasonFetch, message: err.Error()}, nil
	})
	if err != nil {
		l.logUnrecorded(r, err)
	}
}
