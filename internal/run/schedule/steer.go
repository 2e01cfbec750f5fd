package schedule

import (
	"context"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Pause skips the slots of a schedule until Resume.
func (k *Keeper) Pause(ctx context.Context, by dispatch.Caller, name api.Name) (api.ScheduleInfo, error) {
	return k.pause(ctx, by, name, record.KindSchedulePaused)
}

// Resume ends a pause. A schedule that the catalog pauses stays paused.
func (k *Keeper) Resume(ctx context.Context, by dispatch.Caller, name api.Name) (api.ScheduleInfo, error) {
	return k.pause(ctx, by, name, record.KindScheduleResumed)
}

func (k *Keeper) pause(ctx context.Context, by dispatch.Caller, name api.Name, kind record.Kind) (api.ScheduleInfo, error) {
	d, err := k.may(ctx, by, policy.ActionSchedulePause, name)
	if err != nil {
		return api.ScheduleInfo{}, err
	}
	if err := k.change(ctx, by, name, d.Action(), func(b *batch, l *line) error {
		pausing := kind == record.KindSchedulePaused
		if pausing != (l.pausedBy != "") {
			l.pausedBy, l.pausedAt = "", time.Time{}
			if pausing {
				l.pausedBy, l.pausedAt = by.Principal, b.now
			}
			b.lines = append(b.lines, l)
		}
		b.items = append(b.items, audit.Item{Decision: d, Entry: record.Entry{Kind: kind, Detail: record.ScheduleAction{Schedule: string(name)}}})
		return nil
	}); err != nil {
		return api.ScheduleInfo{}, err
	}
	return k.Show(ctx, name, 1)
}

// Run requests a slot for now. It follows the overlap rule and is stopped by emergency
// stops, and it ignores a pause.
func (k *Keeper) Run(ctx context.Context, by dispatch.Caller, name api.Name) (api.Slot, error) {
	d, err := k.may(ctx, by, policy.ActionScheduleRun, name)
	if err != nil {
		return api.Slot{}, err
	}
	if k.cfg.Runs == nil {
		return api.Slot{}, errUndriven(k.cfg.Mode)
	}
	s := &api.Slot{Schedule: name, By: by.Principal}
	if err := k.change(ctx, by, name, d.Action(), func(b *batch, l *line) error {
		if l.broken != nil {
			return api.Errorf(api.CodeInvalid, "schedule %s: %w", name, l.broken)
		}
		if stops := k.cfg.Stops(subject(l.def, b.now)); len(stops) > 0 {
			return api.Errorf(api.CodeConflict, "schedule %s is stopped by emergency stop %s", name, stops[0]).WithHint("see: bailiwick stop list")
		}
		busy, err := k.openRun(ctx, name)
		if err != nil {
			return err
		}
		if l.def.Overlap != api.OverlapQueue && l.def.Overlap != api.OverlapCancel && busy != "" || len(l.waiting) > 0 {
			return api.Errorf(api.CodeConflict, "schedule %s: run %s is open, and overlap is %s", name, busy, overlapOf(l.def)).
				WithHint("wait for it, or cancel it: bailiwick run cancel %s", busy)
		}
		if s.Slot, err = k.freeSecond(ctx, name, b.now); err != nil {
			return err
		}
		b.items = append(b.items, audit.Item{Decision: d, Entry: record.Entry{Kind: record.KindScheduleRun, Detail: record.ScheduleAction{Schedule: string(name), Slot: s.Slot.Format(time.RFC3339)}}})
		k.place(b, l, s, placing{busy: busy, last: true})
		return nil
	}); err != nil {
		return api.Slot{}, err
	}
	if err := k.await(ctx, s); err != nil {
		return *s, err
	}
	list, err := k.slots(ctx, "schedule = ? AND slot = ?", store.Args{name, s.Slot.UnixNano()})
	if err != nil || len(list) == 0 {
		return *s, err
	}
	if list[0].Reason == api.SkipRefused {
		return list[0], api.Errorf(api.CodeConflict, "schedule %s: its run was refused: %s", name, list[0].Message)
	}
	return list[0], nil
}

// await returns when the submission of a slot has ended once.
func (k *Keeper) await(ctx context.Context, s *api.Slot) error {
	k.mu.Lock()
	f := k.flights[s.Seq]
	k.mu.Unlock()
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := k.tick(ctx)
	return err
}

func overlapOf(def *api.Schedule) api.Overlap {
	if def.Overlap == "" {
		return api.OverlapSkip
	}
	return def.Overlap
}

// freeSecond returns a time that is no slot of the cron expression, whose slots are
// whole minutes, and that no other request has.
func (k *Keeper) freeSecond(ctx context.Context, name api.Name, now time.Time) (time.Time, error) {
	at := now.Truncate(time.Second)
	for {
		if at.Second() == 0 {
			at = at.Add(time.Second)
		}
		n := 0
		if err := k.cfg.Store.Read(ctx, func(v *store.View) error {
			return v.Get("SELECT count(*) FROM schedule_slot WHERE schedule = ? AND slot = ?", store.Args{name, at.UnixNano()}, &n)
		}); err != nil || n == 0 {
			return at, err
		}
		at = at.Add(time.Second)
	}
}

// may decides about a change by a caller.
func (k *Keeper) may(ctx context.Context, by dispatch.Caller, action policy.Action, name api.Name) (policy.Decision, error) {
	rules, err := k.cfg.Rules.Engine(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	d := rules.Decide(policy.Request{Principal: by.Principal, Action: action, Resource: string(name), Token: by.TokenValid != nil})
	if !d.Allowed() {
		return d, k.cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", d.Action()+" "+string(name)), nil)
	}
	return d, nil
}

// change makes a change to a schedule durable, and submits what follows from it.
func (k *Keeper) change(ctx context.Context, by dispatch.Caller, name api.Name, operation string, do func(*batch, *line) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx = context.WithoutCancel(ctx) // the change stays when the caller disconnects
	rev, err := k.cfg.Rules.Schedules(ctx)
	if err != nil {
		return err
	}
	b := &batch{now: k.cfg.Now().UTC().Round(0), rev: rev}
	k.due = time.Time{}
	k.reconcile(b)
	l := k.lines[name]
	if l == nil || l.def == nil {
		err = errNotFound(name)
	} else {
		err = do(b, l)
	}
	if err != nil {
		if loadErr := k.load(ctx); loadErr != nil { // what reconcile did is not stored
			return loadErr
		}
		return dispatch.LogInvalid(ctx, k.cfg.Ledger, by.Principal, operation, err)
	}
	if err := k.commit(ctx, b); err != nil {
		return err
	}
	k.launch(b.now)
	k.Wake()
	return nil
}

func errNotFound(name api.Name) *api.Error {
	return api.Errorf(api.CodeNotFound, "no such schedule %q", name).WithHint("see: bailiwick schedule list")
}

func errUndriven(mode string) *api.Error {
	return api.Errorf(api.CodeNotConfigured, "this service has no orchestrator: it submits no runs of schedules").WithHint("have a person start one with: %s", api.StartRuns(mode))
}
