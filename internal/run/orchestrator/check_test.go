package orchestrator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// unheard is how long a completion may stay unnoticed: two sweeps,
// after whatever was told of that dispatch last.
const unheard = 61 * time.Second

// check lets everything come to rest and then compares what the log says, what
// the engine says, what is stored and what runs.
func (m *machine) check(rt *rapid.T) {
	synctest.Wait()
	killed := false
	for m.killed() { // a task may kill it as it starts
		killed = true
		m.seen["kills"]++
		synctest.Wait()
	}
	m.read()
	wrong := slices.Concat(m.log.wrong, m.desk.complaints())
	m.log.wrong = nil
	if !killed {
		for _, fn := range m.calls {
			wrong = append(wrong, fn()...)
		}
	}
	m.calls = nil
	if err := m.o.Err(); err != nil {
		wrong = append(wrong, fmt.Sprintf("it stands still: %v", err))
	}
	if len(wrong) == 0 {
		wrong = slices.Concat(m.running(), m.idle(), m.stored(), m.described(rt), m.spent(), m.affordings(), m.slots())
	}
	if m.seen["steps"]%agreeEvery == 0 {
		if err := m.agrees(); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		rt.Fatalf("%s%s", m.story(), strings.Join(wrong, "\n")) // the differences last: a log may be cut
	}
}

// story is what there is, for who reads of a failure.
func (w *world) story() string {
	var b strings.Builder
	now := w.config.Now()
	for t := range w.log.each {
		if t.run.settled == nil {
			fmt.Fprintf(&b, "%s of %s, queue %s, paused %v, cancelled %v: %s attempt %d, dispatch %s, asks %v, given %v, until %s, locks %v, after %v\n", t.name(), t.run.by, t.run.queue, t.run.paused,
				t.run.cancelled, t.shown(w.log, now), t.attempt, t.dispatch, t.asks, t.given, clock(t.until), t.plan.Locks, upstream(t.plan))
		}
	}
	open := func(j *job) bool { r := w.log.runs[j.order.Run]; return r == nil || r.settled == nil }
	for _, j := range w.desk.sorted(open) {
		fmt.Fprintf(&b, "dispatch %s of %s/%s: %s attempt %d, cancelled by %q, untold since %s\n", j.d.ID, j.order.Run, j.order.Task, j.d.State, j.d.Attempt, j.d.CancelBy, clock(j.untold))
	}
	return b.String()
}

// ending reports whether nothing of a run is started any more.
func (r *replayRun) ending(now time.Time) bool {
	return r.cancelled || r.plan.Limits.Wall > 0 && !now.Before(r.at.Add(time.Duration(r.plan.Limits.Wall)))
}

// running compares what runs by the log with what does.
func (w *world) running() (wrong []string) {
	now := w.config.Now()
	object := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	seen := map[api.DispatchID]*replayTask{}
	for t := range w.log.each {
		if t.dispatch == "" {
			continue
		}
		seen[t.dispatch] = t
		j := w.desk.jobs[t.dispatch]
		silent := j != nil && !j.untold.IsZero() && j.untold.After(w.log.began) && (now.Sub(j.untold) <= unheard || now.Sub(j.heard) <= unheard)
		switch {
		case t.state == api.TaskRunning && j == nil:
			if tries := w.desk.tries[t.key()]; t.plan.Subagent == stuck && tries > 0 && (t.stopped() || t.run.ending(now)) && now.Sub(w.desk.tried[t.key()]) > 31*time.Second {
				object("task %s is cancelled, cannot be reached and runs", t.name())
			}
			if !w.desk.delayed(t) && !w.desk.affording(t) {
				object("task %s is started in the log and its dispatch was not submitted", t.name())
			}
		case t.state == api.TaskRunning && j.active() && j.fence != t.fence && !w.desk.delayed(t):
			object("task %s has fence %d and its worker %d", t.name(), t.fence, j.fence)
		case t.state == api.TaskRunning && !j.active() && !silent && !w.desk.delayed(t) && !w.desk.affording(t):
			object("task %s runs by the log, and its dispatch is %s", t.name(), j.d.State)
		case t.asks && !j.asks() && !silent && !t.given:
			object("task %s waits for an answer, and its dispatch is %s", t.name(), j.d.State)
		case t.asks && !j.asks() && !silent && (t.stopped() || t.run.ending(now)):
			object("task %s is cancelled and its dispatch is %s", t.name(), j.d.State)
		case t.state == api.TaskDone && j != nil && j.d.State != api.EventFinished:
			object("task %s is done, and its dispatch is %s", t.name(), j.d.State)
		case t.state.Settled() && j != nil && (j.active() || j.asks()):
			object("task %s is %s, and its dispatch is %s", t.name(), t.state, j.d.State)
		case j != nil && j.active() && (t.stopped() || t.run.ending(now)) && j.d.CancelBy == "":
			object("task %s was cancelled, and its worker has not heard of it", t.name())
		}
	}
	for id, j := range w.desk.jobs {
		if t := seen[id]; j.active() && (t == nil || t.state != api.TaskRunning) {
			object("dispatch %s of %s/%s runs, and no task does by the log", id, j.order.Run, j.order.Task)
		}
	}
	return wrong
}

// idle finds what could run and does not.
func (w *world) idle() (wrong []string) {
	now := w.config.Now()
	taken := map[api.Name]int{}
	var running, holders, ready []*replayTask
	backoffs := 0
	for t := range w.log.each {
		if t.holds() {
			holders = append(holders, t)
		}
		switch t.shown(w.log, now) {
		case api.TaskRunning:
			taken[t.run.queue]++
			running = append(running, t)
		case api.TaskReady:
			if !t.held(w.log) && !t.run.ending(now) && !t.stopped() {
				ready = append(ready, t)
			}
		case api.TaskWaiting:
			if !t.asks && t.plan.Approval == nil {
				backoffs++
			}
		case api.TaskPending, api.TaskGrowing, api.TaskDone, api.TaskFailed, api.TaskSkipped, api.TaskCancelled, api.TaskDenied:
		}
	}
	for _, t := range ready {
		if taken[t.run.queue] >= w.log.queues[t.run.queue].slots {
			continue
		}
		first := func(other *replayTask) bool {
			return other != t && clash(t.plan.Locks, other.plan.Locks) != "" && !other.since(w.log).After(t.since(w.log))
		}
		if !slices.ContainsFunc(holders, func(o *replayTask) bool { return clash(t.plan.Locks, o.plan.Locks) != "" }) && !slices.ContainsFunc(ready, first) {
			wrong = append(wrong, fmt.Sprintf("task %s could run since %s and does not", t.name(), clock(t.since(w.log))))
		}
	}
	if w.o.Busy() != (len(running) > 0 || backoffs > 0) {
		wrong = append(wrong, fmt.Sprintf("busy %v while %d tasks run and %d wait for their next attempt", w.o.Busy(), len(running), backoffs))
	}
	if len(ready) > 0 && len(holders) == 0 {
		wrong = append(wrong, fmt.Sprintf("task %s and %d others are ready and nothing runs", ready[0].name(), len(ready)-1))
	}
	for t := range w.log.each {
		if (t.run.ending(now) || t.stopped()) && t.run.settled == nil && !t.state.Settled() && t.state != api.TaskRunning && t.state != api.TaskGrowing && !t.asks {
			wrong = append(wrong, fmt.Sprintf("run %s is settled and task %s is %s", t.run.id, t.name(), t.state))
		}
	}
	return append(wrong, w.growing()...)
}

// growing finds what could grow, or end, and does not: what decides is in the results.
func (w *world) growing() (wrong []string) {
	now := w.config.Now()
	for t := range w.log.each {
		if t.run.settled != nil || t.run.ending(now) {
			continue
		}
		open := slices.ContainsFunc(t.children, func(k *replayTask) bool { return !k.state.Settled() })
		switch {
		case t.state == api.TaskPending && t.settledUps():
			if holds, fault := w.log.condition(t); !holds || fault || undispatched(&t.plan) {
				wrong = append(wrong, fmt.Sprintf("task %s depends on nothing that is open, its condition holds %v, and it is pending", t.name(), holds))
			}
		case t.state == api.TaskWaiting && t.plan.Approval != nil && (t.ask == nil || w.log.decided(t) != "" || !now.Before(t.ask.expires)):
			wrong = append(wrong, fmt.Sprintf("task %s waits for people, asked %+v, decided %q", t.name(), t.ask, w.log.decided(t)))
		case t.state == api.TaskGrowing && !open:
			wrong = append(wrong, fmt.Sprintf("task %s grows, and all that grew from it has ended", t.name()))
		}
	}
	return wrong
}

// stored compares what is in the database with what follows from the log.
func (w *world) stored() (wrong []string) {
	object := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	err := w.store.Read(context.Background(), func(v *store.View) error {
		var fence int
		if err := v.Get("SELECT coalesce((SELECT value FROM run_fence), 0)", nil, &fence); err != nil {
			return err
		}
		if uint64(fence) < w.log.fence {
			object("fence %d stored, %d in the log", fence, w.log.fence)
		}
		if err := w.storedTasks(v, object); err != nil {
			return err
		}
		return w.held(v, object)
	})
	if err != nil {
		object("%v", err)
	}
	return wrong
}

// agreeEvery is in how many steps the service's own check has its turn. What it finds
// remains, and the reference compares the rows of open runs in each step.
const agreeEvery = 32

// agrees compares the rows with the log as the service does: with the newest
// entries, and with all of them.
func (w *world) agrees() error {
	return w.store.Read(context.Background(), func(v *store.View) error {
		if err := orchestrator.CheckOpen(v, 100); err != nil {
			return err
		}
		for after := ""; ; {
			last, err := orchestrator.CheckSome(v, after, 3)
			if err != nil || last == "" {
				return err
			}
			after = last
		}
	})
}

func (w *world) storedTasks(v *store.View, object func(string, ...any)) error {
	rows := map[*replayTask]bool{}
	err := v.Each("SELECT id, task, t.state, attempt, dispatch, fence FROM run_task t JOIN run r ON t.run = r.seq WHERE settled IS NULL", nil, func(scan store.Scan) error {
		var i, attempt int
		var fence int64
		var id, state, d string
		if err := scan(&id, &i, &state, &attempt, &d, &fence); err != nil {
			return err
		}
		r := w.log.runs[api.RunID(id)]
		if r == nil || r.settled != nil {
			object("run %s is stored and not settled, and not by the log", id)
			return nil
		}
		t := r.tasks[r.plan.Tasks[i].ID]
		rows[t] = true
		if api.TaskState(state) != t.state || attempt != t.attempt && !t.taken || api.DispatchID(d) != t.dispatch || uint64(fence) != t.fence && !t.taken {
			object("task %s is stored as %s, attempt %d, dispatch %s, fence %d; the log says %s, %d, %s, %d", t.name(), state, attempt, d, fence, t.state, t.attempt, t.dispatch, t.fence)
		}
		return nil
	})
	for t := range w.log.each {
		if t.run.settled == nil && !rows[t] && t.state != api.TaskPending {
			object("task %s has no row and is %s", t.name(), t.state)
		}
	}
	return err
}

// held compares what is kept from being collected with what open runs may need.
func (w *world) held(v *store.View, object func(string, ...any)) error {
	holds := map[api.RunID]map[api.DispatchID]bool{}
	err := v.Each("SELECT run, id FROM dispatch_hold", nil, func(scan store.Scan) error {
		var run api.RunID
		var id api.DispatchID
		err := scan(&run, &id)
		if r := w.log.runs[run]; r == nil || r.settled != nil {
			object("dispatch %s is held for run %s, which is settled", id, run)
		}
		if holds[run] == nil {
			holds[run] = map[api.DispatchID]bool{}
		}
		holds[run][id] = true
		return err
	})
	for t := range w.log.each {
		if t.run.settled != nil {
			continue
		}
		for _, n := range t.plan.Needs {
			if from := t.run.tasks[n.From]; from.dispatch != "" && !holds[t.run.id][from.dispatch] {
				object("task %s needs something of dispatch %s, which is not held", t.name(), from.dispatch)
			}
		}
	}
	return err
}

// described compares what the engine says with what follows from the log.
func (m *machine) described(rt *rapid.T) (wrong []string) {
	for _, id := range slices.Sorted(maps.Keys(m.log.runs)) {
		r := m.log.runs[id]
		if r.settled == nil || !r.seen {
			wrong = append(wrong, m.describe(r)...)
		}
		if r.settled != nil && !r.seen {
			r.seen = true
			wrong = append(wrong, m.events(id, r)...)
		}
	}
	if m.seen["steps"]%32 == 0 {
		wrong = append(wrong, m.listed()...)
	}
	return wrong
}

func (w *world) describe(r *replayRun) (wrong []string) {
	object := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	now, ctx := w.config.Now(), context.Background()
	counts := map[api.TaskState]int{}
	for _, t := range r.tasks {
		counts[t.shown(w.log, now)]++
	}
	var run api.Run
	var tasks []api.RunTask
	page := 100
	if w.log.next%8 == 0 {
		page = 2
	}
	for after := ""; ; after = run.Next {
		var err error
		if run, err = w.o.Describe(ctx, r.by, r.id, after, page); err != nil {
			object("run %s is described: %v", r.id, err)
			return wrong
		}
		tasks = append(tasks, run.Tasks...)
		if run.Next == "" {
			break
		}
	}
	for s, n := range run.Counts {
		if n == 0 {
			delete(run.Counts, s)
		}
	}
	if want := r.state(w.log, now); run.State != want || !maps.Equal(run.Counts, counts) || run.Total != len(r.tasks) || run.Principal != r.by || run.Queue != r.queue {
		object("run %s is %s with %v by the engine, and %s with %v by the log", r.id, run.State, run.Counts, want, counts)
	}
	if len(tasks) != len(r.plan.Tasks) {
		object("run %s is described with %d tasks of %d", r.id, len(tasks), len(r.plan.Tasks))
		return wrong
	}
	for i, got := range tasks {
		t := r.tasks[r.plan.Tasks[i].ID]
		if got.Task != t.plan.ID || got.State != t.shown(w.log, now) || got.DispatchID != t.dispatch && (got.DispatchID != "" || got.Blocked == "" || !w.desk.waits(t)) || got.Attempt != t.attempt && !t.taken || got.Cause != t.cause ||
			got.TakenOver != t.taken || got.Asks != (t.asks && !t.given && got.CancelBy == "") || got.Attempts != max(1, t.plan.Retry.Attempts) ||
			t.state == api.TaskFailed && got.Reason != t.reason {
			object("task %s is %+v by the engine, and by the log %s, attempt %d, dispatch %s, cause %q, taken over %v, asks %v, reason %q", t.name(), got, t.shown(w.log, now), t.attempt, t.dispatch,
				t.cause, t.taken, t.asks, t.reason)
		}
	}
	return wrong
}

// state is that of the run at a time.
func (r *replayRun) state(m *replay, now time.Time) api.RunState {
	if r.settled != nil {
		return api.RunState(r.settled.State)
	}
	if r.paused || m.queues[r.queue].paused {
		return api.RunPaused
	}
	asks := false
	for _, t := range r.tasks {
		switch s := t.shown(m, now); {
		case s == api.TaskRunning || s == api.TaskReady || s == api.TaskWaiting && !t.asks && t.plan.Approval == nil:
			return api.RunRunning
		case s == api.TaskWaiting:
			asks = true
		}
	}
	if asks {
		return api.RunWaiting
	}
	return api.RunRunning
}

// listed compares the queues, the list of runs and the events of each.
func (w *world) listed() (wrong []string) {
	object := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	ctx := context.Background()
	queues, err := w.o.Queues(ctx)
	if err != nil || len(queues) != len(w.log.queues) {
		object("%d queues, want %d: %v", len(queues), len(w.log.queues), err)
	}
	for _, q := range queues {
		running, runs, affording := 0, 0, 0
		for t := range w.log.each {
			if t.run.queue == q.Name && t.state == api.TaskRunning {
				running++
				if w.desk.waits(t) {
					affording++
				}
			}
		}
		for _, r := range w.log.runs {
			if r.queue == q.Name && r.settled == nil {
				runs++
			}
		}
		if want := w.log.queues[q.Name]; q.Running > running || q.Running < running-affording || q.Runs != runs || q.Slots != want.slots || (q.PausedBy != "") != want.paused {
			object("queue %+v; by the log %d run of %d runs, paused %v", q, running, runs, want.paused)
		}
	}
	for _, p := range []api.Principal{ann, ben, root} {
		list, err := w.o.List(ctx, p, api.RunFilter{Limit: 1000})
		want := 0
		for _, r := range w.log.runs {
			if p == root || r.by == p {
				want++
			}
		}
		if err != nil || len(list) != want {
			object("%s is listed %d runs, want %d: %v", p, len(list), want, err)
		}
	}
	for id, r := range w.log.runs {
		if r.settled == nil {
			wrong = append(wrong, w.events(id, r)...)
		}
	}
	return wrong
}

// events compares what a watcher is told with the entries of the log.
func (w *world) events(id api.RunID, r *replayRun) (wrong []string) {
	ctx := context.Background()
	entries, err := w.ledger.List(ctx, audit.Query{Run: id, Limit: 1000})
	w.must(err)
	var events []api.RunEvent
	done := false
	for after := ""; !done; {
		page, err := w.o.Events(ctx, r.by, id, after, 0)
		if err != nil {
			return []string{fmt.Sprintf("events of run %s: %v", id, err)}
		}
		events = append(events, page.Events...)
		done = page.Done || len(page.Events) == 0
		if page.Done != (r.settled != nil) && len(page.Events) == 0 {
			return []string{fmt.Sprintf("the events of run %s end with done %v", id, page.Done)}
		}
		after = page.Next
	}
	if len(events) != len(entries) {
		return []string{fmt.Sprintf("run %s has %d events and %d entries", id, len(events), len(entries))}
	}
	for i, e := range events {
		if c := &entries[i]; e.Seq != c.Seq || e.Event != string(c.Entry.Kind) || string(e.Task) != c.Entry.Task {
			return []string{fmt.Sprintf("event %+v of run %s is not entry #%d", e, id, c.Seq)}
		}
	}
	return nil
}
