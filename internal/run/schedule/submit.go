package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cron"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// submitters is how many runs are submitted at once: each waits for the disk, or for
// the server of a source.
const submitters = 64

// retryFor is how long a submission is repeated that fails for a reason that passes.
const retryFor = time.Hour

// flight is the submission of a slot that is under way.
type flight struct {
	done   chan struct{} // closed when err is set
	err    error
	again  time.Time // when a failed submission is repeated; zero: it is under way
	failed time.Time // when the first submission of the slot failed; zero: none did
}

// launch submits the runs of all slots that fired, without waiting for them: the source
// of one may be slow. Doing it again is harmless, since the id of a run follows from its
// slot. Slots of one schedule follow each other: each cancels the run before it, which
// must be there. The caller holds mu.
func (k *Keeper) launch(now time.Time) {
	if k.cfg.Runs == nil || k.life == nil {
		return
	}
	first := map[api.Name]bool{}
	for _, seq := range slices.Sorted(maps.Keys(k.fired)) {
		s, f := *k.fired[seq], &flight{done: make(chan struct{})}
		if first[s.Schedule] {
			continue
		}
		first[s.Schedule] = true
		if was := k.flights[seq]; was != nil {
			if was.again.IsZero() || was.again.After(now) {
				continue
			}
			f.failed = was.failed
		}
		l := k.lines[s.Schedule]
		var def *api.Schedule
		var times *cron.Schedule
		slot := orchestrator.Slot{Schedule: s.Schedule, At: s.Slot}
		if l != nil && l.def != nil && k.rev != nil {
			def, times, slot.Artifact, slot.Revision = l.def, l.cron, l.digest, k.rev.Digest
		}
		k.flights[seq] = f
		k.work.Go(func() {
			k.turns <- struct{}{}
			if f.err = current(def, times, &s); f.err == nil {
				f.err = k.submit(k.life, def, &s, slot)
			}
			if f.err != nil && k.has(k.life, &s) {
				f.err = nil
			}
			<-k.turns
			close(f.done)
			k.Wake()
		})
	}
}

// land adds the submissions that have ended to a batch. One that failed for a reason
// that passes is repeated. The caller holds mu.
func (k *Keeper) land(ctx context.Context, b *batch) {
	for _, seq := range slices.Sorted(maps.Keys(k.flights)) {
		f, s := k.flights[seq], k.fired[seq]
		select {
		case <-f.done:
		default:
			continue
		}
		switch {
		case s == nil:
			delete(k.flights, seq)
		case f.err == nil:
			done := *s
			done.State, done.At = api.SlotSubmitted, b.now
			b.store(&done)
		case !passes(f.err), !f.failed.IsZero() && b.now.Sub(f.failed) > retryFor:
			done := *s
			done.RunID = ""
			b.skip(&done, api.SkipRefused, f.err.Error())
		case f.again.IsZero():
			f.again = b.now.Add(retrySleep)
			if f.failed.IsZero() {
				f.failed = b.now
			}
			k.cfg.Logger.WarnContext(ctx, "the run of a schedule could not be submitted; the service tries again",
				slog.String("schedule", string(s.Schedule)), slog.String("run", string(s.RunID)), slog.Any("err", f.err))
		}
	}
}

// passes reports whether a submission that failed with err may succeed later.
func passes(err error) bool {
	switch api.CodeOf(err) { //nolint:exhaustive // all others pass
	case api.CodeInvalid, api.CodeDenied, api.CodeNotFound, api.CodeConflict, api.CodeTooLarge:
		return false
	}
	return true
}

// has reports whether a slot has its run, although a submission failed: the one before it
// did not, and the catalog or its answer was lost since.
func (k *Keeper) has(ctx context.Context, s *api.Slot) bool {
	has, err := k.cfg.Runs.HasSlot(ctx, s.RunID, orchestrator.Slot{Schedule: s.Schedule, At: s.Slot})
	return err == nil && has
}

// current refuses a slot that the revision in force does not give, as the verifier does.
func current(def *api.Schedule, times *cron.Schedule, s *api.Slot) error {
	switch {
	case def == nil:
		return api.Errorf(api.CodeNotFound, "schedule %s is no longer in the catalog", s.Schedule)
	case s.By == "" && (times == nil || !times.Has(s.Slot)):
		return api.Errorf(api.CodeConflict, "schedule %s has other times by now, %q in %s", s.Schedule, def.Cron, def.Zone)
	}
	return nil
}

// submit submits the run of a slot, after the run that it replaces is cancelled.
func (k *Keeper) submit(ctx context.Context, def *api.Schedule, s *api.Slot, slot orchestrator.Slot) error {
	caller := dispatch.Caller{Principal: def.Principal, Ceiling: api.Irreversible}
	if s.Replaces != "" {
		reason := fmt.Sprintf("slot %s of schedule %s is due", s.Slot.Format(time.RFC3339), s.Schedule)
		if _, err := k.cfg.Runs.Cancel(ctx, caller, s.Replaces, api.RunCancel{Reason: reason}); err != nil && api.CodeOf(err) != api.CodeNotFound {
			return api.Errorf(api.CodeUnavailable, "run %s could not be cancelled: %w", s.Replaces, err)
		}
	}
	text, places := plan.ReadText([]byte(def.Plan))
	if places != nil {
		return api.Errorf(api.CodeInvalid, "the plan of schedule %s: %s", s.Schedule, places[0])
	}
	failpoint.Hit(failpoint.ScheduleSubmit, string(s.RunID))
	_, err := k.cfg.Runs.SubmitSlot(ctx, caller, api.RunRequest{RunID: s.RunID, Plan: text.JSON, Parameters: def.Set, Key: slotKey(s)}, slot)
	failpoint.Hit(failpoint.ScheduleSubmitted, string(s.RunID))
	return err
}

// slotKey is the key of a submission, so that repeating it returns the same run also
// after the plan of the schedule has changed.
func slotKey(s *api.Slot) string {
	return "schedule " + string(s.Schedule) + " " + s.Slot.UTC().Format(time.RFC3339)
}
