package daemoncli

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	// agreeNewest is how many of the newest entries name rows that every start
	// compares with the log, besides those of all open work.
	agreeNewest = 2_000
	// agreeEvery is the time between two comparisons of all rows.
	agreeEvery = time.Hour
	// agreeSlice is how many rows are compared in one read, and agreePause the time
	// between two reads, so that they take little of the machine.
	agreeSlice = 20
	agreePause = 20 * time.Millisecond
)

// agreement compares the rows of the state with the log while the service runs.
type agreement struct {
	store *store.Store
	work  *background.Keeper

	mu  sync.Mutex
	err error // the first difference; nothing new is admitted from then on; guarded by mu
}

// checkState refuses to start on rows that do not follow from the log: of open
// work, and of what the newest entries name. The rest follows in the background.
func checkState(ctx context.Context, st *store.Store) error {
	return st.Read(ctx, func(v *store.View) error {
		if err := inforce.CheckSeen(v); err != nil {
			return err
		}
		if err := dispatch.CheckOpen(v, agreeNewest); err != nil {
			return err
		}
		return orchestrator.CheckOpen(v, agreeNewest)
	})
}

// openAgreement starts to compare all rows with the log, now and then again.
func openAgreement(ctx context.Context, st *store.Store, logger *slog.Logger) *agreement {
	a := &agreement{store: st, work: background.Start(ctx)}
	a.work.Go(background.Loop{Step: func(ctx context.Context) time.Duration {
		if err := a.check(ctx, agreePause); err != nil && ctx.Err() == nil {
			logger.LogAttrs(ctx, slog.LevelError, "comparing the state with the log failed", slog.Any("err", err))
		}
		return agreeEvery
	}}.Run)
	return a
}

// check compares all rows with the log, and remembers a difference.
func (a *agreement) check(ctx context.Context, pause time.Duration) error {
	err := a.store.Read(ctx, func(v *store.View) error { return inforce.CheckSeen(v) })
	for _, some := range []func(store.Reader, string, int) (string, error){dispatch.CheckSome, orchestrator.CheckSome} {
		for after, more := "", err == nil; more && err == nil; {
			err = a.store.Read(ctx, func(v *store.View) (err error) {
				after, err = some(v, after, agreeSlice)
				return err
			})
			if more = after != ""; more && pause > 0 {
				_ = background.Pause(ctx, pause) // the next read fails once ctx is done
			}
		}
	}
	if api.CodeOf(err) == api.CodeIntegrity {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.err == nil {
			a.err = err
		}
	}
	return err
}

// difference returns why the state is not trusted. A nil agreement is one that is not open
// yet.
func (a *agreement) difference() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// checkAll compares the log with the tree, and all rows with the log.
func (a *agreement) checkAll(ctx context.Context) error {
	if a == nil {
		return errors.New("the state is not open")
	}
	return a.check(ctx, 0)
}

func (a *agreement) close() {
	if a != nil {
		a.work.Close()
	}
}
