package schedule

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cron"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Reader shows schedules and their slots as they are stored. It reads nothing of a
// keeper's memory.
type Reader struct{ cfg *Config }

// List returns the schedules of the revision in force, sorted by name, each with its
// next slot.
func (r *Reader) List(ctx context.Context) ([]api.ScheduleInfo, error) {
	rev, err := r.cfg.Rules.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := r.stored(ctx)
	if err != nil {
		return nil, err
	}
	list := []api.ScheduleInfo{}
	defs := rev.Schedules
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		info, err := r.info(ctx, rev, defs[name], lines[name], 1)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

// Show returns a schedule with its next n slots.
func (r *Reader) Show(ctx context.Context, name api.Name, n int) (api.ScheduleInfo, error) {
	rev, err := r.cfg.Rules.Schedules(ctx)
	if err != nil {
		return api.ScheduleInfo{}, err
	}
	def, ok := rev.Schedules[name]
	if !ok {
		return api.ScheduleInfo{}, errNotFound(name)
	}
	lines, err := r.stored(ctx)
	if err != nil {
		return api.ScheduleInfo{}, err
	}
	return r.info(ctx, rev, def, lines[name], min(max(n, 0), api.MaxNextSlots))
}

// stored reads what the database has of all schedules.
func (r *Reader) stored(ctx context.Context) (lines map[api.Name]*line, err error) {
	err = r.cfg.Store.Read(ctx, func(v *store.View) error {
		lines, err = readLines(v)
		return err
	})
	return lines, err
}

// info describes a schedule. l is what the database has of it; nil: nothing.
func (r *Reader) info(ctx context.Context, rev *Snapshot, def api.Schedule, l *line, n int) (api.ScheduleInfo, error) {
	info := api.ScheduleInfo{Schedule: def, Revision: rev.Number, Digest: rev.Artifact(def.Name), Next: []time.Time{}, Undriven: r.cfg.Runs == nil}
	if info.Undriven {
		info.StartWith = api.StartRuns(r.cfg.Mode)
	}
	info.Stops = r.cfg.Stops(subject(&def, r.cfg.Now()))
	from := r.cfg.Now()
	if l != nil {
		if l.pausedBy != "" {
			info.PausedBy, info.PausedAt = l.pausedBy, &l.pausedAt
		}
		if l.cursor.After(from) { // the clock was set back
			from, info.Ahead = l.cursor, &l.cursor
		}
	}
	times, err := cron.Parse(def.Cron, def.Zone)
	if err != nil {
		info.Error = err.Error()
		return info, nil //nolint:nilerr // the answer says so
	}
	for at := times.Next(from); len(info.Next) < n && !at.IsZero(); at = times.Next(at) {
		info.Next = append(info.Next, at)
	}
	last, err := r.slots(ctx, "schedule = ? ORDER BY seq DESC LIMIT 1", store.Args{def.Name})
	if err == nil && len(last) > 0 {
		info.Last = &last[0]
	}
	return info, err
}

// Slots returns the slots of a schedule, newest first: at most limit, before the one
// whose Seq is before; 0: from the newest.
func (r *Reader) Slots(ctx context.Context, name api.Name, before int64, limit int) ([]api.Slot, error) {
	where, args := "schedule = ? ORDER BY seq DESC LIMIT ?", store.Args{name, limit}
	if before > 0 {
		where, args = "schedule = ? AND seq < ? ORDER BY seq DESC LIMIT ?", store.Args{name, before, limit}
	}
	list, err := r.slots(ctx, where, args)
	if err == nil && len(list) == 0 {
		_, err = r.Show(ctx, name, 0)
	}
	return list, err
}

// slots reads slots with the states of their runs.
func (r *Reader) slots(ctx context.Context, where string, args store.Args) (list []api.Slot, err error) {
	if err := r.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		list, err = readSlots(v, where, args)
		return err
	}); err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].RunID == "" {
			continue
		}
		if list[i].RunState, _, err = r.cfg.RunState(ctx, list[i].RunID); err != nil {
			return nil, err
		}
	}
	return append([]api.Slot{}, list...), nil
}

// Owner returns the schedule whose runs have ids such as id: nobody else may take one.
func (r *Reader) Owner(ctx context.Context, id api.RunID) (api.Name, bool) {
	rev, err := r.cfg.Rules.Schedules(ctx)
	if err != nil {
		return "", false
	}
	return rev.owner(id)
}
