package schedule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cron"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const onePlan = "tasks:\n  - {id: a, subagent: code}\n"

// world is a keeper with a clock that the test sets and runs that it settles.
type world struct {
	t      testing.TB
	dir    string
	k      *Keeper
	store  *store.Store
	ledger *audit.Ledger

	mu      sync.Mutex
	now     time.Time
	snap    *Snapshot
	stops   []string
	runs    map[api.RunID]api.RunState
	order   []api.RunID
	refused error // of submissions
	lose    int   // submissions that are durable, and whose answer is lost
}

func newWorld(t testing.TB, now time.Time, defs ...api.Schedule) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "bailiwick-test-") //nolint:usetesting // on a tmpfs where there is one
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, dir: filepath.Join(dir, "store"), now: now, runs: map[api.RunID]api.RunState{}}
	w.apply(defs...)
	st, err := store.Create(context.Background(), w.config())
	w.must(err)
	w.must(st.Close())
	w.start()
	t.Cleanup(w.stop)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) config() store.Config {
	return store.Config{Dir: w.dir, Migrations: []store.Migration{audit.Migration(), Migration()}}
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// apply puts another revision in force.
func (w *world) apply(defs ...api.Schedule) {
	s := &Snapshot{CreatedAt: w.clock(), Schedules: map[api.Name]api.Schedule{}, Artifact: func(n api.Name) api.Digest { return api.DigestOf([]byte(n)) }}
	if w.snap != nil {
		s.Number = w.snap.Number
	}
	s.Number++
	s.Digest = api.DigestOf(fmt.Append(nil, s.Number))
	for _, d := range defs {
		if d.Plan == "" {
			d.Plan = onePlan
		}
		d.Principal = "ci:nightly"
		s.Schedules[d.Name] = d
	}
	w.snap = s
}

func (w *world) start() {
	var err error
	w.store, err = store.Open(context.Background(), w.config())
	w.must(err)
	w.ledger, err = audit.Open(context.Background(), audit.Config{Store: w.store, Now: w.clock})
	w.must(err)
	w.k, err = Open(context.Background(), Config{
		Store: w.store, Ledger: w.ledger, Rules: w, Runs: w, Now: w.clock,
		Stops: func(api.StopSubject) []string { return w.stops },
		RunState: func(_ context.Context, id api.RunID) (api.RunState, bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			s, ok := w.runs[id]
			return s, ok, nil
		},
	})
	w.must(err)
	w.k.begin(context.Background())
}

// stop ends the keeper. What was submitted and not noted is as after a kill.
func (w *world) stop() {
	if w.k != nil {
		w.k.Close()
		w.must(w.store.Close())
		w.k = nil
	}
}

func (w *world) restart() { w.stop(); w.start() }

// Schedules, Engine, SubmitSlot, HasSlot and Cancel are what the keeper uses.
func (w *world) Schedules(context.Context) (*Snapshot, error) { return w.snap, nil }

func (w *world) Engine(context.Context) (*policy.Engine, error) {
	return policy.New(policy.Rules{Operator: "local:op"})
}

func (w *world) SubmitSlot(_ context.Context, c dispatch.Caller, req api.RunRequest, slot orchestrator.Slot) (api.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slot.Revision != w.snap.Digest || c.Principal != "ci:nightly" || api.ScheduleRun(slot.Schedule, slot.At) != req.RunID {
		w.t.Errorf("submitted %s for %+v as %s", req.RunID, slot, c.Principal)
	}
	if w.refused != nil {
		return api.Run{}, w.refused
	}
	if _, again := w.runs[req.RunID]; !again {
		w.runs[req.RunID] = api.RunRunning
		w.order = append(w.order, req.RunID)
	}
	if w.lose > 0 {
		w.lose--
		return api.Run{}, api.Errorf(api.CodeUnavailable, "the answer is lost")
	}
	return api.Run{RunID: req.RunID}, nil
}

func (w *world) HasSlot(_ context.Context, id api.RunID, _ orchestrator.Slot) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id] != "", nil
}

func (w *world) Cancel(_ context.Context, _ dispatch.Caller, id api.RunID, _ api.RunCancel) (api.Run, error) {
	w.mu.Lock()
	known := w.runs[id] != ""
	w.mu.Unlock()
	if !known {
		return api.Run{}, api.Errorf(api.CodeNotFound, "no such run %s", id)
	}
	w.settle(id, api.RunCancelled)
	return api.Run{}, nil
}

func (w *world) settle(id api.RunID, state api.RunState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[id] = state
}

func (w *world) settleAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.runs {
		if !s.Settled() {
			w.runs[id] = api.RunDone
		}
	}
}

// at sets the clock and lets the keeper do all that is due.
func (w *world) at(now time.Time) {
	w.t.Helper()
	w.mu.Lock()
	w.now = now
	w.mu.Unlock()
	w.tick()
}

func (w *world) tick() {
	w.t.Helper()
	_, err := w.k.tick(context.Background())
	w.must(err)
	w.k.mu.Lock()
	flights := w.k.flights
	var waits []chan struct{}
	for _, f := range flights {
		waits = append(waits, f.done)
	}
	w.k.mu.Unlock()
	for _, done := range waits {
		<-done
	}
	if len(waits) > 0 {
		_, err = w.k.tick(context.Background())
		w.must(err)
	}
}

// history lists the slots of a schedule, oldest first, as "TIME STATE REASON".
func (w *world) history(name api.Name) (list []string) {
	w.t.Helper()
	slots, err := w.k.Slots(context.Background(), name, 0, 1000)
	w.must(err)
	for _, s := range slices.Backward(slots) {
		text := s.Slot.Format("02T15:04:05") + " " + string(s.State)
		if s.Count > 1 {
			text += fmt.Sprintf(" %d", s.Count)
		}
		if s.Reason != "" {
			text += " " + s.Reason
		}
		list = append(list, strings.Replace(text, ":00 ", " ", 1))
	}
	return list
}

func (w *world) want(name api.Name, want ...string) {
	w.t.Helper()
	if got := w.history(name); !slices.Equal(got, want) {
		w.t.Errorf("slots\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func day(d, h, m int) time.Time { return time.Date(2026, 11, d, h, m, 0, 0, time.UTC) }

func nightly(change func(*api.Schedule)) api.Schedule {
	s := api.Schedule{Name: "nightly", Cron: "0 2 * * *", Zone: "UTC"}
	if change != nil {
		change(&s)
	}
	return s
}

// A list reads what is stored of each schedule once. Each row that is read allocates, so
// the allocations count the reads: four times the schedules have four times as many. If
// each schedule read the rows of all, they would have more than twice that.
func TestAListReadsEachScheduleOnce(t *testing.T) {
	count := func(n int) float64 {
		var defs []api.Schedule
		for i := range n {
			defs = append(defs, nightly(func(s *api.Schedule) { s.Name = api.Name(fmt.Sprintf("s%04d", i)) }))
		}
		w := newWorld(t, day(1, 0, 0), defs...)
		w.tick()
		return testing.AllocsPerRun(1, func() {
			list, err := w.k.List(t.Context())
			w.must(err)
			if len(list) != n || len(list[n-1].Next) != 1 {
				t.Errorf("the list has %d of %d schedules", len(list), n)
			}
		})
	}
	few, many := count(50), count(200)
	if many > 5*few {
		t.Errorf("the list of 50 schedules allocates %.0f times, that of 200 %.0f times", few, many)
	}
}

// proves R-O10 (a slot has one run, and one that is late has what catchUp says)
func TestMissedSlots(t *testing.T) {
	for name, c := range map[string]struct {
		catch  api.CatchUp
		within time.Duration
		want   []string
	}{
		"none":          {"", 0, []string{"01T02:00 submitted", "02T02:00 skipped 4 missed"}},
		"last":          {api.CatchUpLast, 72 * time.Hour, []string{"01T02:00 submitted", "02T02:00 skipped 3 missed", "05T02:00 submitted"}},
		"last, too old": {api.CatchUpLast, time.Hour, []string{"01T02:00 submitted", "02T02:00 skipped 4 missed"}},
		"all":           {api.CatchUpAll, 72 * time.Hour, []string{"01T02:00 submitted", "02T02:00 skipped missed", "03T02:00 submitted", "04T02:00 submitted", "05T02:00 submitted"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, day(1, 0, 0), nightly(func(s *api.Schedule) {
				s.CatchUp, s.CatchUpWithin, s.Overlap = c.catch, api.Duration(c.within), api.OverlapQueue
			}))
			w.tick()
			w.at(day(1, 2, 0).Add(time.Second))
			w.settleAll()
			w.at(day(5, 20, 0))
			for range 5 {
				w.settleAll()
				w.restart()
				w.tick()
			}
			w.want("nightly", c.want...)
		})
	}
}

// With a jitter that is longer than the time between two slots, slots keep their order, and
// none is missed while the service runs; those of an outage have what catchUp says, and no
// range of skipped slots spans one that ran.
//
// proves R-O10 (a slot has one run, and one that is late has what catchUp says)
func TestJitterLongerThanThePeriod(t *testing.T) {
	jitter, grace := 30*time.Minute, api.ScheduleGrace
	for name, within := range map[api.CatchUp]time.Duration{api.CatchUpNone: 0, api.CatchUpLast: 2 * time.Hour, api.CatchUpAll: 80 * time.Minute} {
		t.Run(string(name), func(t *testing.T) {
			def := api.Schedule{Name: "each", Cron: "* * * * *", Zone: "UTC", Jitter: api.Duration(jitter), Overlap: api.OverlapQueue, CatchUp: name, CatchUpWithin: api.Duration(within)}
			begin := day(1, 0, 0)
			w := newWorld(t, begin, def)
			tick := func(from, to time.Time) {
				for now := from; !now.After(to); now = now.Add(20 * time.Second) {
					w.settleAll()
					w.at(now)
				}
				for range 2 * api.MaxCatchUp {
					w.settleAll()
					w.at(to)
				}
			}
			down, up := begin.Add(2*time.Hour), begin.Add(4*time.Hour)
			tick(begin, down)
			w.stop()
			w.mu.Lock()
			w.now = up
			w.mu.Unlock()
			w.start()
			tick(up, up)
			end := up.Add(time.Hour)
			tick(up, end)
			slots, err := w.k.Slots(t.Context(), "each", 0, 1000)
			w.must(err)
			slices.Reverse(slots)
			next, missed := begin.Add(time.Minute), 0
			for _, s := range slots {
				if !s.Slot.Equal(next) {
					t.Fatalf("slot %s follows, want %s", s.Slot, next)
				}
				next = s.Slot.Add(time.Duration(max(1, s.Count)) * time.Minute)
				if s.State == api.SlotSubmitted {
					continue
				}
				if s.Reason == api.SkipOverlap { // it was due at the same instant as the one before it
					continue
				}
				missed += max(1, s.Count)
				if s.Reason != api.SkipMissed || s.Slot.Before(down.Add(-jitter)) || !next.Before(up.Add(-grace).Add(time.Minute)) {
					t.Errorf("slots %s until %s are %s for %q", s.Slot, next, s.State, s.Reason)
				}
			}
			if missed == 0 {
				t.Error("control: no slot was missed in the outage")
			}
			if next.Before(end.Add(-jitter)) {
				t.Errorf("nothing came of slot %s until %s", next, end)
			}
			t.Logf("%d runs, %d slots missed", len(w.order), missed)
		})
	}
}

// A run that settled before a kill, which came before the keeper noted that its slot has a
// run, is not open for the slot that is due next. The control is one that has not settled.
//
// proves R-O10 (overlap)
func TestARunThatSettledBeforeAKillIsNotOpen(t *testing.T) {
	for _, c := range []struct {
		settles bool
		want    string
	}{{true, "02T02:00 submitted"}, {false, "02T02:00 skipped overlap"}} {
		w := newWorld(t, day(1, 0, 0), nightly(nil))
		w.tick()
		w.mu.Lock()
		w.now = day(1, 2, 0)
		w.mu.Unlock()
		_, err := w.k.tick(t.Context())
		w.must(err)
		w.k.work.Wait() // the run is submitted, and no tick follows
		if c.settles {
			w.settleAll()
		}
		w.restart()
		w.at(day(2, 2, 0))
		w.tick() // slots of one schedule are submitted one after the other
		w.want("nightly", "01T02:00 submitted", c.want)
	}
}

// proves R-O10 (overlap)
func TestOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		overlap api.Overlap
		want    []string
	}{
		"skip":   {"", []string{"01T02:00 submitted", "02T02:00 skipped overlap", "03T02:00 skipped overlap", "04T02:00 submitted"}},
		"queue":  {api.OverlapQueue, []string{"01T02:00 submitted", "02T02:00 submitted", "03T02:00 skipped overlap", "04T02:00 waiting"}},
		"cancel": {api.OverlapCancel, []string{"01T02:00 submitted", "02T02:00 submitted", "03T02:00 submitted", "04T02:00 submitted"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, day(1, 0, 0), nightly(func(s *api.Schedule) { s.Overlap = c.overlap }))
			w.tick()
			for d := 1; d <= 3; d++ {
				w.at(day(d, 2, 0))
			}
			w.restart()
			w.settle("nightly-20261101t0200z", api.RunDone)
			w.at(day(3, 3, 0))
			w.at(day(4, 2, 0))
			w.want("nightly", c.want...)
			if c.overlap == api.OverlapCancel && w.runs["nightly-20261103t0200z"] != api.RunCancelled {
				t.Errorf("runs %v", w.runs)
			}
		})
	}
}

// proves R-O10 (a pause, an emergency stop, a refusal and a change leave a row with the reason)
func TestSkippedSlotsSayWhy(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, day(1, 0, 0), nightly(nil))
	w.tick()
	op := dispatch.Caller{Principal: "local:op"}
	_, err := w.k.Pause(ctx, op, "nightly")
	w.must(err)
	w.restart()
	w.at(day(1, 2, 0))
	_, err = w.k.Resume(ctx, op, "nightly")
	w.must(err)
	w.stops = []string{"s-1"}
	w.at(day(2, 2, 0))
	if _, err := w.k.Run(ctx, op, "nightly"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("run of a stopped schedule: %v", err)
	}
	w.stops = nil
	w.refused = api.Errorf(api.CodeDenied, "ci:nightly may not dispatch code")
	w.at(day(3, 2, 0))
	w.refused = api.Errorf(api.CodeUnavailable, "busy")
	w.at(day(4, 2, 0))
	w.restart()
	w.refused = nil
	w.at(day(4, 9, 0)) // it fired: it is not late
	w.at(day(5, 1, 0))
	w.apply(nightly(func(s *api.Schedule) { s.Pause = true }))
	w.at(day(5, 2, 0))
	w.apply()
	w.at(day(6, 3, 0))
	w.apply(nightly(func(s *api.Schedule) { s.Cron = "0 4 * * *" }))
	w.settleAll()
	w.at(day(6, 4, 0))
	w.at(day(8, 1, 0))
	w.want("nightly", "01T02:00 skipped paused", "02T02:00 skipped stopped", "03T02:00 skipped refused", "04T02:00 submitted", "05T02:00 skipped paused", "06T04:00 submitted", "07T04:00 skipped missed")
	for _, who := range []dispatch.Caller{{Principal: "agent:x"}, {Principal: "ci:nightly"}, {Principal: "local:op", TokenValid: func() bool { return true }}} {
		_, runErr := w.k.Run(ctx, who, "nightly")
		_, pauseErr := w.k.Pause(ctx, who, "nightly")
		if api.CodeOf(runErr) != api.CodeDenied || api.CodeOf(pauseErr) != api.CodeDenied {
			t.Errorf("%s: run %v, pause %v", who.Principal, runErr, pauseErr)
		}
	}
}

// proves R-O10 (a slot that replaces another waits for its run, and cancels it)
func TestAReplacedSlotIsSubmittedFirst(t *testing.T) {
	w := newWorld(t, day(1, 0, 0), nightly(func(s *api.Schedule) { s.Overlap = api.OverlapCancel }))
	w.tick()
	w.refused = api.Errorf(api.CodeUnavailable, "busy")
	w.at(day(1, 2, 0))
	w.restart()
	w.at(day(2, 2, 0))
	w.refused = nil
	for i := range 4 {
		w.at(day(2, 2, i+1))
	}
	w.want("nightly", "01T02:00 submitted", "02T02:00 submitted")
	if w.runs["nightly-20261101t0200z"] != api.RunCancelled || w.runs["nightly-20261102t0200z"] != api.RunRunning {
		t.Errorf("runs %v", w.runs)
	}
}

// proves R-O10 (a submission that fails for long leaves a reason; one whose answer is
// lost has its run, also if the catalog has lost the schedule since)
func TestSubmissionsThatFail(t *testing.T) {
	w := newWorld(t, day(1, 0, 0), nightly(nil))
	w.tick()
	w.refused = api.Errorf(api.CodeUnavailable, "the disk is full")
	w.at(day(1, 2, 0))
	w.at(day(1, 2, 50))
	w.want("nightly", "01T02:00 fired")
	w.at(day(1, 3, 10))
	w.want("nightly", "01T02:00 skipped refused")
	w.refused, w.lose = nil, 1
	w.at(day(2, 2, 0))
	w.want("nightly", "01T02:00 skipped refused", "02T02:00 submitted")
	w.at(day(3, 1, 0))
	w.settleAll()
	w.refused = api.Errorf(api.CodeUnavailable, "killed")
	w.at(day(3, 2, 0))
	w.settle("nightly-20261103t0200z", api.RunRunning) // it was durable
	w.restart()
	w.apply()
	w.at(day(3, 2, 1))
	w.want("nightly", "01T02:00 skipped refused", "02T02:00 submitted", "03T02:00 submitted")

	// The verifier refuses a slot that the revision of the run does not give.
	w.apply(nightly(nil))
	w.at(day(4, 1, 0))
	w.settleAll()
	w.at(day(4, 2, 0))
	w.restart()
	w.apply(nightly(func(s *api.Schedule) { s.Cron = "0 5 * * *" }))
	w.refused = nil
	w.at(day(4, 2, 1))
	w.want("nightly", "01T02:00 skipped refused", "02T02:00 submitted", "03T02:00 submitted", "04T02:00 skipped refused")
}

// proves R-O10 (a request for now is a slot of its own)
func TestRunNow(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, day(1, 1, 59).Add(59*time.Second+time.Millisecond), nightly(nil))
	w.tick()
	op := dispatch.Caller{Principal: "local:op"}
	first, err := w.k.Run(ctx, op, "nightly")
	w.must(err)
	if _, err := w.k.Run(ctx, op, "nightly"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a second run while the first is open: %v", err)
	}
	w.settleAll()
	second, err := w.k.Run(ctx, op, "nightly")
	w.must(err)
	w.settleAll()
	w.at(day(1, 2, 0))
	w.want("nightly", "01T01:59:59 submitted", "01T02:00:01 submitted", "01T02:00 submitted")
	if first.RunID == second.RunID || first.By != "local:op" || !api.IsScheduleRun("nightly", second.RunID) {
		t.Errorf("%+v\n%+v", first, second)
	}
	if name, ok := w.k.Owner(ctx, second.RunID); !ok || name != "nightly" {
		t.Errorf("%s is of %s, %v", second.RunID, name, ok)
	}
	if _, ok := w.k.Owner(ctx, "nightly-7"); ok {
		t.Error("an ordinary run id is reserved")
	}
}

// A hundred requests at once follow the overlap rule: at most one run is open, each other
// request is refused or has its slot cancelled, and no two share a slot.
//
// proves R-O10
func TestRequestsThatRaceFollowTheOverlapRule(t *testing.T) {
	for overlap, want := range map[api.Overlap]struct{ least, most int }{
		api.OverlapSkip: {1, 1}, api.OverlapQueue: {1, 2}, api.OverlapCancel: {1, 100},
	} {
		t.Run(string(overlap), func(t *testing.T) {
			w := newWorld(t, day(1, 1, 0), nightly(func(s *api.Schedule) { s.Overlap = overlap }))
			w.tick()
			var all sync.WaitGroup
			var taken, refused atomic.Int64
			slots := make(chan time.Time, 100)
			for range 100 {
				all.Go(func() {
					switch s, err := w.k.Run(t.Context(), dispatch.Caller{Principal: "local:op"}, "nightly"); {
					case err == nil:
						taken.Add(1)
						slots <- s.Slot
					case api.CodeOf(err) == api.CodeConflict:
						refused.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			all.Wait()
			close(slots)
			for flying := 1; flying > 0; {
				w.tick()
				w.k.mu.Lock()
				flying = len(w.k.flights)
				w.k.mu.Unlock()
			}
			seen := map[time.Time]bool{}
			for at := range slots {
				if seen[at] {
					t.Errorf("slot %s was given twice", at)
				}
				seen[at] = true
			}
			open := 0
			w.mu.Lock()
			for _, state := range w.runs {
				if !state.Settled() {
					open++
				}
			}
			w.mu.Unlock()
			if n := int(taken.Load()); n < want.least || n > want.most || n+int(refused.Load()) != 100 || open != 1 {
				t.Errorf("%d taken, %d refused, %d runs are open", n, refused.Load(), open)
			}
		})
	}
}

// A keeper that sleeps until the next slot looks at what a person, another revision or the
// end of a run changes.
//
// proves R-O10
func TestASleepingKeeperMissesNothing(t *testing.T) {
	ctx := context.Background()
	def := nightly(func(s *api.Schedule) { s.Overlap = api.OverlapQueue })
	w := newWorld(t, day(1, 3, 0), def)
	asleep := func() bool {
		w.at(w.now.Add(time.Second))
		w.tick()
		w.k.mu.Lock()
		defer w.k.mu.Unlock()
		return w.k.sleeps(&batch{now: w.now, rev: w.snap})
	}
	if !asleep() {
		t.Fatal("the control: it does not sleep")
	}
	op := dispatch.Caller{Principal: "local:op"}
	for range 2 { // the second one waits for the first
		_, err := w.k.Run(ctx, op, "nightly")
		w.must(err)
		if w.now = w.now.Add(time.Second); w.k.queued.Load() && asleep() {
			t.Error("it sleeps while a slot waits")
		}
	}
	w.settleAll()
	w.tick()
	w.settleAll()
	if !asleep() {
		t.Error("it does not sleep after the last run")
	}
	w.apply(def, api.Schedule{Name: "hourly", Cron: "0 * * * *", Zone: "UTC"})
	w.tick()
	w.at(day(1, 4, 0))
	if len(w.order) != 3 || !strings.HasPrefix(string(w.order[2]), "hourly") {
		t.Errorf("runs %v", w.order)
	}
}

func TestJitterIsDeterministic(t *testing.T) {
	def := nightly(func(s *api.Schedule) { s.Jitter = api.Duration(10 * time.Minute) })
	w := newWorld(t, day(1, 0, 0), def)
	w.tick()
	due := day(1, 2, 0).Add(jitter(&def, day(1, 2, 0)))
	if j := jitter(&def, day(1, 2, 0)); j <= 0 || j >= 10*time.Minute || j == jitter(&def, day(2, 2, 0)) {
		t.Errorf("jitter %s", j)
	}
	w.at(due.Add(-time.Millisecond))
	w.want("nightly")
	w.restart()
	w.at(due)
	w.want("nightly", "01T02:00 submitted")
}

// accounted compares the slots of a log with the slots that the cron expression has.
// Nothing else is trusted: not the rows, nor the keeper.
func accounted(leaves []record.Entry, want []time.Time, runs map[api.RunID]api.RunState) error {
	seen := map[string]int{}
	i := 0
	for _, e := range leaves {
		d, ok := e.Detail.(record.ScheduleSlot)
		if !ok {
			continue
		}
		if e.Kind == record.KindScheduleFired {
			if seen[e.Run]++; seen[e.Run] > 1 {
				return fmt.Errorf("run %s fired twice", e.Run)
			}
			if _, ok := runs[api.RunID(e.Run)]; !ok {
				return fmt.Errorf("run %s fired and was not submitted", e.Run)
			}
		}
		for n := max(d.Count, 1); n > 0; n-- {
			if i == len(want) {
				return fmt.Errorf("slot %s is one more", d.Slot)
			}
			at := want[i].UTC().Format(time.RFC3339)
			if n == max(d.Count, 1) && at != d.Slot || n == 1 && d.Last != "" && at != d.Last {
				return fmt.Errorf("slot %s to %s of %d, want slot %s", d.Slot, d.Last, d.Count, at)
			}
			i++
		}
	}
	if i < len(want) {
		return fmt.Errorf("slot %s is lost", want[i])
	}
	return nil
}

func (w *world) entries() (list []record.Entry) {
	for _, kind := range []record.Kind{record.KindScheduleFired, record.KindScheduleSkipped} {
		for from := uint64(0); ; {
			page, err := w.ledger.List(context.Background(), audit.Query{From: from, Limit: 1000, Kind: kind})
			w.must(err)
			if len(page) == 0 {
				break
			}
			for _, c := range page {
				list = append(list, c.Entry)
				from = c.Seq + 1
			}
		}
	}
	return list
}

// proves R-O10 (years with both changes of daylight saving time, leap days, steps of the
// clock forwards and backwards, restarts and lost answers: each slot is in the log once,
// and each that fired has its run)
func TestYearsWithoutALostOrDoubledSlot(t *testing.T) {
	from := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	years := 1 // with a leap day
	if os.Getenv("BAILIWICK_SOAK") != "" {
		years = 8
	}
	for i, zone := range []string{"Europe/Rome", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Chatham"} {
		t.Run(strings.ReplaceAll(zone, "/", "-"), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 16)) //nolint:gosec // G404, G115: reproducible
			def := api.Schedule{Name: "s", Cron: "15,45 1-3 * * *", Zone: zone, CatchUp: api.CatchUpAll, CatchUpWithin: api.Duration(30 * time.Hour), Overlap: api.OverlapQueue, Jitter: api.Duration(20 * time.Minute)}
			w := newWorld(t, from, def)
			w.tick()
			now, furthest, end := from, from, from.AddDate(years, 0, 0)
			for now.Before(end) {
				switch r.IntN(40) {
				case 0:
					w.restart()
				case 1:
					now = now.Add(-time.Duration(r.IntN(72)) * time.Hour) // a step back
				case 2:
					now = now.Add(time.Duration(r.IntN(10*24)) * time.Hour) // a step forward, or an outage
				case 3:
					w.lose = r.IntN(3)
				default:
					now = now.Add(time.Duration(r.IntN(12*3600)) * time.Second)
				}
				if now.After(furthest) {
					furthest = now
				}
				w.at(now)
				if r.IntN(3) > 0 {
					w.settleAll()
				}
			}
			for range 200 {
				w.settleAll()
				now = now.Add(2 * time.Second)
				w.at(now)
			}
			if now.After(furthest) {
				furthest = now
			}
			s, err := cron.Parse(def.Cron, def.Zone) // compared with its own reference in internal/base/cron
			w.must(err)
			var want []time.Time
			for at := s.Next(from); !at.Add(jitter(&def, at)).After(furthest); at = s.Next(at) {
				want = append(want, at)
			}
			list := w.entries()
			slices.SortStableFunc(list, func(a, b record.Entry) int {
				return strings.Compare(a.Detail.(record.ScheduleSlot).Slot, b.Detail.(record.ScheduleSlot).Slot) //nolint:forcetypeassert // of these kinds
			})
			if err := accounted(list, want, w.runs); err != nil {
				t.Fatal(err)
			}
			if len(w.order) < len(want)/4 {
				t.Errorf("%d of %d slots have a run", len(w.order), len(want))
			}
			// The positive control: what is lost, doubled or not submitted is found.
			without := slices.Delete(slices.Clone(list), len(list)/2, len(list)/2+1)
			twice := slices.Insert(slices.Clone(list), len(list)/2, list[len(list)/2])
			if accounted(without, want, w.runs) == nil || accounted(twice, want, w.runs) == nil || accounted(list, want, nil) == nil {
				t.Error("a log with a lost or doubled slot passes")
			}
		})
	}
}
