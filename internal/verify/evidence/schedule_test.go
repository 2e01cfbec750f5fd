package evidence

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cron"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

const slotText = "2026-11-23T02:00:00Z"

const nightlyPlan = `source: {name: app}
tasks:
  - {id: a, subagent: code, env: [plain], capabilities: [tools]}
`

// slotLie changes the story of a run that a schedule submitted.
type slotLie struct {
	plan      string // that is submitted
	principal api.Principal
	fired     func(*record.ScheduleSlot)
	request   func(*record.RunRequest)
	artifact  string // whose digest the run names
	unfired   bool
	twice     bool
	id        api.RunID
	cron      string // of the signed schedule
	at        string // the slot; empty: slotText
}

// scheduledRun tells the story of a run that a schedule submitted.
func scheduledRun(s *story, lie slotLie) api.RunID {
	def := api.Schedule{Name: "nightly", Cron: "0 2 * * *", Zone: "UTC", Plan: nightlyPlan, Principal: "local:ann"}
	if lie.principal != "" {
		def.Principal = lie.principal
	}
	if lie.cron != "" {
		def.Cron, def.Zone = lie.cron, "Europe/Rome"
	}
	at := slotText
	if lie.at != "" {
		at = lie.at
	}
	s.editCatalog = func(docs map[api.Ref]any) { docs["schedule/nightly"] = def }
	s.publish("local:ann")
	slot, err := time.Parse(time.RFC3339, at)
	s.must(err)
	id := api.ScheduleRun("nightly", slot)
	if lie.id != "" {
		id = lie.id
	}
	fired := record.ScheduleSlot{Schedule: "nightly", Slot: at, Zones: cron.ZoneVersion, Revision: int64(s.revision.Number)} //nolint:gosec // G115: small
	if lie.fired != nil {
		lie.fired(&fired)
	}
	if fired.By != "" {
		fired.Zones = "" // it follows from no expression
	}
	for n := 0; n < 1 && !lie.unfired || n < 2 && lie.twice; n++ {
		s.write(record.Entry{Kind: record.KindScheduleFired, Run: string(id), Detail: fired})
	}
	text := nightlyPlan
	if lie.plan != "" {
		text = lie.plan
	}
	p, places := plan.Read([]byte(text))
	if places != nil {
		s.t.Fatal(places)
	}
	p, err = p.WithID(id)
	s.must(err)
	request := record.RunRequest{Queue: string(p.Queue), Tasks: int64(len(p.Tasks)), Rules: plan.Rules, Revision: int64(s.revision.Number), Schedule: "nightly", Slot: at} //nolint:gosec // G115: small
	if lie.request != nil {
		lie.request(&request)
	}
	refs := map[string]api.Digest{record.RefPlan: s.put(p.Canonical()), record.RefSchedule: s.revision.Artifacts["schedule/nightly"].Digest}
	if lie.artifact != "" {
		refs[record.RefSchedule] = api.DigestOf([]byte(lie.artifact))
	}
	if request.Schedule == "" {
		delete(refs, record.RefSchedule)
	}
	s.write(record.Entry{
		Kind: record.KindRunSubmitted, Principal: "local:ann", Action: "run.submit", Resource: "local:ann", Policies: []string{"self"}, Run: string(id), Refs: refs, Detail: request,
	})
	w := &work{id: "t-a1", run: id, task: "a", fence: 1}
	s.fire(w, 1)
	s.done(w, 1)
	settled := map[string]api.Digest{record.RefPlan: p.Digest()}
	s.write(record.Entry{Kind: record.KindRunSettled, Run: string(id), Refs: settled, Detail: record.RunEnd{State: "done", Done: 1}})
	return id
}

func honestSlot(s *story) []bundle.Case {
	return []bundle.Case{{Run: scheduledRun(s, slotLie{})}}
}

// A slot that only other zone data gives is na: the report says so, and names both
// releases. The control is a slot that both give.
func TestASlotOfOtherZoneDataIsNotJudged(t *testing.T) {
	for at, claimed := range map[string]bool{"2026-10-25T01:30:00Z": true, "2026-10-25T00:30:00Z": false} {
		s := newStory(t)
		id := scheduledRun(s, slotLie{cron: "30 2 * * *", at: at, fired: func(d *record.ScheduleSlot) { d.Zones = "2031a" }})
		r := Verify(reread(t, s.bundle(bundle.Case{Run: id})), s.trust(), Options{})
		want := "claimed    the time of 1 slot: na, found with zone data 2031a, and this verifier has " + cron.ZoneVersion + "\n"
		if r.Failed() || strings.Contains(r.Text(), want) != claimed {
			t.Errorf("slot %s: want it claimed: %t:\n%s", at, claimed, r.Text())
		}
	}
}

// A run that says it is for a slot of a schedule has the plan and the principal that
// people signed for it, follows the entry that the slot fired, and has its id. The
// honest run is the positive control.
//
// proves R-A7, R-O10
func TestEachLieAboutAScheduledRunIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		lie   slotLie
		wrong string // part of what the verifier says; empty: the run is honest
	}{
		"honest":              {slotLie{}, ""},
		"another plan":        {slotLie{plan: strings.Replace(nightlyPlan, "id: a,", "id: a, input: {n: 1},", 1)}, "its plan differs from schedule/nightly"},
		"another principal":   {slotLie{principal: "local:bob"}, "submitted by local:ann, but schedule/nightly is of local:bob"},
		"another artifact":    {slotLie{artifact: "x"}, "has another schedule/nightly"},
		"no entry of a slot":  {slotLie{unfired: true}, "no entry before says that the slot fired"},
		"a slot fires twice":  {slotLie{twice: true}, "fired a second time"},
		"another slot fired":  {slotLie{fired: func(d *record.ScheduleSlot) { d.Slot = "2026-11-22T02:00:00Z" }}, "but slot"},
		"of another schedule": {slotLie{fired: func(d *record.ScheduleSlot) { d.Schedule = "weekly" }}, "fired"},
		"honest, requested":   {slotLie{at: "2026-11-23T02:07:31Z", fired: func(d *record.ScheduleSlot) { d.By = "local:ann" }}, ""},
		"honest, set back":    {slotLie{cron: "30 2 * * *", at: "2026-10-25T00:30:00Z"}, ""},
		"honest, skipped":     {slotLie{cron: "30 2 * * *", at: "2026-03-29T01:00:00Z"}, ""},
		"an interval again":   {slotLie{cron: "*/30 * * * *", at: "2026-10-25T01:30:00Z"}, ""},
		"a lie, old rules":    {slotLie{cron: "*/30 * * * *", at: "2026-10-25T01:30:00Z", request: func(d *record.RunRequest) { d.Rules = 4 }}, "is not a time of"},
		"honest, old rules":   {slotLie{cron: "*/30 * * * *", at: "2026-10-25T00:30:00Z", request: func(d *record.RunRequest) { d.Rules = 4 }}, ""},
		"the hour repeated":   {slotLie{cron: "30 2 * * *", at: "2026-10-25T01:30:00Z"}, "is not a time of"},
		"no time of the cron": {slotLie{at: "2026-11-23T03:00:00Z"}, "slot 2026-11-23T03:00:00Z is not a time of"},
		"no full minute":      {slotLie{at: "2026-11-23T02:00:01Z"}, "is not a time of"},
		"requested by cron":   {slotLie{fired: func(d *record.ScheduleSlot) { d.By = "local:ann" }}, "a slot on request has seconds"},
		"the id of another":   {slotLie{id: "nightly-20261124t0200z"}, "its id does not belong to slot"},
		"honest, other zones": {slotLie{cron: "30 2 * * *", at: "2026-10-25T01:30:00Z", fired: func(d *record.ScheduleSlot) { d.Zones = "2031a" }}, ""},
		"honest, older entry": {slotLie{cron: "30 2 * * *", at: "2026-10-25T00:30:00Z", fired: func(d *record.ScheduleSlot) { d.Zones = "" }}, ""},
		"no zones":            {slotLie{cron: "30 2 * * *", at: "2026-10-25T01:30:00Z", fired: func(d *record.ScheduleSlot) { d.Zones = "" }}, "is not a time of"},
		"other zones, UTC":    {slotLie{at: "2026-11-23T03:00:00Z", fired: func(d *record.ScheduleSlot) { d.Zones = "2031a" }}, "is not a time of"},
		"other zones, second": {slotLie{cron: "30 2 * * *", at: "2026-10-25T01:30:01Z", fired: func(d *record.ScheduleSlot) { d.Zones = "2031a" }}, "is not a time of"},
		"a slot left out":     {slotLie{request: func(d *record.RunRequest) { d.Schedule, d.Slot = "", "" }}, "but slot"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.earlier5 = strings.HasSuffix(name, "old rules")
			id := scheduledRun(s, c.lie)
			r := Verify(reread(t, s.bundle(bundle.Case{Run: id})), s.trust(), Options{})
			switch said := r.Text(); {
			case c.wrong == "" && r.Failed():
				t.Errorf("an honest run was refused:\n%s", said)
			case c.wrong != "" && (!r.Failed() || !strings.Contains(said, c.wrong)):
				t.Errorf("want %q in\n%s", c.wrong, said)
			}
		})
	}
}
