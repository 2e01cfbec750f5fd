package schedule

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cron"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// batch is what one commit makes durable.
type batch struct {
	now    time.Time
	rev    *Snapshot
	items  []audit.Item
	lines  []*line
	insert []*api.Slot
	update []*api.Slot
}

// tick decides about all slots that are due, makes that durable, and submits the runs.
// It returns when to look again.
func (k *Keeper) tick(ctx context.Context) (next time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rev, err := k.cfg.Rules.Schedules(ctx)
	if err != nil {
		return next, err
	}
	b := &batch{now: k.cfg.Now().UTC().Round(0), rev: rev}
	if k.sleeps(b) {
		return b.next(k.due), nil
	}
	k.due = time.Time{}
	k.queued.Store(true) // a run that settles from here on may have been read as open
	k.land(ctx, b)
	k.reconcile(b)
	for _, name := range slices.Sorted(maps.Keys(k.lines)) {
		if l := k.lines[name]; l.def != nil && l.cron != nil {
			if err := k.decide(ctx, b, l); err != nil {
				return next, err
			}
		}
	}
	if err := k.commit(ctx, b); err != nil {
		return next, err
	}
	k.launch(b.now)
	k.due = b.now.Add(farAway)
	if len(k.fired) > 0 {
		k.due = b.now.Add(retrySleep)
	}
	queued := false
	for _, l := range k.lines {
		queued = queued || len(l.waiting) > 0
		if !l.next.IsZero() && l.next.Before(k.due) {
			k.due = l.next
		}
	}
	k.queued.Store(queued)
	if queued && len(b.update) > 0 { // a run that was still to be submitted for this tick may have settled
		k.Wake()
	}
	return b.next(k.due), nil
}

// farAway is when a keeper without a slot that is due looks at its schedules again.
const farAway = 24 * time.Hour

// sleeps reports whether nothing can have happened since the last tick, so that schedules
// cost nothing while they are not due. The caller holds mu.
func (k *Keeper) sleeps(b *batch) bool {
	return k.rev != nil && k.rev.Digest == b.rev.Digest && len(k.fired) == 0 && len(k.flights) == 0 && !k.queued.Load() && b.now.Before(k.due)
}

// next is when to look again, if a slot is due then.
func (b *batch) next(due time.Time) time.Time {
	if latest := b.now.Add(longestSleep); due.After(latest) {
		return latest
	}
	return due
}

// commit makes a batch durable. After an error memory is that of the database.
func (k *Keeper) commit(ctx context.Context, b *batch) error {
	if len(b.items)+len(b.lines)+len(b.insert)+len(b.update) == 0 {
		return nil
	}
	failpoint.Hit(failpoint.ScheduleCommit, "")
	write := func(tx *store.Tx) error {
		for _, l := range b.lines {
			if err := saveLine(tx, l); err != nil {
				return err
			}
		}
		for _, s := range b.insert {
			if err := insertSlot(tx, s); err != nil {
				return fmt.Errorf("slot %s of schedule %s: %w", s.Slot.Format(time.RFC3339), s.Schedule, err)
			}
		}
		for _, s := range b.update {
			if err := updateSlot(tx, s); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if len(b.items) > 0 {
		err = k.cfg.Ledger.CommitAll(ctx, b.items, write)
	} else {
		err = k.cfg.Store.Update(ctx, write)
	}
	if err != nil {
		return cmp.Or(k.load(context.WithoutCancel(ctx)), err)
	}
	failpoint.Hit(failpoint.ScheduleCommitted, "")
	for _, s := range slices.Concat(b.insert, b.update) {
		if s.State == api.SlotFired {
			k.fired[s.Seq] = s
		} else {
			delete(k.fired, s.Seq)
			delete(k.flights, s.Seq)
		}
		if s.State == api.SlotSkipped || s.State == api.SlotSubmitted {
			k.cfg.Observe(s.State, s.Reason)
		}
	}
	return nil
}

// reconcile applies the revision in force. Slots after it follow it; those of earlier
// times that were not decided are skipped.
func (k *Keeper) reconcile(b *batch) {
	if k.rev != nil && b.rev.Digest == k.rev.Digest {
		return
	}
	defs, from := b.rev.Schedules, b.now
	if at := b.rev.CreatedAt; !at.IsZero() && at.Before(from) {
		from = at.UTC()
	}
	for name := range defs {
		if k.lines[name] == nil {
			k.lines[name] = &line{name: name}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.lines)) {
		l := k.lines[name]
		def, ok := defs[name]
		times := ""
		if ok {
			times = def.Cron + "\n" + def.Zone
		}
		if l.times != times {
			k.replace(b, l, times, from)
		}
		l.def, l.cron, l.digest, l.broken, l.next = nil, nil, "", nil, time.Time{}
		if ok {
			l.def = &def
			l.cron, l.broken = cron.Parse(def.Cron, def.Zone)
			l.digest = b.rev.Artifact(name)
			l.latest = l.lastDue()
		}
	}
	k.rev = b.rev
}

// replace ends the old times of a schedule.
func (k *Keeper) replace(b *batch, l *line, times string, from time.Time) {
	if expression, zone, ok := strings.Cut(l.times, "\n"); ok {
		if old, err := cron.Parse(expression, zone); err == nil {
			r := skipped{reason: api.SkipChanged}
			for s := old.Next(l.cursor); !s.IsZero() && !s.After(from); s = old.Next(s) {
				r.add(s)
			}
			r.put(b, l)
		}
	}
	for _, s := range l.waiting {
		b.skip(s, api.SkipChanged, "")
	}
	l.waiting, l.times = nil, times
	if from.After(l.cursor) {
		l.cursor = from
	}
	b.lines = append(b.lines, l)
}

// skipped are slots that follow each other and are skipped for one reason.
type skipped struct {
	reason, message string
	first, last     time.Time
	count           int
}

func (r *skipped) add(s time.Time) {
	if r.count++; r.count == 1 {
		r.first = s
	}
	r.last = s
}

func (r *skipped) put(b *batch, l *line) {
	if r.count == 0 {
		return
	}
	s := &api.Slot{Schedule: l.name, Slot: r.first.UTC()}
	if r.count > 1 {
		s.Last, s.Count = r.last.UTC(), r.count
	}
	b.skip(s, r.reason, r.message)
}

// skip adds a slot that is skipped to the batch.
func (b *batch) skip(s *api.Slot, reason, message string) {
	s.State, s.Reason, s.Message = api.SlotSkipped, reason, message
	b.put(s, record.KindScheduleSkipped)
}

// fire adds a slot whose run is submitted after the commit.
func (b *batch) fire(s *api.Slot) {
	s.State, s.RunID = api.SlotFired, api.ScheduleRun(s.Schedule, s.Slot)
	b.put(s, record.KindScheduleFired)
}

func (b *batch) put(s *api.Slot, kind record.Kind) {
	s.At = b.now
	d := record.ScheduleSlot{By: string(s.By), Count: int64(s.Count), Message: s.Message, Reason: s.Reason, Schedule: string(s.Schedule), Slot: s.Slot.Format(time.RFC3339), Revision: int64(b.rev.Number)} //nolint:gosec // G115: numbers count up from 1
	if s.By == "" {
		d.Zones = cron.ZoneVersion
	}
	if !s.Last.IsZero() {
		d.Last = s.Last.Format(time.RFC3339)
	}
	e := record.Entry{Kind: kind, Detail: d}
	if kind == record.KindScheduleFired {
		e.Run = string(s.RunID)
	}
	b.items = append(b.items, audit.Item{Decision: policy.Decision{}, Entry: e})
	b.store(s)
}

// store writes the row of a slot with the batch.
func (b *batch) store(s *api.Slot) {
	if s.Seq == 0 {
		b.insert = append(b.insert, s)
	} else {
		b.update = append(b.update, s)
	}
}

// jitter is how long after its time a slot is submitted. It is the same each time, and
// differs between schedules.
func jitter(def *api.Schedule, slot time.Time) time.Duration {
	if def.Jitter <= 0 {
		return 0
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", def.Name, slot.Unix()))
	return time.Duration(binary.BigEndian.Uint64(sum[:]) % uint64(def.Jitter)) //nolint:gosec // G115: positive, and less than the jitter
}

// due returns when a slot is submitted: after its jitter, and not before the slots that
// precede it, so that slots keep their order if the jitter is longer than the time between
// two of them. None waits longer than the jitter of the schedule for that.
func (l *line) due(slot time.Time) time.Time {
	if at := slot.Add(jitter(l.def, slot)); at.After(l.latest) {
		return at
	}
	return l.latest
}

// lastDue returns when the slot at the cursor was due, which follows from the schedule
// alone; zero if no later slot can be due before.
func (l *line) lastDue() (latest time.Time) {
	if l.cron == nil || l.def.Jitter <= 0 {
		return latest
	}
	for s := l.cron.Next(l.cursor.Add(-time.Duration(l.def.Jitter))); !s.IsZero() && !s.After(l.cursor); s = l.cron.Next(s) {
		if at := s.Add(jitter(l.def, s)); at.After(latest) {
			latest = at
		}
	}
	return latest
}

// subject is what emergency stops of the run of a slot are matched against.
func subject(def *api.Schedule, slot time.Time) api.StopSubject {
	return api.StopSubject{Principal: def.Principal, Run: api.ScheduleRun(def.Name, slot)}
}

// dueSlot is a slot that is to be decided.
type dueSlot struct {
	slot   time.Time
	missed bool
}

// collect advances the cursor of l over the slots that are due. It returns those that
// may have a run, and the missed ones that catchUp does not make up.
func (l *line) collect(now time.Time) (list []dueSlot, missed skipped) {
	missed.reason = api.SkipMissed
	caught := 0 // of list that are made up
	for {
		s := l.cron.Next(l.cursor)
		if s.IsZero() {
			l.next = s
			break
		}
		at := l.due(s)
		if l.next = at; at.After(now) {
			break
		}
		l.cursor, l.latest = s.UTC(), at
		late := now.Sub(at) > api.ScheduleGrace
		old := late && now.Sub(s) > time.Duration(l.def.CatchUpWithin)
		switch {
		case late && (old || l.def.CatchUp == "" || l.def.CatchUp == api.CatchUpNone):
			missed.add(s)
			continue
		case l.def.CatchUp == api.CatchUpLast && caught > 0, caught == api.MaxCatchUp:
			missed.add(list[0].slot)
			list, caught = list[1:], caught-1
		}
		list = append(list, dueSlot{s.UTC(), late})
		if late {
			caught++
		}
	}
	return list, missed
}

// decide adds what becomes of the due slots of a schedule to a batch.
func (k *Keeper) decide(ctx context.Context, b *batch, l *line) error {
	isDue := l.next.IsZero() || !l.next.After(b.now)
	if !isDue && len(l.waiting) == 0 {
		return nil
	}
	before := l.cursor
	list, missed := l.collect(b.now)
	if !l.cursor.Equal(before) {
		b.lines = append(b.lines, l)
	}
	stops := k.cfg.Stops(subject(l.def, b.now))
	hold := skipped{}
	switch {
	case len(stops) > 0:
		hold = skipped{reason: api.SkipStopped, message: "emergency stop " + strings.Join(stops, ", ")}
	case l.pausedBy != "" || l.def.Pause:
		hold = skipped{reason: api.SkipPaused}
	}
	missed.put(b, l)
	if hold.reason != "" {
		for _, d := range list {
			hold.add(d.slot)
		}
		hold.put(b, l)
		if hold.reason == api.SkipStopped {
			for _, s := range l.waiting {
				b.skip(s, hold.reason, hold.message)
			}
			l.waiting = nil
		}
		return nil
	}
	if len(list) == 0 && len(l.waiting) == 0 {
		return nil
	}
	busy, err := k.openRun(ctx, l.name)
	if err != nil {
		return err
	}
	if len(l.waiting) > 0 && busy == "" {
		b.fire(l.waiting[0])
		busy, l.waiting = l.waiting[0].RunID, l.waiting[1:]
	}
	for i, d := range list {
		busy = k.place(b, l, &api.Slot{Schedule: l.name, Slot: d.slot}, placing{busy, d.missed, i == len(list)-1})
	}
	return nil
}

// placing is what place needs to know beside the slot.
type placing struct {
	busy   api.RunID // of the schedule, that is open; empty: none
	missed bool      // the slot is made up
	last   bool      // no later slot is due
}

// place decides about a slot by the overlap rule, and returns the run that is open then.
func (k *Keeper) place(b *batch, l *line, s *api.Slot, p placing) api.RunID {
	overlap := fmt.Sprintf("run %s is open", p.busy)
	switch {
	case l.def.Overlap == api.OverlapCancel && !p.last:
		b.skip(s, api.SkipOverlap, "a later slot is due")
		return p.busy
	case p.busy == "" && len(l.waiting) == 0:
	case l.def.Overlap == api.OverlapCancel:
		s.Replaces = p.busy
		b.fire(s)
		return s.RunID
	case l.def.Overlap == api.OverlapQueue && (p.missed && len(l.waiting) < api.MaxCatchUp || len(l.waiting) == 0):
		s.State, s.At = api.SlotWaiting, b.now
		b.store(s)
		l.waiting = append(l.waiting, s)
		return p.busy
	default:
		b.skip(s, api.SkipOverlap, overlap)
		return p.busy
	}
	b.fire(s)
	return s.RunID
}

// openRun returns the newest run of a schedule, if it is open.
func (k *Keeper) openRun(ctx context.Context, name api.Name) (api.RunID, error) {
	var newest *api.Slot
	for _, s := range k.fired {
		if s.Schedule == name && (newest == nil || s.Seq > newest.Seq) {
			newest = s
		}
	}
	if newest != nil { // its run is submitted, and the slot is not yet updated
		state, ok, err := k.cfg.RunState(ctx, newest.RunID)
		if err == nil && ok && state.Settled() {
			return "", nil
		}
		return newest.RunID, err
	}
	var list []api.Slot
	if err := k.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		list, err = readSlots(v, "schedule = ? AND state = 'submitted' ORDER BY seq DESC LIMIT 1", store.Args{name})
		return err
	}); err != nil || len(list) == 0 {
		return "", err
	}
	state, ok, err := k.cfg.RunState(ctx, list[0].RunID)
	if err != nil || !ok || state.Settled() {
		return "", err
	}
	return list[0].RunID, nil
}
