package orchestrator_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

var stepsFlag = flag.Int("steps", 5000/size, "how many steps TestEngineMatchesTheReferenceModel takes at least")

// lifeSteps is how many steps a world has on average.
const lifeSteps = 80

// What people and workers can do, the clock and the plug, in any order, against
// a reference that knows nothing but the log, a desk that knows what runs and what that
// spends of the budgets, and a calendar that knows what becomes of each slot of a schedule.
// A failure is made as small as it can be, and printed step by step with the
// seed that brings it back.
//
// proves R-O2, R-O3, R-O4, R-O5, R-O6, R-O7, R-O8, R-O9, R-O10, R-O11
func TestEngineMatchesTheReferenceModel(t *testing.T) {
	seen := map[string]int{}
	setFlag(t, "rapid.steps", fmt.Sprint(lifeSteps))
	setFlag(t, "rapid.checks", "5")
	for seen["steps"] < *stepsFlag {
		before := seen["steps"]
		rapid.Check(t, func(rt *rapid.T) {
			root := scratch(t)
			defer func() { _ = os.RemoveAll(root) }() // now, and not when a million steps are over
			cryptotest.SetGlobalRandom(t, rapid.Uint64().Draw(rt, "random"))
			rapid.SyncTest(rt, func(rt *rapid.T) { live(rt, root, seen) })
		})
		if flag.Lookup("rapid.seed").Value.String() != "0" || seen["steps"] == before {
			break
		}
	}
	t.Logf("%d steps in %d lives: %v", seen["steps"], seen["lives"], seen)
}

func setFlag(t *testing.T, name, value string) {
	t.Helper()
	f := flag.Lookup(name)
	old := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(old) })
}

// machine is a world under random steps.
type machine struct {
	*world
	seen  map[string]int
	plans []api.Plan        // that were submitted and perhaps taken
	late  []api.Dispatch    // ends that will be told of
	adds  int               // how often tasks were appended
	calls []func() []string // what the answer to a call has to be like, once it is known whether the service outlived it
}

func live(rt *rapid.T, root string, seen map[string]int) {
	m := &machine{seen: seen}
	// Budgets per day are new again in the first hours of a life. Nothing is awake yet.
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Hour, 20 * time.Hour, 22 * time.Hour, 23*time.Hour + 50*time.Minute}).Draw(rt, "hour"))
	m.world = newWorldWith(rt, root, orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 3, narrow: 1}, Seed: 42}, true, drawCalendar(rt, time.Now().UTC()))
	m.withBudgets(rt)
	seen["lives"]++
	rt.Cleanup(func() { // also when it fails: nothing may be left in the bubble
		_ = m.stop()
		for kind, n := range m.log.kinds {
			seen[string(kind)] += n
		}
		seen["refused by a budget"] += m.desk.count("spent")
	})
	actions := map[string]func(*rapid.T){
		"": m.check, "submit again": m.submitAgain, "retry": m.retry, "append": m.appendTasks,
		"cancel": m.cancel, "pause": m.pause, "pause queue": m.pauseQueue,
		"tell": m.tellLate, "open": m.openGates,
		"kill": m.killNow, "kill in": m.killLater, "restart": m.restartNow, "fail": m.fail,
	}
	for i := range 24 {
		actions[fmt.Sprint("end", i)] = m.endOne
	}
	for i := range 4 {
		actions[fmt.Sprint("answer", i)], actions[fmt.Sprint("time", i)], actions[fmt.Sprint("submit", i)] = m.answer, m.pass, m.submit
	}
	for i := range 3 {
		actions[fmt.Sprint("tell of the past", i)], actions[fmt.Sprint("give up", i)] = m.tellPast, m.giveUp
	}
	for i := range 3 {
		actions[fmt.Sprint("vote", i)] = m.vote
	}
	actions["end many"], actions["pause schedule"], actions["time until a slot"] = m.endMany, m.pauseSchedule, m.passSlot
	rt.Repeat(actions)
	m.drain(rt)
}

// begin begins a step: what happens in it has an instant of its own.
func (m *machine) begin(name string) {
	time.Sleep(time.Millisecond)
	m.log.step()
	m.seen["steps"]++
	m.seen["step: "+name]++
}

func (m *machine) principal(rt *rapid.T) api.Principal {
	return rapid.SampledFrom([]api.Principal{ann, ben}).Draw(rt, "principal")
}

// plan draws a plan.
func (m *machine) plan(rt *rapid.T) api.Plan {
	p := api.Plan{ID: api.RunID(fmt.Sprintf("run-%d", len(m.plans)))}
	if rapid.IntRange(0, 3).Draw(rt, "queue") == 0 {
		p.Queue = narrow
	}
	if rapid.IntRange(0, 7).Draw(rt, "wall") == 0 {
		p.Limits.Wall = api.Duration(rapid.SampledFrom([]time.Duration{5 * time.Second, time.Minute, time.Hour}).Draw(rt, "limit"))
	}
	if rapid.IntRange(0, 2).Draw(rt, "budgeted") == 0 {
		p.Budget = drawBudget(rt, "")
	}
	n := rapid.IntRange(1, 7).Draw(rt, "tasks")
	for i := range n {
		p.Tasks = append(p.Tasks, m.task(rt, i))
		constructs(rt, p.Tasks)
	}
	if rapid.Bool().Draw(rt, "mixed") {
		p.Tasks = rapid.Permutation(p.Tasks).Draw(rt, "order")
	}
	return p
}

func (m *machine) task(rt *rapid.T, i int) api.PlanTask {
	t := api.PlanTask{ID: api.TaskID(fmt.Sprintf("t%d", i)), Subagent: work, Priority: rapid.IntRange(0, 2).Draw(rt, "priority")}
	for k := range rapid.IntRange(0, min(i, 2)).Draw(rt, "ups") {
		up := api.TaskID(fmt.Sprintf("t%d", rapid.IntRange(0, i-1).Draw(rt, "up")))
		switch {
		case slices.Contains(upstream(t), up):
		case rapid.Bool().Draw(rt, "needs"):
			if t.Needs == nil {
				t.Needs = map[api.Name]api.Need{}
			}
			t.Needs[api.Name(fmt.Sprintf("in%d", k))] = api.Need{From: up, Patch: true}
		default:
			t.DependsOn = append(t.DependsOn, up)
		}
	}
	for range rapid.IntRange(0, 2).Draw(rt, "locks") {
		lock := api.Lock{Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key"), Shared: rapid.Bool().Draw(rt, "shared")}
		if !slices.ContainsFunc(t.Locks, func(k api.Lock) bool { return k.Key == lock.Key }) {
			t.Locks = append(t.Locks, lock)
		}
	}
	if rapid.Bool().Draw(rt, "retries") {
		t.Retry.Attempts = rapid.IntRange(2, 4).Draw(rt, "attempts")
		t.Retry.Backoff = rapid.SampledFrom([]api.Backoff{
			{},
			{Min: api.Duration(time.Second), Max: api.Duration(3 * time.Second)},
			{Min: api.Duration(time.Millisecond), Max: api.Duration(time.Millisecond)},
			{Min: api.Duration(10 * time.Second), Max: api.Duration(time.Hour)},
			{Min: api.Duration(time.Hour), Max: api.Duration(time.Hour)},
		}).Draw(rt, "backoff")
		if rapid.Bool().Draw(rt, "on") {
			t.Retry.On = []api.Reason{api.ReasonVerify, api.ReasonAgent}
		}
	}
	kinds := []api.Name{work, work, work, work, work, work, work, work, work, work, work, work, work, work, work, work, work, work, quick, denied, absent, slow, busy, stuck, fickle, before, after}
	t.Subagent = rapid.SampledFrom(kinds).Draw(rt, "subagent")
	return t
}

// unsettled counts the runs that are not settled, or those of people.
func (m *machine) unsettled(people bool) (n int) {
	for _, r := range m.log.runs {
		if r.settled == nil && (!people || r.by != nightly) {
			n++
		}
	}
	return n
}

// settledFirst reports whether a timer that was due at the instant of this step may have
// settled the run before the call.
func (m *machine) settledFirst(r *replayRun) bool {
	return r.settled != nil && r.ended.Equal(m.config.Now())
}

func (m *machine) submit(rt *rapid.T) {
	if m.unsettled(true) >= 6 {
		rt.Skip()
	}
	p := m.plan(rt)
	by := as(m.principal(rt))
	if rapid.IntRange(0, 3).Draw(rt, "token") == 0 {
		by.TokenValid = func() bool { return true }
	}
	forbidden := rapid.IntRange(0, 9).Draw(rt, "forbidden") == 0
	if forbidden {
		forbid(&p.Tasks[len(p.Tasks)-1])
	}
	m.begin("submit")
	m.plans = append(m.plans, p)
	r, err := m.offer(by, p)
	m.expect(func() []string {
		made := m.log.runs[p.ID]
		switch {
		case forbidden && (api.CodeOf(err) != api.CodeDenied || made != nil):
			return []string{fmt.Sprintf("a plan with a task that may not run: %v", err)}
		case !forbidden && (err != nil || r.RunID != p.ID || r.Existing || made == nil || made.by != by.Principal):
			return []string{fmt.Sprintf("submitted %s as %+v: %v", p.ID, r, err)}
		}
		return nil
	})
}

// expect is heeded in the step's check, if the service was not killed meanwhile:
// then the answer was lost.
func (m *machine) expect(fn func() []string) { m.calls = append(m.calls, fn) }

// submitAgain hands in what is there: the same plan by the same principal is the
// same run.
func (m *machine) submitAgain(rt *rapid.T) {
	if len(m.plans) == 0 {
		rt.Skip()
	}
	p := rapid.SampledFrom(m.plans).Draw(rt, "plan")
	made := m.log.runs[p.ID]
	if made == nil {
		rt.Skip()
	}
	by := m.principal(rt)
	other := rapid.Bool().Draw(rt, "other")
	if other {
		p.Limits.Wall += api.Duration(time.Hour)
	}
	m.begin("submit again")
	runs := len(m.log.runs)
	r, err := m.offer(as(by), p)
	m.expect(func() []string {
		switch {
		case len(m.log.runs) != runs:
			return []string{"there is another run"}
		case !other && by == made.by && (err != nil || r.RunID != p.ID || !r.Existing):
			return []string{fmt.Sprintf("the same plan again: %v", err)}
		case (other || by != made.by) && api.CodeOf(err) != api.CodeConflict:
			return []string{fmt.Sprintf("another plan under id %s: %v", p.ID, err)}
		}
		return nil
	})
}

func (m *machine) retry(rt *rapid.T) {
	var settled []api.RunID
	for id, r := range m.log.runs {
		if r.settled != nil {
			settled = append(settled, id)
		}
	}
	if len(settled) == 0 || m.unsettled(true) >= 6 {
		rt.Skip()
	}
	slices.Sort(settled)
	old := m.log.runs[rapid.SampledFrom(settled).Draw(rt, "run")]
	by := rapid.SampledFrom([]api.Principal{old.by, old.by, root, ann}).Draw(rt, "by")
	m.begin("retry")
	p := old.plan
	p.ID = api.RunID(fmt.Sprintf("run-%d", len(m.plans)))
	req := api.RunRetry{RunID: p.ID}
	all := p.Tasks
	p.Tasks = slices.Clone(all[:old.declared])
	for i := range all {
		switch change := rapid.IntRange(0, 9).Draw(rt, "change"); {
		case change == 0:
			req.From = append(req.From, all[i].ID)
		case change == 1 && i < len(p.Tasks) && p.Tasks[i].Approval == nil:
			p.Tasks[i].Input = json.RawMessage(fmt.Sprintf(`{"again":%d}`, len(m.plans)))
			if req.Inputs == nil {
				req.Inputs = map[api.TaskID]json.RawMessage{}
			}
			req.Inputs[p.Tasks[i].ID] = p.Tasks[i].Input
		}
	}
	m.plans = append(m.plans, p)
	m.remember(p)
	_, err := m.o.Retry(context.Background(), as(by), old.id, req)
	m.expect(func() []string {
		if made := m.log.runs[p.ID]; (err == nil) != (made != nil) || made != nil && (made.retryOf != old.id) {
			return []string{fmt.Sprintf("run %s is retried by %s: %v", old.id, by, err)}
		}
		return nil
	})
}

// pick draws a run that is not settled.
func (m *machine) pick(rt *rapid.T) *replayRun {
	var open []api.RunID
	for id, r := range m.log.runs {
		if r.settled == nil {
			open = append(open, id)
		}
	}
	if len(open) == 0 {
		rt.Skip()
	}
	slices.Sort(open)
	return m.log.runs[rapid.SampledFrom(open).Draw(rt, "run")]
}

// steer draws who does something to a run, and whether they may.
func (m *machine) steer(rt *rapid.T, r *replayRun) (dispatch.Caller, bool) {
	c := as(rapid.SampledFrom([]api.Principal{r.by, r.by, r.by, root, ann, ben}).Draw(rt, "by"))
	if rapid.IntRange(0, 9).Draw(rt, "token") == 0 {
		c.TokenValid = func() bool { return true }
	}
	return c, c.TokenValid == nil && (c.Principal == r.by || c.Principal == root)
}

// refused is what a call has to answer to who may not.
func refused(may bool, what string, err error) []string {
	switch api.CodeOf(err) {
	case api.CodeDenied, api.CodeNotFound:
		if !may {
			return nil
		}
	default:
		if !may {
			return []string{fmt.Sprintf("%s by who may not: %v", what, err)}
		}
	}
	return nil
}

func (m *machine) cancel(rt *rapid.T) {
	r := m.pick(rt)
	by, may := m.steer(rt, r)
	req := api.RunCancel{Reason: "enough"}
	if rapid.IntRange(0, 4).Draw(rt, "whole") > 0 {
		req.Task = m.any(rt, r).plan.ID
	}
	m.begin("cancel")
	_, err := m.o.Cancel(context.Background(), by, r.id, req)
	m.expect(func() []string { return refused(may, "cancel", err) })
}

// any draws a task by its state first, so that the states that few tasks are in,
// and not for long, are not left out.
func (m *machine) any(rt *rapid.T, r *replayRun) *replayTask {
	states := map[string][]*replayTask{}
	for _, p := range r.plan.Tasks {
		t := r.tasks[p.ID]
		state := string(t.shown(m.log, time.Now()))
		if t.asks {
			state = "asks"
		}
		states[state] = append(states[state], t)
	}
	return rapid.SampledFrom(states[rapid.SampledFrom(slices.Sorted(maps.Keys(states))).Draw(rt, "state")]).Draw(rt, "task")
}

func (m *machine) pause(rt *rapid.T) {
	r := m.pick(rt)
	by, may := m.steer(rt, r)
	m.begin("pause")
	was := r.paused
	call := m.o.Pause
	if was {
		call = m.o.Resume
	}
	_, err := call(context.Background(), by, r.id)
	m.expect(func() []string {
		if now := m.log.runs[r.id]; may && (err != nil || now.paused == was && !m.settledFirst(r)) || !may && now.paused != was {
			return []string{fmt.Sprintf("run %s, paused %v, is paused or resumed: %v", r.id, was, err)}
		}
		return refused(may, "pause", err)
	})
}

func (m *machine) pauseQueue(rt *rapid.T) {
	name := rapid.SampledFrom([]api.Name{api.DefaultQueue, narrow}).Draw(rt, "queue")
	by := rapid.SampledFrom([]api.Principal{root, root, root, ann}).Draw(rt, "by")
	m.begin("pause queue")
	q := m.log.queues[name]
	was := q.paused
	call := m.o.PauseQueue
	if was {
		call = m.o.ResumeQueue
	}
	_, err := call(context.Background(), as(by), name)
	m.expect(func() []string {
		if may := by == root; (err == nil) != may || (q.paused == was) == may {
			return []string{fmt.Sprintf("queue %s, paused %v, is paused or resumed by %s: %v", name, was, by, err)}
		}
		return nil
	})
}

func (m *machine) answer(rt *rapid.T) {
	var list, given []*replayTask
	for t := range m.log.each {
		switch {
		case t.asks && t.given:
			given = append(given, t)
		case t.asks:
			list = append(list, t)
		}
	}
	if len(list) == 0 {
		rt.Skip() // before anything is drawn, or the step counts as one that failed to be one
	}
	if len(given) > 0 && rapid.IntRange(0, 5).Draw(rt, "again") == 0 {
		list = given
	}
	t := rapid.SampledFrom(list).Draw(rt, "task")
	by, may := m.steer(rt, t.run)
	req := api.RunAnswer{Task: t.plan.ID, Text: rapid.SampledFrom([]string{"yes", "no"}).Draw(rt, "text")}
	now := m.desk.attempt(t.dispatch)
	req.Attempt = rapid.SampledFrom([]int{0, 0, now, now, now, now + 1, now - 1}).Draw(rt, "attempt")
	m.begin("answer")
	was, cancelled, asks := t.given, t.run.ending(time.Now()) || t.stopAsk, m.desk.asking(t.dispatch)
	_, err := m.o.Answer(context.Background(), by, t.run.id, req)
	m.expect(func() []string {
		if may && req.Attempt != 0 && req.Attempt != now && api.CodeOf(err) != api.CodeConflict {
			return []string{fmt.Sprintf("an answer to attempt %d of task %s, whose attempt %d asks: %v", req.Attempt, t.name(), now, err)}
		}
		if may && (req.Attempt == 0 || req.Attempt == now) && !was && !cancelled && asks && err != nil {
			return []string{fmt.Sprintf("task %s is answered: %v", t.name(), err)}
		}
		return refused(may, "answer", err)
	})
}

// giveUp expires a question, or cancels it.
func (m *machine) giveUp(rt *rapid.T) {
	list := m.desk.sorted((*job).asks)
	if len(list) == 0 {
		rt.Skip()
	}
	j := rapid.SampledFrom(list).Draw(rt, "dispatch")
	told, stopped := rapid.Bool().Draw(rt, "told"), rapid.Bool().Draw(rt, "stopped")
	m.begin("give up")
	if stopped { // by an emergency stop
		m.desk.stop(j)
		m.desk.end(j, api.EventCancelled, "", told)
		return
	}
	m.desk.end(j, api.EventFailed, api.ReasonTimeout, told)
}

// endOne ends an attempt.
func (m *machine) endOne(rt *rapid.T) {
	list := m.desk.sorted((*job).active)
	if len(list) == 0 {
		rt.Skip()
	}
	j := rapid.SampledFrom(list).Draw(rt, "dispatch")
	states := []api.Event{api.EventFinished, api.EventFinished, api.EventFinished, api.EventFailed, api.EventFailed, api.EventNeedsInput, api.EventNeedsInput, api.EventCancelled}
	if j.d.CancelBy != "" {
		states = append(states, api.EventFailed, api.EventCancelled, api.EventCancelled)
	}
	state := rapid.SampledFrom(states).Draw(rt, "state")
	var reason api.Reason
	if state == api.EventFailed {
		reason = rapid.SampledFrom([]api.Reason{api.ReasonAgent, api.ReasonTimeout, api.ReasonLost, api.ReasonVerify, api.ReasonOutput, api.ReasonIntegrity}).Draw(rt, "reason")
	}
	how := rapid.SampledFrom([]string{"told", "told", "told", "told twice", "late", "never"}).Draw(rt, "told")
	m.begin("end " + string(state) + " " + how)
	if state == api.EventCancelled && j.d.CancelBy == "" { // an emergency stop
		m.desk.stop(j)
	}
	if state == api.EventFinished {
		m.desk.returns(j, drawProduct(rt, j.order.Request.Subagent))
	}
	j.usage = drawUsage(rt, j)
	if !m.desk.end(j, state, reason, how == "told" || how == "told twice") {
		return
	}
	switch how {
	case "told twice":
		m.desk.say(j.history[len(j.history)-1])
	case "late":
		m.late = append(m.late, j.history[len(j.history)-1])
	}
}

// endMany ends everything that runs, at once.
func (m *machine) endMany(rt *rapid.T) {
	list := m.desk.sorted((*job).active)
	if len(list) == 0 {
		rt.Skip()
	}
	state := rapid.SampledFrom([]api.Event{api.EventFinished, api.EventFinished, api.EventFailed}).Draw(rt, "state")
	used := drawUsage(rt, list[0])
	m.begin("end many")
	for _, j := range list {
		j.usage = used
		reason := api.Reason("")
		if state == api.EventFailed {
			reason = api.ReasonAgent
		}
		m.desk.end(j, state, reason, true)
	}
}

func (m *machine) tellLate(rt *rapid.T) {
	if len(m.late) == 0 {
		rt.Skip()
	}
	m.begin("tell")
	for _, d := range m.late {
		m.desk.say(d)
	}
	m.late = nil
}

// tellPast tells again of an end that was, of whatever attempt of whatever
// dispatch.
func (m *machine) tellPast(rt *rapid.T) {
	list := m.desk.sorted(func(j *job) bool {
		r := m.log.runs[j.order.Run]
		return len(j.history) > 0 && r != nil && (r.settled == nil || len(m.log.runs) < 5)
	})
	if len(list) == 0 {
		rt.Skip()
	}
	j := rapid.SampledFrom(list).Draw(rt, "dispatch")
	d := rapid.SampledFrom(j.history).Draw(rt, "attempt")
	m.begin("tell of the past")
	m.desk.say(d)
}

func (m *machine) openGates(rt *rapid.T) {
	if m.desk.gated() == 0 {
		rt.Skip()
	}
	m.begin("open")
	m.desk.open()
}

// pass lets time pass.
func (m *machine) pass(rt *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 31 * time.Second, 2 * time.Minute, 2 * time.Hour}).Draw(rt, "time")
	m.begin("time")
	time.Sleep(d)
}

func (m *machine) killNow(rt *rapid.T) {
	d := drawOutage(rt)
	m.begin("kill")
	m.outage = d
	m.kill()
}

// killLater has the service killed at one of the next commits, which is durable
// without a notification.
func (m *machine) killLater(rt *rapid.T) {
	m.mu.Lock()
	armed := m.killIn > 0
	m.mu.Unlock()
	if armed {
		rt.Skip()
	}
	n := rapid.IntRange(1, 4).Draw(rt, "commits")
	m.begin("kill in")
	m.mu.Lock()
	m.killIn = n
	m.mu.Unlock()
}

func (m *machine) restartNow(rt *rapid.T) {
	d := drawOutage(rt)
	m.begin("restart")
	synctest.Wait()
	m.outage = d
	if !m.killed() {
		m.restart()
	}
}

// fail has the disk fail, and something happen after that: nothing comes of it,
// and all is well after a restart.
func (m *machine) fail(rt *rapid.T) {
	if len(m.desk.sorted((*job).active)) == 0 || m.killIn > 0 {
		rt.Skip()
	}
	m.begin("fail")
	synctest.Wait() // what was due by now is decided, and happens
	list := m.desk.sorted((*job).active)
	if len(list) == 0 {
		return
	}
	j := rapid.SampledFrom(list).Draw(rt, "dispatch")
	_ = m.store.Update(context.Background(), func(*store.Tx) error { runtime.Goexit(); return nil })
	fires := m.desk.count("fire")
	m.desk.end(j, api.EventFinished, "", true)
	synctest.Wait()
	if m.o.Err() == nil {
		rt.Fatalf("the engine continues after its commit failed")
	}
	if n := m.desk.count("fire"); n != fires {
		rt.Fatalf("%d dispatches were submitted after the commit failed", n-fires)
	}
	_, err := m.o.Submit(context.Background(), as(ann), api.RunRequest{Plan: m.remember(api.Plan{ID: "late", Tasks: []api.PlanTask{{ID: "t", Subagent: work}}})})
	if err == nil {
		rt.Fatalf("a run was submitted after the commit failed")
	}
	m.restart()
}

// drain ends everything that is there, whatever came before: every run settles,
// so nothing starves and nothing hangs.
func (m *machine) drain(rt *rapid.T) {
	m.mu.Lock()
	m.killIn = 0
	m.mu.Unlock()
	m.check(rt)
	for round := 0; m.unsettled(false) > 0; round++ {
		if round > 500 {
			rt.Fatalf("runs do not settle: %s", m.story())
		}
		m.begin("drain")
		m.unpause()
		m.pauseSchedules()
		m.desk.open()
		m.decideAll()
		if list := m.desk.sorted((*job).asks); len(list) > 0 {
			m.desk.end(list[0], api.EventFailed, api.ReasonTimeout, true)
		}
		if list := m.desk.sorted((*job).active); len(list) > 0 {
			m.desk.end(list[0], api.EventFinished, "", true)
		} else {
			time.Sleep(time.Minute)
		}
		m.check(rt)
	}
	if m.o.Busy() {
		rt.Fatalf("it is busy and everything is settled")
	}
	if err := m.agrees(); err != nil {
		rt.Fatalf("%v", err)
	}
	n, err := m.ledger.Check(context.Background())
	if err != nil || n != m.log.next {
		rt.Fatalf("the log has %d entries, %v; %d were read", n, err, m.log.next)
	}
	for kind, n := range map[record.Kind]int{record.KindRunSettled: m.log.kinds[record.KindRunSettled], record.KindRunSubmitted: m.log.kinds[record.KindRunSubmitted]} {
		if n != len(m.log.runs) {
			rt.Fatalf("%d entries %s for %d runs", n, kind, len(m.log.runs))
		}
	}
}

// unpause resumes everything. The service may be killed by what that starts.
func (m *machine) unpause() {
	for name, q := range m.log.queues {
		if q.paused {
			_, _ = m.o.ResumeQueue(context.Background(), as(root), name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.log.runs)) {
		if r := m.log.runs[id]; r.paused && r.settled == nil {
			_, _ = m.o.Resume(context.Background(), as(root), id)
		}
	}
}
