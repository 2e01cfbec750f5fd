package runverbs

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// scheduleVerbs are the verbs about schedules.
type scheduleVerbs struct{ *commands }

func (t *scheduleVerbs) listCommand(v *console.Verb) {
	t.connVerb(v, func(ctx context.Context, c *client.Conn, _ []string) error {
		list, err := c.Operator().Schedules(ctx)
		if err != nil {
			return err
		}
		return t.printSchedules(list)
	})
}

// verb is a verb about the schedule that its argument names.
func (t *scheduleVerbs) verb(v *console.Verb, do func(ctx context.Context, o client.Operator, name api.Name) error) {
	v.Do(func(ctx context.Context, args []string) error {
		name, err := api.ParseName(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "schedule %w", err).WithHint("see: bailiwick schedule list")
		}
		return t.withConn(func(c *client.Conn) error { return do(ctx, c.Operator(), name) })
	})
}

func (t *scheduleVerbs) printSchedules(list []api.ScheduleInfo) error {
	err := console.List(t.Output, list, func(s api.ScheduleInfo) string { return string(s.Name) }, "SCHEDULE\tCRON\tZONE\tPRINCIPAL\tNEXT\tLAST\tSTATE", func(s api.ScheduleInfo) string {
		last := "-"
		if s.Last != nil {
			last = slotText(s.Last)
		}
		return strings.Join([]string{string(s.Name), s.Cron, s.Zone, string(s.Principal), t.nextText(&s), last, scheduleState(&s)}, "\t")
	})
	if len(list) > 0 && list[0].Undriven {
		fmt.Fprintln(t.Stderr, console.Line("note: this service has no orchestrator, so no slot is submitted; start one with: "+list[0].StartWith))
	}
	return err
}

func (t *scheduleVerbs) nextText(s *api.ScheduleInfo) string {
	if len(s.Next) == 0 {
		return "-"
	}
	return zoned(s.Next[0], s.Zone)
}

// zoned is a time as the clock on the wall of the schedule shows it.
func zoned(at time.Time, zone string) string { return at.Format("2006-01-02 15:04 -0700") + " " + zone }

func scheduleState(s *api.ScheduleInfo) string {
	switch {
	case s.Error != "":
		return "invalid"
	case len(s.Stops) > 0:
		return "stopped by " + strings.Join(s.Stops, ", ")
	case s.PausedBy != "":
		return "paused by " + string(s.PausedBy)
	case s.Pause:
		return "paused by the catalog"
	case s.Undriven:
		return "not driven"
	case s.Ahead != nil:
		return "the clock was ahead until " + s.Ahead.Format(time.RFC3339)
	}
	return "on"
}

// slotText says what became of a slot.
func slotText(s *api.Slot) string {
	text := string(s.State)
	switch {
	case s.RunState != "":
		text = string(s.RunState)
	case s.State == api.SlotSkipped && s.Count > 1:
		text = fmt.Sprintf("%d skipped (%s)", s.Count, s.Reason)
	case s.State == api.SlotSkipped:
		text = fmt.Sprintf("skipped (%s)", s.Reason)
	}
	return text
}

func (t *scheduleVerbs) showCommand(v *console.Verb) {
	t.verb(v, func(ctx context.Context, o client.Operator, name api.Name) error {
		s, err := o.Schedule(ctx, name, 1)
		if err != nil {
			return err
		}
		return t.Emit(s, string(name), func() {
			fmt.Fprintf(t.Stdout, "schedule %s, of catalog revision %d\n", s.Name, s.Revision)
			row := func(key, value string) {
				if value != "" {
					fmt.Fprintf(t.Stdout, "  %-12s%s\n", key, console.Line(value))
				}
			}
			row("about", s.Description)
			row("cron", s.Cron+" in "+s.Zone)
			row("principal", string(s.Principal))
			row("overlap", string(cmp.Or(s.Overlap, api.OverlapSkip)))
			catchUp := string(cmp.Or(s.CatchUp, api.CatchUpNone))
			if s.CatchUpWithin > 0 {
				catchUp += " within " + time.Duration(s.CatchUpWithin).String()
			}
			row("catch-up", catchUp)
			if s.Jitter > 0 {
				row("jitter", time.Duration(s.Jitter).String())
			}
			row("state", scheduleState(&s))
			row("error", s.Error)
			row("next", t.nextText(&s))
			if s.Last != nil {
				row("last", zoned(s.Last.Slot, "UTC")+": "+slotText(s.Last)+" "+string(s.Last.RunID))
			}
			row("plan", "")
			for line := range strings.Lines(s.Plan) {
				fmt.Fprintf(t.Stdout, "    %s\n", console.Line(strings.TrimSuffix(line, "\n")))
			}
		})
	})
}

func (t *scheduleVerbs) nextCommand(v *console.Verb) {
	n := 5
	t.verb(v, func(ctx context.Context, o client.Operator, name api.Name) error {
		if n < 1 || n > api.MaxNextSlots {
			return api.Errorf(api.CodeInvalid, "-n %d: want 1 to %d", n, api.MaxNextSlots)
		}
		s, err := o.Schedule(ctx, name, n)
		if err != nil {
			return err
		}
		return t.Emit(s.Next, "", func() {
			for _, at := range s.Next {
				fmt.Fprintf(t.Stdout, "%s  %s\n", zoned(at, s.Zone), at.UTC().Format(time.RFC3339))
			}
		})
	})
	v.Flag(&n, "count")
}

func (t *scheduleVerbs) historyCommand(v *console.Verb) {
	limit, before := 20, int64(0)
	t.verb(v, func(ctx context.Context, o client.Operator, name api.Name) error {
		if limit < 1 || limit > 1000 {
			return api.Errorf(api.CodeInvalid, "--limit %d: want 1 to 1000", limit)
		}
		list, err := o.Slots(ctx, name, before, limit)
		if err != nil {
			return err
		}
		return console.List(t.Output, list, func(s api.Slot) string { return string(s.RunID) }, "SLOT\tSTATE\tRUN\tBY\tMESSAGE", func(s api.Slot) string {
			slot := s.Slot.Format(time.RFC3339)
			if s.Count > 1 {
				slot += " to " + s.Last.Format(time.RFC3339)
			}
			by := console.Dash(string(s.By))
			if s.By == "" && s.State != api.SlotSkipped {
				by = "cron"
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", slot, slotText(&s), console.Dash(string(s.RunID)), by, console.Cell(s.Message))
		})
	})
	v.Flag(&limit, "limit")
	v.Flag(&before, "before")
}

func (t *scheduleVerbs) runCommand(v *console.Verb) {
	t.verb(v, func(ctx context.Context, o client.Operator, name api.Name) error {
		s, err := o.RunSchedule(ctx, name)
		if err != nil {
			return err
		}
		return t.Emit(s, string(s.RunID), func() {
			if s.State == api.SlotWaiting {
				fmt.Fprintf(t.Stdout, "schedule %s: a run is open; the next one is submitted when it has ended\n", name)
				return
			}
			fmt.Fprintf(t.Stdout, "run %s submitted\n", s.RunID)
			fmt.Fprintf(t.Stderr, "watch it: bailiwick run watch %s\n", s.RunID)
		})
	})
}

// change makes a verb that changes a schedule.
func (t *scheduleVerbs) change(do func(client.Operator, context.Context, api.Name) (api.ScheduleInfo, error)) func(*console.Verb) {
	return func(v *console.Verb) {
		t.verb(v, func(ctx context.Context, o client.Operator, name api.Name) error {
			s, err := do(o, ctx, name)
			if err != nil {
				return err
			}
			return t.Emit(s, string(name), func() { fmt.Fprintf(t.Stdout, "schedule %s: %s\n", name, scheduleState(&s)) })
		})
	}
}
