package server

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// Schedules shows and steers the schedules of the catalog; see schedule.Keeper.
type Schedules interface {
	List(ctx context.Context) ([]api.ScheduleInfo, error)
	Show(ctx context.Context, name api.Name, n int) (api.ScheduleInfo, error)
	Slots(ctx context.Context, name api.Name, before int64, limit int) ([]api.Slot, error)
	Run(ctx context.Context, by dispatch.Caller, name api.Name) (api.Slot, error)
	Pause(ctx context.Context, by dispatch.Caller, name api.Name) (api.ScheduleInfo, error)
	Resume(ctx context.Context, by dispatch.Caller, name api.Name) (api.ScheduleInfo, error)
	// Owner returns the schedule that a run id is reserved for.
	Owner(ctx context.Context, id api.RunID) (api.Name, bool)
}

// scheduleCalls answers the calls about schedules.
type scheduleCalls struct{ cfg *Config }

func (c *scheduleCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallScheduleList: show(func(ctx context.Context, _ *request) ([]api.ScheduleInfo, error) { return c.cfg.Schedules.List(ctx) }),
		api.CallSchedule: named(func(ctx context.Context, r *request, name api.Name) (api.ScheduleInfo, error) {
			q := r.query()
			n := q.number("next", 1, 0, api.MaxNextSlots)
			if q.err != nil {
				return api.ScheduleInfo{}, q.err
			}
			return c.cfg.Schedules.Show(ctx, name, int(n))
		}),
		api.CallScheduleSlots: named(func(ctx context.Context, r *request, name api.Name) ([]api.Slot, error) {
			q := r.query()
			before, limit := q.number("before", 0, 1, 1<<53), q.limit(50)
			if q.err != nil {
				return nil, q.err
			}
			return c.cfg.Schedules.Slots(ctx, name, before, limit)
		}),
		api.CallScheduleRun: named(func(ctx context.Context, r *request, name api.Name) (api.Slot, error) {
			return c.cfg.Schedules.Run(ctx, r.caller.Caller, name)
		}),
		api.CallSchedulePause: named(func(ctx context.Context, r *request, name api.Name) (api.ScheduleInfo, error) {
			return c.cfg.Schedules.Pause(ctx, r.caller.Caller, name)
		}),
		api.CallScheduleResume: named(func(ctx context.Context, r *request, name api.Name) (api.ScheduleInfo, error) {
			return c.cfg.Schedules.Resume(ctx, r.caller.Caller, name)
		}),
	}
}

// named parses the name of a schedule in the path of a call.
func named[Resp any](act func(context.Context, *request, api.Name) (Resp, error)) handler {
	return show(func(ctx context.Context, r *request) (none Resp, err error) {
		name, err := api.ParseName(r.PathValue("name"))
		if err != nil {
			return none, malformed(api.CodeInvalid, "schedule: %w", err)
		}
		return act(ctx, r, name)
	})
}

// refuseReserved refuses a run id that belongs to a slot of a schedule: the slot could
// not have it any more.
func (c *runCalls) refuseReserved(ctx context.Context, id api.RunID) error {
	if c.cfg.Schedules == nil || id == "" {
		return nil
	}
	if name, ok := c.cfg.Schedules.Owner(ctx, id); ok {
		return malformed(api.CodeConflict, "run id %s is reserved for schedule %s", id, name)
	}
	return nil
}
