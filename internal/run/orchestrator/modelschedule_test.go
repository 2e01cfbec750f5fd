package orchestrator_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/run/schedule"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// nightly submits the runs of the schedules.
const nightly api.Principal = "ci:nightly"

// calendar is the schedules of a world. The keeper of the product drives them; the
// reference works out from the clock, and from when their runs settled by the log, what
// becomes of each slot, and when.
type calendar struct {
	desk  *desk
	rules *schedule.Snapshot
	lines map[api.Name]*timeline
	downs []outage // since the last comparison
	// waits is since when slots wait, by their time: at the end of each outage since the
	// last comparison, and now.
	waits map[api.Name]map[int64]time.Time

	keeper *schedule.Keeper // of the service that lives; nil: it has none
	awake  atomic.Pointer[schedule.Keeper]
}

// outage is when no service ran.
type outage struct{ from, to time.Time }

// timeline is a schedule as the reference sees it.
type timeline struct {
	def     api.Schedule
	plan    api.Plan // without its id
	minutes []int    // of each hour, that are its slots
	refused bool     // its plan has a task that may not run
	cursor  time.Time
	until   time.Time // when the slot at the cursor was due: none is sooner than the one before it
	paused  bool
	held    bool      // paused by the log, which is ahead of the comparison
	freed   time.Time // when the newest pause ended, or the newest submission was refused
	open    api.RunID // of the newest slot with a run; empty: none
	refuse  []firing  // whose submission is about to be refused
	waiting []time.Time
	became  map[time.Time]api.SlotState // of slots, and of the first of those that were skipped together
	heard   []notice                    // entries since the last comparison
}

// firing is when a slot fired.
type firing struct{ slot, at time.Time }

// notice is an entry about a schedule.
type notice struct {
	seq  uint64
	at   time.Time
	kind record.Kind
	slot record.ScheduleSlot
}

// expects is an entry that has to come.
type expects struct {
	reason      string // why it is skipped; empty: it fires
	first, last time.Time
	count       int
}

// ruled is the rules and runs of one service: nothing comes of what it asks for when it
// was killed.
type ruled struct {
	*calendar
	*orchestrator.Orchestrator
	dead func() bool
}

func (r ruled) Schedules(context.Context) (*schedule.Snapshot, error) {
	if r.dead() {
		return nil, errKilled
	}
	return r.rules, nil
}

func (r ruled) SubmitSlot(ctx context.Context, by dispatch.Caller, req api.RunRequest, slot orchestrator.Slot) (api.Run, error) {
	if r.dead() {
		return api.Run{}, errKilled
	}
	return r.Orchestrator.SubmitSlot(ctx, by, req, slot)
}

func (c *calendar) Engine(context.Context) (*policy.Engine, error) {
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	return c.desk.engine, nil
}

// watcher tells the keeper of runs that have settled, as the service does.
type watcher struct{ *calendar }

func (watcher) TaskSettled(api.TaskState, api.Reason) {}
func (watcher) Committed(int)                         {}
func (watcher) Swept(int)                             {}

func (w watcher) RunSettled(api.RunState) {
	if k := w.awake.Load(); k != nil {
		k.RunSettled()
	}
}

// drawCalendar draws the schedules of a world.
func drawCalendar(rt *rapid.T, now time.Time) *calendar {
	c := &calendar{lines: map[api.Name]*timeline{}}
	for i, overlap := range []api.Overlap{api.OverlapSkip, api.OverlapQueue, api.OverlapCancel} {
		l := &timeline{became: map[time.Time]api.SlotState{}, cursor: now}
		l.def = api.Schedule{Name: api.Name(fmt.Sprintf("s%d", i)), Zone: "UTC", Principal: nightly, Overlap: overlap}
		l.minutes = rapid.SampledFrom([][]int{{0}, {0, 30}, {20, 50}}).Draw(rt, "minutes")
		var list []string
		for _, n := range l.minutes {
			list = append(list, fmt.Sprint(n))
		}
		l.def.Cron = strings.Join(list, ",") + " * * * *"
		modes := []api.CatchUp{"", api.CatchUpNone, api.CatchUpLast, api.CatchUpLast}
		if overlap == api.OverlapQueue {
			modes = append(modes, api.CatchUpAll, api.CatchUpAll, api.CatchUpAll)
		}
		if l.def.CatchUp = rapid.SampledFrom(modes).Draw(rt, "catch up"); l.def.CatchUp != "" && l.def.CatchUp != api.CatchUpNone {
			l.def.CatchUpWithin = rapid.SampledFrom([]api.Duration{api.Duration(40 * time.Minute), api.Duration(3 * time.Hour)}).Draw(rt, "within")
		}
		l.def.Jitter = rapid.SampledFrom([]api.Duration{0, api.Duration(10 * time.Minute), api.Duration(100 * time.Minute)}).Draw(rt, "jitter")
		kind := rapid.SampledFrom([]api.Name{work, work, work, quick, quick, denied, before, after, secret}).Draw(rt, "kind")
		l.refused = kind == secret
		l.plan.Tasks = []api.PlanTask{{ID: "t0", Subagent: kind, Locks: []api.Lock{{Key: "a", Shared: true}}}}
		if rapid.Bool().Draw(rt, "second") {
			l.plan.Tasks = append(l.plan.Tasks, api.PlanTask{ID: "t1", Subagent: work, DependsOn: []api.TaskID{"t0"}})
		}
		if rapid.IntRange(0, 2).Draw(rt, "limited") == 0 {
			l.plan.Limits.Wall = api.Duration(25 * time.Minute)
		}
		if rapid.IntRange(0, 2).Draw(rt, "narrow") == 0 {
			l.plan.Queue = narrow
		}
		text, err := json.Marshal(l.plan)
		if err != nil {
			rt.Fatalf("%v", err)
		}
		l.def.Plan = string(text)
		// The order of slots is that of the cron expression, whenever the schedule began.
		for s := l.next(now.Add(-time.Duration(l.def.Jitter))); !s.After(now); s = l.next(s) {
			l.until = l.due(s, l.until)
		}
		c.lines[l.def.Name] = l
	}
	c.rules = &schedule.Snapshot{Number: 7, Digest: revision, CreatedAt: now, Schedules: map[api.Name]api.Schedule{}, Artifact: func(n api.Name) api.Digest { return api.DigestOf([]byte(n)) }}
	for name, l := range c.lines {
		c.rules.Schedules[name] = l.def
	}
	return c
}

// planOf is the plan of the run of a slot.
func (c *calendar) planOf(id api.RunID) *api.Plan {
	if c == nil {
		return nil
	}
	stem, _, _ := strings.Cut(string(id), "-")
	if l := c.lines[api.Name(stem)]; l != nil {
		p := l.plan
		p.ID = id
		return &p
	}
	return nil
}

// openSchedules opens the keeper of the service that has just begun.
func (w *world) openSchedules(o *orchestrator.Orchestrator) {
	w.t.Helper()
	if w.calendar == nil {
		return
	}
	w.noteWaiting() // what waited before a kill may fire before the next comparison
	r := ruled{w.calendar, o, w.dead}
	k, err := schedule.Open(context.Background(), schedule.Config{
		Store: w.store, Ledger: w.ledger, Rules: r, Runs: r, RunState: o.RunState, Now: w.config.Now,
		Stops: func(api.StopSubject) []string { return nil },
	})
	w.must(err)
	w.calendar.keeper = k
	w.calendar.awake.Store(k)
	k.Start(context.Background())
}

func (w *world) closeSchedules() {
	if w.calendar == nil || w.calendar.keeper == nil {
		return
	}
	w.calendar.awake.Store(nil)
	w.calendar.keeper.Close()
	w.calendar.keeper = nil
}

// down lets the time of an outage pass that began when the service was killed or ended.
func (w *world) down(from time.Time) {
	time.Sleep(w.outage)
	w.outage = 0
	if w.calendar != nil {
		w.calendar.downs = append(w.calendar.downs, outage{from, w.config.Now()})
	}
}

// drawOutage draws how long no service runs.
func drawOutage(rt *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 0, 0, time.Minute, 3 * time.Minute, 35 * time.Minute, 150 * time.Minute}).Draw(rt, "outage")
}

// scheduled takes an entry about a schedule.
func (m *replay) scheduled(c *audit.Committed) {
	d, ok := c.Entry.Detail.(record.ScheduleSlot)
	if !ok {
		act, _ := c.Entry.Detail.(record.ScheduleAction)
		d.Schedule = act.Schedule
	}
	l := m.calendar.lines[api.Name(d.Schedule)]
	if l == nil {
		m.object(c.Seq, "%s of schedule %q, which there is not", c.Entry.Kind, d.Schedule)
		return
	}
	if c.Entry.Kind == record.KindScheduleFired {
		slot, err := time.Parse(time.RFC3339, d.Slot)
		if want := d.Schedule + "-" + slot.UTC().Format("20060102t1504z"); err != nil || c.Entry.Run != want || m.runs[api.RunID(want)] != nil {
			m.object(c.Seq, "slot %s of schedule %s fires run %s", d.Slot, d.Schedule, c.Entry.Run)
		}
	}
	if d.Slot == "" {
		l.held = c.Entry.Kind == record.KindSchedulePaused
	}
	l.heard = append(l.heard, notice{c.Seq, c.Entry.At, c.Entry.Kind, d})
}

// next is the first slot after a time.
func (l *timeline) next(after time.Time) time.Time {
	for hour := after.UTC().Truncate(time.Hour); ; hour = hour.Add(time.Hour) {
		for _, n := range l.minutes {
			if s := hour.Add(time.Duration(n) * time.Minute); s.After(after) {
				return s
			}
		}
	}
}

// due is when a slot is due that follows on the one at the cursor.
func (l *timeline) due(slot, until time.Time) time.Time {
	at := slot
	if l.def.Jitter > 0 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", l.def.Name, slot.Unix()))
		at = at.Add(time.Duration(binary.BigEndian.Uint64(sum[:]) % uint64(l.def.Jitter)))
	}
	if at.Before(until) {
		return until
	}
	return at
}

// noteWaiting notes the slots that wait now, and since when: the log does not say so.
func (w *world) noteWaiting() {
	if w.calendar.waits == nil {
		w.calendar.waits = map[api.Name]map[int64]time.Time{}
	}
	w.must(w.store.Read(context.Background(), func(v *store.View) error {
		return v.Each("SELECT doc FROM schedule_slot WHERE state = 'waiting'", nil, func(scan store.Scan) error {
			var doc string
			var s api.Slot
			err := scan(&doc)
			if err == nil {
				err = json.Unmarshal([]byte(doc), &s)
			}
			if w.calendar.waits[s.Schedule] == nil {
				w.calendar.waits[s.Schedule] = map[int64]time.Time{}
			}
			w.calendar.waits[s.Schedule][s.Slot.UnixNano()] = s.At
			return err
		})
	}))
}

// slots works out what became of all slots until now, and compares it with the log and
// with the rows.
func (m *machine) slots() (wrong []string) {
	m.noteWaiting()
	for _, name := range slices.Sorted(maps.Keys(m.calendar.lines)) {
		l := m.calendar.lines[name]
		a := &almanac{timeline: l, m: m, now: m.config.Now(), rows: m.calendar.waits[name]}
		a.run()
		for _, h := range l.heard {
			a.object("#%d: %s of slot %s is one too many: %+v", h.seq, h.kind, h.slot.Slot, h.slot)
		}
		l.heard = nil
		wrong = append(wrong, a.wrong...)
	}
	m.calendar.downs, m.calendar.waits = nil, nil
	if len(wrong) == 0 {
		wrong = m.storedSlots()
	}
	return wrong
}

// almanac is the work of the reference on one schedule.
type almanac struct {
	*timeline
	m     *machine
	now   time.Time
	rows  map[int64]time.Time // when a slot that waits did begin to, by its time
	wrong []string
}

func (a *almanac) object(format string, args ...any) {
	a.wrong = append(a.wrong, fmt.Sprintf("schedule %s: ", a.def.Name)+fmt.Sprintf(format, args...))
}

// serves is the first time from at on at which a service runs that decides about a slot.
// One that is killed at that instant may have decided before.
func (a *almanac) serves(at, slot time.Time) time.Time {
	for _, d := range a.m.calendar.downs {
		if at.Equal(d.from) && (len(a.heard) > 0 && a.heard[0].at.Equal(at) || a.rows[slot.UnixNano()].Equal(at)) {
			continue
		}
		if !at.Before(d.from) && at.Before(d.to) {
			at = d.to
		}
	}
	return at
}

// soon reports whether something that was to follow at once on what happened at t did so:
// at that instant, or when the next service began.
func (a *almanac) soon(t, at time.Time) bool {
	for _, d := range a.m.calendar.downs {
		if t.Equal(d.from) && at.Equal(d.to) {
			return true
		}
	}
	return at.Equal(t)
}

// run does in the order of time what is to be done until now.
func (a *almanac) run() {
	for len(a.wrong) == 0 {
		if a.refuses() {
			continue
		}
		slot := a.next(a.cursor)
		at := a.serves(a.due(slot, a.until), slot)
		if t, ok := a.released(); ok && !t.After(a.now) && (t.Before(at) || t.Equal(at) && a.releases()) {
			if !a.pausedBefore(t) {
				a.release(t)
			}
			continue
		}
		if a.pausedBefore(at) {
			continue
		}
		if at.After(a.now) {
			if len(a.refuse) > 0 {
				a.object("slots %v fired and are not refused", a.refuse)
			}
			return
		}
		a.tick(at)
	}
}

// refuses takes that the submission of the newest slot is refused. If the service was
// killed before, the next one decides first about what is due when it begins.
func (a *almanac) refuses() bool {
	if len(a.refuse) == 0 || len(a.heard) == 0 {
		return false
	}
	first, h := a.refuse[0], a.heard[0]
	if h.slot.Reason != api.SkipRefused || !a.soon(first.at, h.at) {
		return false
	}
	a.expect(h.at, expects{reason: api.SkipRefused, first: first.slot})
	if a.refuse = a.refuse[1:]; len(a.refuse) == 0 {
		a.open, a.freed = "", h.at
	}
	return true
}

// pausedBefore takes the next entry that pauses or resumes the schedule, if that is not
// after t.
func (a *almanac) pausedBefore(t time.Time) bool {
	if len(a.heard) == 0 || a.heard[0].at.After(t) {
		return false
	}
	switch h := a.heard[0]; h.kind { //nolint:exhaustive // the others are about slots
	case record.KindSchedulePaused, record.KindScheduleResumed:
		a.paused, a.freed = h.kind == record.KindSchedulePaused, h.at
		a.heard = a.heard[1:]
		return true
	}
	return false
}

// settled is when the newest run of the schedule settled; false: it is open.
func (a *almanac) settled() (time.Time, bool) {
	r := a.m.log.runs[a.open]
	if r == nil || r.settled == nil {
		return time.Time{}, false
	}
	return r.ended, true
}

// released is when the first slot that waits has nothing to wait for.
func (a *almanac) released() (time.Time, bool) {
	if len(a.waiting) == 0 || a.paused || len(a.refuse) > 0 {
		return time.Time{}, false
	}
	t := a.freed
	if a.open != "" {
		end, ok := a.settled()
		if !ok {
			return time.Time{}, false
		}
		if end.After(t) {
			t = end
		}
	}
	return a.serves(t, time.Time{}), true
}

// releases reports whether the next entry is that the first slot that waits has fired.
func (a *almanac) releases() bool {
	return len(a.heard) > 0 && a.heard[0].kind == record.KindScheduleFired && a.heard[0].slot.Slot == a.waiting[0].Format(time.RFC3339)
}

// busy reports whether a run of the schedule is open at t. One that settles at that
// instant may be looked at before or after.
func (a *almanac) busy(t time.Time) (open, either bool) {
	if a.open == "" {
		return false, false
	}
	end, ok := a.settled()
	return !ok || !end.Before(t), ok && end.Equal(t)
}

// release fires the first slot that waits.
func (a *almanac) release(t time.Time) {
	s := a.waiting[0]
	a.waiting = a.waiting[1:]
	a.fire(t, s)
}

// fire expects that a slot fires, and has its run.
func (a *almanac) fire(t, slot time.Time) {
	was := a.open
	a.expect(t, expects{first: slot})
	a.open, a.became[slot] = api.ScheduleRun(a.def.Name, slot), api.SlotSubmitted
	if len(a.wrong) > 0 {
		return
	}
	if a.refused {
		a.refuse = append(a.refuse, firing{slot, t})
		return
	}
	switch r := a.m.log.runs[a.open]; {
	case r == nil || r.by != nightly || !a.soon(t, r.at):
		a.object("slot %s fired at %s and its run is %+v", slot, t, r)
	case a.def.Overlap == api.OverlapCancel && was != "":
		if old := a.m.log.runs[was]; !old.cancelled && old.settled == nil {
			a.object("run %s is open beside run %s", was, a.open)
		}
	}
}

// skip expects that slots are skipped together.
func (a *almanac) skip(t time.Time, reason string, list ...time.Time) {
	if len(list) > 0 {
		a.expect(t, expects{reason: reason, first: list[0], last: list[len(list)-1], count: len(list)})
	}
}

// expect takes the next entry, which has to be that one.
func (a *almanac) expect(t time.Time, want expects) {
	if len(a.wrong) > 0 {
		return
	}
	kind := record.KindScheduleFired
	if want.reason != "" {
		kind = record.KindScheduleSkipped
		a.became[want.first] = api.SlotSkipped
	}
	last := ""
	if want.count > 1 {
		last = want.last.Format(time.RFC3339)
	} else {
		want.count = 0
	}
	if len(a.heard) == 0 {
		a.object("at %s slot %s should be %s for %q, %d until %s, and nothing came of it", t, want.first, kind, want.reason, want.count, last)
		return
	}
	h := a.heard[0]
	a.heard = a.heard[1:]
	if h.kind != kind || !h.at.Equal(t) || h.slot.Slot != want.first.Format(time.RFC3339) || h.slot.Reason != want.reason || h.slot.Last != last || h.slot.Count != int64(want.count) || h.slot.Revision != 7 {
		a.object("#%d: %s at %s: %+v; want %s at %s of slot %s for %q, %d until %s", h.seq, h.kind, h.at, h.slot, kind, t, want.first, want.reason, want.count, last)
	}
}

// tick decides about the slots that are due at t.
func (a *almanac) tick(t time.Time) {
	var early, late, onTime []time.Time
	for {
		s := a.next(a.cursor)
		at := a.due(s, a.until)
		if at.After(t) {
			break
		}
		a.cursor, a.until = s, at
		switch makesUp := a.def.CatchUp == api.CatchUpLast || a.def.CatchUp == api.CatchUpAll; {
		case t.Sub(at) <= 2*time.Minute:
			onTime = append(onTime, s)
		case makesUp && t.Sub(s) <= time.Duration(a.def.CatchUpWithin):
			late = append(late, s)
		default:
			early = append(early, s)
		}
	}
	if a.def.CatchUp == api.CatchUpLast && len(late) > 0 { // the newest of all; what is on time is newer
		n := len(late) - 1
		if len(onTime) > 0 {
			n++
		}
		early, late = append(early, late[:n]...), late[n:]
	}
	a.skip(t, api.SkipMissed, early...)
	list := slices.Concat(late, onTime)
	if a.paused {
		a.skip(t, api.SkipPaused, list...)
		return
	}
	open, either := a.busy(t)
	if either && len(a.heard) > 0 { // the log says what was first
		open = a.heard[0].slot.Reason == api.SkipOverlap
	}
	if len(a.waiting) > 0 && !open {
		a.release(t)
		open = true
	}
	for i, s := range list {
		switch {
		case a.def.Overlap == api.OverlapCancel && i < len(list)-1:
			a.skip(t, api.SkipOverlap, s)
		case !open && len(a.waiting) == 0 || a.def.Overlap == api.OverlapCancel:
			a.fire(t, s)
			open = true
		case a.def.Overlap == api.OverlapQueue && (len(a.waiting) == 0 || i < len(late)):
			a.waiting = append(a.waiting, s)
			a.became[s] = api.SlotWaiting
		default:
			a.skip(t, api.SkipOverlap, s)
		}
	}
}

// storedSlots compares the rows of all slots with what became of them.
func (m *machine) storedSlots() (wrong []string) {
	type key struct {
		schedule api.Name
		slot     int64
	}
	want := map[key]api.SlotState{}
	for name, l := range m.calendar.lines {
		for slot, state := range l.became {
			want[key{name, slot.UnixNano()}] = state
		}
	}
	m.must(m.store.Read(context.Background(), func(v *store.View) error {
		return v.Each("SELECT schedule, slot, state FROM schedule_slot", nil, func(scan store.Scan) error {
			var k key
			var state api.SlotState
			err := scan(&k.schedule, &k.slot, &state)
			if want[k] != state {
				wrong = append(wrong, fmt.Sprintf("slot %s of schedule %s is stored as %s, want %q", time.Unix(0, k.slot).UTC(), k.schedule, state, want[k]))
			}
			delete(want, k)
			return err
		})
	}))
	for k, state := range want {
		wrong = append(wrong, fmt.Sprintf("slot %s of schedule %s is %s and has no row", time.Unix(0, k.slot).UTC(), k.schedule, state))
	}
	return wrong
}

// pauseSchedule pauses a schedule, or resumes it.
func (m *machine) pauseSchedule(rt *rapid.T) {
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(m.calendar.lines))).Draw(rt, "schedule")
	by := rapid.SampledFrom([]api.Principal{root, root, root, ann}).Draw(rt, "by")
	m.begin("pause schedule")
	l := m.calendar.lines[name]
	was := l.held
	call := m.calendar.keeper.Pause
	if was {
		call = m.calendar.keeper.Resume
	}
	_, err := call(context.Background(), as(by), name)
	m.expect(func() []string {
		if may := by == root; (err == nil) != may || (l.held == was) == may {
			return []string{fmt.Sprintf("schedule %s, paused %v, is paused or resumed by %s: %v", name, was, by, err)}
		}
		return nil
	})
}

// passSlot lets the time pass until a slot is due, or almost.
func (m *machine) passSlot(rt *rapid.T) {
	l := m.calendar.lines[rapid.SampledFrom(slices.Sorted(maps.Keys(m.calendar.lines))).Draw(rt, "schedule")]
	off := rapid.SampledFrom([]time.Duration{-time.Second, 0, time.Second}).Draw(rt, "off")
	m.begin("time until a slot")
	d := l.due(l.next(l.cursor), l.until).Add(off).Sub(m.config.Now())
	time.Sleep(max(0, min(d, 2*time.Hour)))
}

// pauseSchedules has no slot fire any more.
func (m *machine) pauseSchedules() {
	for name, l := range m.calendar.lines {
		if !l.held {
			_, _ = m.calendar.keeper.Pause(context.Background(), as(root), name)
		}
	}
}
