package catalogdiff

import (
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

func (w *widening) schedule(ref api.Ref, old, v api.Schedule, had bool) {
	if !had {
		w.add(ref, "new schedule: %s", scheduleText(v))
		return
	}
	if old.Cron != v.Cron || old.Zone != v.Zone {
		w.add(ref, "new times: %q in %s, was %q in %s", v.Cron, v.Zone, old.Cron, old.Zone)
	}
	if old.Principal != v.Principal {
		w.add(ref, "new principal: %s, was %s", v.Principal, old.Principal)
	}
	if old.Plan != v.Plan || setText(old) != setText(v) {
		w.add(ref, "new plan: %s", planText(v))
	}
	if old.Pause && !v.Pause {
		w.add(ref, "no longer paused: %s", scheduleText(v))
	}
	if was, is := catchText(old), catchText(v); was != is {
		w.add(ref, "missed slots: %s, was %s", is, was)
	}
	if old.Overlap != v.Overlap && v.Overlap == api.OverlapCancel {
		w.add(ref, "a slot cancels a run that is open")
	}
}

func scheduleText(v api.Schedule) string {
	paused := ""
	if v.Pause {
		paused = ", paused"
	}
	return fmt.Sprintf("%q in %s submits %s as %s%s", v.Cron, v.Zone, planText(v), v.Principal, paused)
}

// planText is what a person recognises a plan by.
func planText(v api.Schedule) string {
	p, _ := plan.OfSchedule(v)
	if p == nil {
		return "an invalid plan"
	}
	return fmt.Sprintf("a plan of %s (%s), sha256 of its file %s", countOf(len(p.Tasks), "task"), nameList(plan.Subagents(p.Tasks)), api.DigestOf([]byte(v.Plan)).Hex()[:12])
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func setText(v api.Schedule) string {
	b, _ := canon.Marshal(v.Set) // of decoded JSON
	return string(b)
}

func catchText(v api.Schedule) string {
	if v.CatchUp == api.CatchUpLast || v.CatchUp == api.CatchUpAll {
		return fmt.Sprintf("%s within %s made up", v.CatchUp, time.Duration(v.CatchUpWithin))
	}
	return "none made up"
}

func (n *narrowing) schedule(ref api.Ref, old, v api.Schedule, has bool) {
	switch {
	case !has:
		n.add(ref, "removed schedule: %s", scheduleText(old))
	case v.Pause && !old.Pause:
		n.add(ref, "paused: its slots are skipped")
	}
}
