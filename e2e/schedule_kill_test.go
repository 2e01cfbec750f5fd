package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// scheduleTrial is a world whose service has failpoints and a clock of its schedules
// that the test steps. Its slots are at the full hours of UTC.
type scheduleTrial struct {
	*trial
	base time.Time // half past an hour: what the clock shows first
	now  time.Time // what it showed at the last step
}

func newScheduleTrial(t *testing.T, uid int) *scheduleTrial {
	t.Helper()
	dir, err := trialBin()
	must(t, err)
	k := &scheduleTrial{trial: &trial{world: prepared(t, uid), bin: dir, flags: []string{"--orchestrator"}, signed: map[uint64][]byte{}}}
	if k.unit != nil {
		k.unit.bin = dir
	}
	k.mkdir("state/" + failpoint.Folder)
	k.write("state/"+failpoint.Folder+"/"+failpoint.Record, "", 0o600)
	t.Cleanup(func() {
		k.stopAll()
		if t.Failed() {
			t.Logf("log of the services:\n%s", k.read("service.out"))
		}
	})
	k.base = time.Now().UTC().Truncate(time.Hour).Add(30 * time.Minute)
	k.now = k.base
	k.step(0)
	k.write("project/quick.yaml", "source: {name: repo}\ntasks:\n  - {id: a, subagent: sh, input: {do: 'echo x > a.txt'}}\n", 0o644)
	k.write("project/long.yaml", "source: {name: repo}\ntasks:\n  - {id: a, subagent: sh, input: {do: '"+strings.TrimSpace(awaitGate("open"))+"'}}\n", 0o644)
	return k
}

// step moves the clock of the schedules.
func (k *scheduleTrial) step(by time.Duration) {
	k.now = k.now.Add(by)
	name := "state/" + failpoint.Folder + "/" + failpoint.Ahead
	k.write(name+".new", time.Until(k.now).String(), 0o600)
	must(k.t, os.Rename(k.path(name+".new"), k.path(name))) // the service reads it at any time
}

// schedules puts a revision in force with these schedules, each the members after its
// name, and a grant for ci:nightly.
func (k *scheduleTrial) schedules(list ...string) {
	k.t.Helper()
	k.runManifest()
	k.replace(manifest, "version: 1\n", "version: 1\nproject: project\n")
	text := "ceiling: reversible}\n  - {principal: \"ci:nightly\", subagents: [sh], sources: [repo], targets: [local], ceiling: reversible}\n"
	if len(list) > 0 {
		text += "schedules:\n"
	}
	for _, s := range list {
		text += "  - {" + s + ", zone: UTC, principal: \"ci:nightly\"}\n"
	}
	k.replace(manifest, "ceiling: reversible}\n", text)
	k.apply()
}

// apply puts the manifest in force. It returns when a running service has noticed it.
func (k *scheduleTrial) apply() {
	k.t.Helper()
	revision := func() (number uint64, running bool) {
		d := k.try("status", "-o", "json")
		if d.status != 0 {
			return 0, false
		}
		var st api.ServiceStatus
		decode(k.t, d.stdout, &st)
		return st.Revision, true
	}
	before, running := revision()
	k.must("catalog", "apply", "--prune", "-f", k.path(manifest))
	for late := range polling(20 * time.Second) {
		if !running {
			break
		}
		if now, _ := revision(); now > before {
			return
		}
		if late {
			k.t.Fatalf("revision %d is still in force", before)
		}
	}
}

// admitNightly lets ci:nightly dispatch.
func (k *scheduleTrial) admitNightly() {
	k.t.Helper()
	k.up(func() {})
	k.must("principal", "add", "ci:nightly")
	k.must("ceiling", "set", "ci:nightly", "reversible")
}

// look has the service look at what is due now.
func (k *scheduleTrial) look(name string) {
	k.t.Helper()
	k.must("schedule", "resume", name)
}

// restarted kills the service and starts the next one.
func (k *scheduleTrial) restarted() {
	k.t.Helper()
	k.killService()
	k.up(func() {})
}

// slots are those of a schedule, oldest first.
func (k *scheduleTrial) slots(name string) (list []api.Slot) {
	k.t.Helper()
	must(k.t, k.insist(http.MethodGet, "/v1/operator/schedules/"+name+"/slots?limit=1000", nil, &list))
	slices.Reverse(list)
	return list
}

// history says what became of the slots of a schedule, oldest first, as hours after base.
func (k *scheduleTrial) history(name string) string {
	k.t.Helper()
	hour := func(at time.Time) string { return fmt.Sprintf("%+d ", int(at.Sub(k.base.Truncate(time.Hour)).Hours())) }
	var list []string
	for _, s := range k.slots(name) {
		text := hour(s.Slot)
		if s.Count > 1 {
			text += "to " + hour(s.Last)
		}
		text += string(s.State)
		if s.Reason != "" {
			text += " " + s.Reason
		}
		if s.RunState != "" {
			text += " " + string(s.RunState)
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// wantHistory waits until the history of a schedule is want.
func (k *scheduleTrial) wantHistory(name, want string) {
	k.t.Helper()
	k.await(name, want, func(got string) bool { return got == want })
}

// wantNewest waits until the history of a schedule ends with want.
func (k *scheduleTrial) wantNewest(name, want string) {
	k.t.Helper()
	k.await(name, want, func(got string) bool { return strings.HasSuffix(got, want) })
}

func (k *scheduleTrial) await(name, want string, is func(string) bool) {
	k.t.Helper()
	got := ""
	for range polling(30 * time.Second) {
		if got = k.history(name); is(got) {
			return
		}
	}
	k.t.Errorf("%s: the slots are\n%s\nwant\n%s", name, got, want)
}

// idle waits until no slot is open and no run of a schedule either.
func (k *scheduleTrial) idle(name string) {
	k.t.Helper()
	for range polling(time.Minute) {
		if !slices.ContainsFunc(k.slots(name), func(s api.Slot) bool {
			return s.State == api.SlotWaiting || s.State == api.SlotFired || s.State == api.SlotSubmitted && !s.RunState.Settled()
		}) {
			return
		}
	}
	k.t.Errorf("%s does not come to rest: %s", name, k.history(name))
}

// slotFate is what a log says about a slot.
type slotFate struct{ fired, skipped, submitted, started int }

// fates reads from a log what became of each slot of a schedule. It knows the schedule's
// interval, and nothing of the code that decides.
func fates(list []entry, schedule string, interval time.Duration) (map[time.Time]slotFate, error) {
	all := map[time.Time]slotFate{}
	change := func(at time.Time, do func(*slotFate)) {
		f := all[at]
		do(&f)
		all[at] = f
	}
	runs := map[string]time.Time{}
	for _, e := range list {
		var doc struct {
			Detail struct {
				Schedule, Reason string
				Slot, Last       time.Time
			}
		}
		switch e.Kind {
		case "schedule.fired", "schedule.skipped", "run.submitted":
			if err := json.Unmarshal([]byte(e.leaf), &doc); err != nil {
				return nil, err
			}
		}
		d := doc.Detail
		switch {
		case e.Kind == "task.started" && !runs[e.Run].IsZero():
			change(runs[e.Run], func(f *slotFate) { f.started++ })
		case d.Schedule != schedule:
		case e.Kind == "schedule.fired":
			runs[e.Run] = d.Slot
			change(d.Slot, func(f *slotFate) { f.fired++ })
		case e.Kind == "run.submitted":
			if want := schedule + "-" + d.Slot.Format("20060102t1504z"); e.Run != want {
				return nil, fmt.Errorf("slot %s has run %s, want %s", d.Slot, e.Run, want)
			}
			change(d.Slot, func(f *slotFate) { f.submitted++ })
		case d.Reason == "":
			return nil, fmt.Errorf("slot %s is skipped without a reason", d.Slot)
		default:
			for at := d.Slot; at.Equal(d.Slot) || !at.After(d.Last); at = at.Add(interval) {
				change(at, func(f *slotFate) { f.skipped++ })
			}
		}
	}
	return all, nil
}

// unaccounted returns what is wrong with the slots of a schedule from first to last.
func unaccounted(list []entry, schedule string, first, last time.Time, interval time.Duration) (wrong []string) {
	all, err := fates(list, schedule, interval)
	if err != nil {
		return []string{err.Error()}
	}
	for at := first; !at.After(last); at = at.Add(interval) {
		f := all[at]
		if f != (slotFate{fired: 1, submitted: 1, started: 1}) && f != (slotFate{skipped: 1}) {
			wrong = append(wrong, fmt.Sprintf("slot %s: %+v", at.Format(time.RFC3339), f))
		}
		delete(all, at)
	}
	for at := range all {
		wrong = append(wrong, fmt.Sprintf("slot %s is not one of the schedule", at.Format(time.RFC3339)))
	}
	return wrong
}

// A service that is killed at each point of a schedule, and at random instants, while
// slots are due and the clock steps both ways, gives each slot one run or one reason.
//
// proves R-O10, R-O6
func TestKillsLoseAndDoubleNoSlot(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		k := newScheduleTrial(t, uid)
		k.schedules(`name: hourly, cron: "0 * * * *", plan: quick.yaml, catchUp: all, catchUpWithin: 72h, overlap: queue`)
		k.admitNightly()
		furthest := k.now
		killed := map[failpoint.Name]bool{}
		round := func(at failpoint.Name, by, after time.Duration) {
			t.Helper()
			k.killService()
			if k.step(by); k.now.After(furthest) {
				furthest = k.now
			}
			if at != "" {
				k.arm(string(at) + " 1 kill")
				from := int64(len(k.read("state/" + failpoint.Folder + "/" + failpoint.Record)))
				if k.start(func() {}) {
					<-k.current().ended
				}
				hits, _ := k.hits(from)
				killed[at] = slices.ContainsFunc(hits, func(h hit) bool { return h.name == at && h.action == failpoint.Kill })
				k.arm()
			} else if k.start(func() {}) {
				time.Sleep(after) // varies the moment of the kill
				k.killService()
			}
			k.up(func() {})
		}
		points := []failpoint.Name{failpoint.ScheduleCommit, failpoint.ScheduleCommitted, failpoint.ScheduleSubmit, failpoint.ScheduleSubmitted, failpoint.RunSubmitCommit, failpoint.RunSubmitCommitted}
		for _, at := range points {
			round(at, time.Hour, 0)
			k.idle("hourly")
		}
		steps := []time.Duration{2 * time.Hour, -3 * time.Hour, 90 * time.Minute, 4 * time.Hour, -time.Minute, time.Hour}
		for i, by := range steps {
			round("", by, time.Duration(i*13)*time.Millisecond)
		}
		k.step(furthest.Sub(k.now))
		k.look("hourly")
		k.idle("hourly")

		if len(killed) != len(points) || slices.Contains(slices.Collect(maps.Values(killed)), false) {
			t.Errorf("killed at %v", killed)
		}
		list := k.log(-1)
		first, last := k.base.Truncate(time.Hour).Add(time.Hour), furthest.Truncate(time.Hour)
		if wrong := unaccounted(list, "hourly", first, last, time.Hour); wrong != nil {
			t.Errorf("%s", strings.Join(wrong, "\n"))
		}
		// The positive control: a log with one entry less, or one more, is found.
		for _, kind := range []string{"schedule.fired", "run.submitted", "task.started"} {
			i := slices.IndexFunc(list, func(e entry) bool { return e.Kind == kind })
			less, more := slices.Delete(slices.Clone(list), i, i+1), slices.Insert(slices.Clone(list), i, list[i])
			if unaccounted(less, "hourly", first, last, time.Hour) == nil || unaccounted(more, "hourly", first, last, time.Hour) == nil {
				t.Errorf("a log with a lost or doubled %s passes", kind)
			}
		}
	})
}

// After hours without a service catchUp decides: nothing, the last slot, or all of the
// newest hours, one after the other. A clock that is set back repeats nothing.
//
// proves R-O10
func TestSchedulesAfterHoursAsleep(t *testing.T) {
	t.Parallel()
	k := newScheduleTrial(t, 0)
	const often = `cron: "0 * * * *", plan: quick.yaml, `
	k.schedules(`name: none, `+often+`overlap: skip`, `name: last, `+often+`catchUp: last, catchUpWithin: 3h`, `name: all, `+often+`catchUp: all, catchUpWithin: 3h, overlap: queue`, `name: late, `+often+`catchUp: last, catchUpWithin: 20m`)
	k.admitNightly()
	k.killService()
	k.step(6 * time.Hour)
	k.up(func() {})
	want := map[string]string{
		"none": "+1 to +6 skipped missed", "last": "+1 to +5 skipped missed; +6 submitted done",
		"all": "+1 to +3 skipped missed; +4 submitted done; +5 submitted done; +6 submitted done", "late": "+1 to +6 skipped missed",
	}
	for name, history := range want {
		k.wantHistory(name, history)
	}
	k.step(-5 * time.Hour)
	k.restarted()
	k.look("all")
	for name, history := range want {
		k.wantHistory(name, history)
	}
	if out := k.must("schedule", "show", "all"); !strings.Contains(out, "the clock was ahead") {
		t.Errorf("the clock is five hours behind the last slot, and the schedule says\n%s", out)
	}
	k.step(6*time.Hour - time.Minute)
	k.look("all")
	k.wantHistory("none", want["none"]+"; +7 skipped missed") // the clock jumped over it
}

// Real runs that overlap: skip, queue and cancel. A revision that changes or removes a
// schedule while a slot waits, or while a run is open; a pause and a stop over a kill.
//
// proves R-O10
func TestSchedulesWithOpenRuns(t *testing.T) {
	t.Parallel()
	k := newScheduleTrial(t, ordinaryUID)
	defs := func(cron, more string) []string {
		var list []string
		for _, overlap := range []string{"skip", "queue", "cancel"} {
			list = append(list, "name: "+overlap+", overlap: "+overlap+", plan: long.yaml, cron: \""+cron+"\""+more)
		}
		return list
	}
	k.schedules(defs("0 * * * *", "")...)
	k.admitNightly()
	hour := func() {
		k.step(time.Hour)
		k.look("skip")
	}
	k.step(-30*time.Minute + 5*time.Second)
	hour()
	for _, name := range []string{"skip", "queue", "cancel"} {
		k.wantHistory(name, "+1 submitted running")
	}
	hour()
	k.restarted()
	hour()
	k.wantHistory("skip", "+1 submitted running; +2 skipped overlap; +3 skipped overlap")
	k.wantHistory("queue", "+1 submitted running; +2 waiting; +3 skipped overlap")
	k.wantHistory("cancel", "+1 submitted cancelled; +2 submitted cancelled; +3 submitted running")

	// Another plan or overlap leaves what waits; other times do not, and open runs go to their end.
	k.schedules(defs("0 * * * *", ", description: other")...)
	k.look("queue")
	k.wantHistory("queue", "+1 submitted running; +2 waiting; +3 skipped overlap")
	k.schedules(defs("0 0-23 * * *", "")...)
	k.look("queue")
	k.wantHistory("queue", "+1 submitted running; +2 skipped changed; +3 skipped overlap")
	k.schedules(defs("0 0-23 * * *", "")[:2]...)
	k.look("queue")
	k.refused(1, []string{"no such schedule"}, "schedule", "show", "cancel")
	k.open("open")
	k.idle("queue")
	k.wantHistory("queue", "+1 submitted done; +2 skipped changed; +3 skipped overlap")
	k.wantHistory("cancel", "+1 submitted cancelled; +2 submitted cancelled; +3 submitted done")

	// A stop and a pause hold over a kill, and the history says which.
	k.must("stop", "--schedule", "queue")
	k.must("schedule", "pause", "skip")
	k.restarted()
	k.step(time.Hour)
	k.must("schedule", "pause", "skip")
	k.wantHistory("queue", "+1 submitted done; +2 skipped changed; +3 skipped overlap; +4 skipped stopped")
	k.wantHistory("skip", "+1 submitted done; +2 skipped overlap; +3 skipped overlap; +4 skipped paused")
	k.must("stop", "lift", "s-1")
	k.must("schedule", "resume", "skip")
	hour()
	for _, name := range []string{"skip", "queue"} {
		k.wantNewest(name, "; +5 submitted done")
	}

	// What the principal has lost is the reason of the next slot.
	for _, change := range []struct{ what, want string }{{"ceiling", "ceiling"}, {"grant", "ci:nightly"}, {"source", "repo"}} {
		switch change.what {
		case "ceiling":
			k.must("ceiling", "set", "ci:nightly", "observe")
		case "grant":
			k.must("ceiling", "set", "ci:nightly", "reversible")
			k.replace(manifest, "\"ci:nightly\", subagents", "\"ci:other\", subagents")
			k.apply()
		case "source":
			k.schedules(defs("0 0-23 * * *", "")[:2]...)
			must(t, os.Rename(k.path("repo"), k.path("gone")))
		}
		hour()
		k.wantRefused(change.want)
	}
	must(t, os.Rename(k.path("gone"), k.path("repo")))
	hour()
	k.wantNewest("skip", "; +9 submitted done")
}

// wantRefused fails the test unless the newest slot of skip was refused, and says why.
func (k *scheduleTrial) wantRefused(words string) {
	k.t.Helper()
	var s api.Slot
	for late := range polling(30 * time.Second) {
		if s.Reason == api.SkipRefused && strings.Contains(s.Message, words) {
			break
		}
		list := k.slots("skip")
		if s = list[len(list)-1]; late {
			k.t.Fatalf("%s: the newest slot is %+v", words, s)
		}
	}
}
