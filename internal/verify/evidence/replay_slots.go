package evidence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cron"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// fire remembers the entry that a slot fired.
func (r *replay) fire(e *entry) error {
	if r.fired != nil {
		return errors.New("its slot fired a second time")
	}
	r.fired = e
	return nil
}

// slot verifies that a run for a slot of a schedule follows the entry that the slot
// fired, and has the id of that slot.
func (r *replay) slot() error {
	request := detail[record.RunRequest](r.submitted)
	if r.fired == nil && request.Schedule == "" && request.Slot == "" {
		return nil
	}
	if r.fired == nil {
		return fmt.Errorf("it is for a slot of schedule %.80q, but no entry before says that the slot fired", request.Schedule)
	}
	fired := detail[record.ScheduleSlot](r.fired)
	at, err := time.Parse(time.RFC3339, request.Slot)
	switch {
	case fired.Schedule != request.Schedule || fired.Slot != request.Slot:
		return fmt.Errorf("it is for slot %.40q of schedule %.80q, but slot %.40q of schedule %.80q fired", request.Slot, request.Schedule, fired.Slot, fired.Schedule)
	case err != nil || api.ScheduleRun(api.Name(request.Schedule), at) != r.id:
		return fmt.Errorf("its id does not belong to slot %.40q of schedule %.80q", request.Slot, request.Schedule)
	}
	return nil
}

// slots compares the runs of slots with their schedules.
type slots struct {
	w     *world
	work  *meter
	zones map[string]int // slots that were found with other zone data than those of this verifier, by release
}

// scheduled verifies that the runs of slots have the plan and the principal of their
// schedules, as people signed them.
func (s *slots) scheduled(row *report.Finding) {
	for _, r := range s.w.replayed {
		if r == nil || r.plan == nil || r.fired == nil {
			continue
		}
		if err := s.ofSchedule(r); err != nil {
			row.Fail("run %s: %v", r.id, err)
		}
	}
}

func (s *slots) ofSchedule(r *replay) error {
	request := detail[record.RunRequest](r.submitted)
	ref := api.RefTo(api.KindSchedule, api.Name(request.Schedule))
	var rev *revision
	for _, one := range s.w.revisions {
		if request.Revision >= 0 && one.doc.Number == uint64(request.Revision) {
			rev = one
		}
	}
	if rev == nil {
		return fmt.Errorf("catalog revision %d, which has its schedule, is not in the bundle", request.Revision)
	}
	if entry, ok := rev.doc.Artifacts[ref]; !ok || entry.Digest != r.submitted.Refs[record.RefSchedule] {
		return fmt.Errorf("catalog revision %d has another %s than the run", request.Revision, ref)
	}
	def, err := decodedAs(rev, api.KindSchedule, api.Name(request.Schedule), func(s *api.Schedule) api.Name { return s.Name })
	if err != nil {
		return err
	}
	if err := s.work.spend(unitPlan * (len(def.Plan) + cronCost)); err != nil {
		return err
	}
	if def.Principal != r.submitted.Principal {
		return fmt.Errorf("it was submitted by %s, but %s is of %s", r.submitted.Principal, ref, def.Principal)
	}
	if err := hasSlot(def, r.fired, request.Rules); err != nil {
		zones := zonesOf(def, r.fired)
		if zones == "" {
			return err
		}
		s.zones[zones]++
	}
	text, places := plan.ReadText([]byte(def.Plan))
	if places != nil {
		return fmt.Errorf("the plan of %s is invalid", ref)
	}
	p, places := text.Plan(def.Set)
	if places != nil {
		return fmt.Errorf("the plan of %s is invalid", ref)
	}
	if p, err = p.WithID(r.id); err != nil {
		return err
	}
	if p.Digest() != r.submitted.Refs[record.RefPlan] {
		return fmt.Errorf("its plan differs from %s in catalog revision %d", ref, request.Revision)
	}
	return nil
}

// zonesOf returns the release of the zone data with which the service found a slot, if
// that can be why the slot is no time of its schedule here: another release than that of
// this verifier, and a full minute in a zone that a release can change.
func zonesOf(def *api.Schedule, fired *entry) string {
	slot := detail[record.ScheduleSlot](fired)
	at, err := time.Parse(time.RFC3339, slot.Slot)
	if err != nil || at.Second() != 0 || slot.By != "" || slot.Zones == cron.ZoneVersion || def.Zone == "" || def.Zone == "UTC" {
		return ""
	}
	return slot.Zones
}

// claimed says which slots were not compared with their schedules.
func (s *slots) claimed() (list []string) {
	for _, zones := range slices.Sorted(maps.Keys(s.zones)) {
		list = append(list, fmt.Sprintf("the time of %s: na, found with zone data %s, and this verifier has %s", record.Plural(s.zones[zones], "slot"), record.Word(zones), cron.ZoneVersion))
	}
	return list
}

// cronCost is what reading a cron expression and Finding one time of it costs at most, as
// bytes of a plan.
const cronCost = 4096

// hasSlot verifies that a slot is a time of the cron expression. One that a person
// requested has seconds, which no time of an expression has. Before version 5 of the
// rules of a run, intervals paused in an hour that the clock on the wall repeats.
func hasSlot(def *api.Schedule, fired *entry, rules int64) error {
	slot := detail[record.ScheduleSlot](fired)
	at, err := time.Parse(time.RFC3339, slot.Slot)
	if err != nil {
		return fmt.Errorf("its slot %.40q is no time", slot.Slot)
	}
	if slot.By != "" {
		if at.Second() == 0 {
			return fmt.Errorf("its slot %s was requested by %s, but a slot on request has seconds", slot.Slot, slot.By)
		}
		return nil
	}
	times, err := cron.Parse(def.Cron, def.Zone)
	if err != nil {
		return err
	}
	has := times.Has
	if rules < 5 {
		has = times.HadOnce
	}
	if !has(at) {
		return fmt.Errorf("slot %s is not a time of %q in %s, by the zone data of this verifier", slot.Slot, def.Cron, def.Zone)
	}
	return nil
}

// scheduleOf returns the artifact of the schedule that an entry submits a run for.
func scheduleOf(e *entry) (api.Ref, bool) {
	d, ok := e.Detail.(record.RunRequest)
	if !ok || d.Schedule == "" {
		return "", false
	}
	return api.RefTo(api.KindSchedule, api.Name(d.Schedule)), true
}

// firedAgreements are those of the detail of an entry that a slot fired.
func firedAgreements() []agreement {
	of := kinds(record.KindScheduleFired)
	empty := func(get func(d record.ScheduleSlot) bool) func(s *scene) verdict {
		return func(s *scene) verdict { return holds(get(detail[record.ScheduleSlot](s.e))) }
	}
	return []agreement{
		{kinds: of, field: "detail.by", truth: byNothing, claim: "who requested a slot beside the times of its schedule"},
		{kinds: of, field: "detail.revision", truth: byNothing, claim: "the catalog revision in force when a slot fired; the run has its own"},
		{kinds: of, field: "detail.schedule", truth: byChain, by: "replay.slot"},
		{kinds: of, field: "detail.slot", truth: byChain, by: "replay.slot"},
		{kinds: of, field: "detail.zones", truth: byKind, claim: "which zone data a slot was found with: if it differs from the verifier's, the time of the slot is claimed", check: func(s *scene) verdict {
			d := detail[record.ScheduleSlot](s.e)
			return may(d.By == "" || d.Zones == "")
		}},
		{kinds: of, field: "detail.count", truth: byKind, check: empty(func(d record.ScheduleSlot) bool { return d.Count == 0 })},
		{kinds: of, field: "detail.last", truth: byKind, check: empty(func(d record.ScheduleSlot) bool { return d.Last == "" })},
		{kinds: of, field: "detail.message", truth: byKind, check: empty(func(d record.ScheduleSlot) bool { return d.Message == "" })},
		{kinds: of, field: "detail.reason", truth: byKind, check: empty(func(d record.ScheduleSlot) bool { return d.Reason == "" })},
	}
}
