package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// OperatorSchedules watches, starts and pauses the schedules of the catalog.
type OperatorSchedules struct{ c *Conn }

// Schedules lists the schedules of the catalog, each with its next slot.
func (o OperatorSchedules) Schedules(ctx context.Context) ([]api.ScheduleInfo, error) {
	return fetch[[]api.ScheduleInfo](ctx, o.c, on(api.CallScheduleList))
}

// Schedule returns a schedule with its next n slots.
func (o OperatorSchedules) Schedule(ctx context.Context, name api.Name, n int) (api.ScheduleInfo, error) {
	return fetch[api.ScheduleInfo](ctx, o.c, on(api.CallSchedule, string(name)).where(url.Values{"next": {strconv.Itoa(n)}}))
}

// Slots returns at most limit slots of a schedule, newest first, before the one whose
// Seq is before; 0: from the newest.
func (o OperatorSchedules) Slots(ctx context.Context, name api.Name, before int64, limit int) ([]api.Slot, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if before > 0 {
		query.Set("before", strconv.FormatInt(before, 10))
	}
	return fetch[[]api.Slot](ctx, o.c, on(api.CallScheduleSlots, string(name)).where(query))
}

// RunSchedule submits the plan of a schedule now, as its principal. It is never
// repeated when its effect is unknown: each request is a run.
func (o OperatorSchedules) RunSchedule(ctx context.Context, name api.Name) (api.Slot, error) {
	return fetch[api.Slot](ctx, o.c, on(api.CallScheduleRun, string(name)))
}

// PauseSchedule skips the slots of a schedule until it is resumed.
func (o OperatorSchedules) PauseSchedule(ctx context.Context, name api.Name) (api.ScheduleInfo, error) {
	return fetch[api.ScheduleInfo](ctx, o.c, on(api.CallSchedulePause, string(name)))
}

// ResumeSchedule ends a pause.
func (o OperatorSchedules) ResumeSchedule(ctx context.Context, name api.Name) (api.ScheduleInfo, error) {
	return fetch[api.ScheduleInfo](ctx, o.c, on(api.CallScheduleResume, string(name)))
}
