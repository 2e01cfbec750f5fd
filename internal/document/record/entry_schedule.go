package record

import (
	"fmt"
	"slices"
)

// ScheduleSlot is the detail of KindScheduleFired and KindScheduleSkipped. An entry that
// a slot fired is one of the slot's run, the first of it.
type ScheduleSlot struct {
	By       string `json:"by,omitempty"`      // who requested the slot; empty: its cron expression
	Count    int64  `json:"count,omitempty"`   // of skipped slots, from Slot to Last; 0: one
	Last     string `json:"last,omitempty"`    // RFC 3339
	Message  string `json:"message,omitempty"` // why the submission was refused
	Reason   string `json:"reason,omitempty"`  // an api.Skip reason
	Revision int64  `json:"revision"`          // of the catalog
	Schedule string `json:"schedule"`
	Slot     string `json:"slot"` // RFC 3339, UTC
	// Zones is the release of the zone data (cron.ZoneVersion) with which the slot follows
	// from the expression; empty if the slot was requested, or by a version that did not
	// log it.
	Zones string `json:"zones,omitempty"`
}

func (d ScheduleSlot) describe(e *Entry) string {
	if e.Kind == KindScheduleFired {
		s := fmt.Sprintf("schedule %s submits run %s for its slot %s", Word(d.Schedule), Word(e.Run), Word(d.Slot))
		if d.By != "" {
			s += ", requested by " + Word(d.By)
		}
		return s
	}
	s := fmt.Sprintf("schedule %s skips its slot %s", Word(d.Schedule), Word(d.Slot))
	if d.Count > 1 {
		s = fmt.Sprintf("schedule %s skips %s from %s to %s", Word(d.Schedule), Plural(d.Count, "slot"), Word(d.Slot), Word(d.Last))
	}
	return s + ": " + Word(d.Reason) + withText(": ", d.Message)
}

// ScheduleAction is the detail of what a caller does to a schedule: KindScheduleRun,
// KindSchedulePaused, KindScheduleResumed.
type ScheduleAction struct {
	Reasons  []string `json:"reasons,omitempty"` // of a denial
	Schedule string   `json:"schedule"`
	Slot     string   `json:"slot,omitempty"` // that KindScheduleRun requests
}

func (d ScheduleAction) refused(reasons []string) Detail {
	return Access{Operation: "schedule", Reasons: slices.Clone(reasons)}
}

func (d ScheduleAction) describe(e *Entry) string {
	verb := map[Kind]string{KindScheduleRun: "requested a run of", KindSchedulePaused: "paused", KindScheduleResumed: "resumed"}[e.Kind]
	return fmt.Sprintf("%s %s schedule %s", e.caller(), verb, Word(d.Schedule)) + e.verdict(d.Reasons)
}
