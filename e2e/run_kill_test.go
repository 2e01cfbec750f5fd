package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// runKinds lists the kinds of dispatches of a trial's tasks.
func runKinds() []kind {
	return append(append(kinds(), growKinds()...),
		kind{
			// Whether an attempt fails is a function of its dispatch ID, so the
			// expected end can be derived afterwards.
			subagent: subagent{name: "flaky", script: half + `case $(printf %s "$BAILIWICK_DISPATCH" | sha256sum) in [0-7]*) exit 3;; esac`},
			want:     endsWith(api.EventFinished, ""), patch: true, log: "begun\n",
		},
		kind{
			subagent: subagent{name: "takes", script: half + `grep -q '^+half' inputs/change && grep -qx out inputs/file && grep -q '"n": *1' inputs/value && cp inputs/change outputs/`},
			want:     endsWith(api.EventFinished, ""), patch: true, log: "begun\n",
		})
}

// runKind is the kind of a subagent's dispatch, with its expected end.
func runKind(name api.Name, dispatch string) kind {
	all := runKinds()
	k := all[slices.IndexFunc(all, func(o kind) bool { return o.name == string(name) })]
	if sum := sha256.Sum256([]byte(dispatch)); k.name == "flaky" && hex.EncodeToString(sum[:1]) < "80" {
		k.want = endsWith(api.EventFailed, api.ReasonAgent)
	}
	return k
}

// runJob is one run of a round as its caller sees it.
type runJob struct {
	id       string
	plan     api.Plan
	answered bool     // it got a response that it was submitted
	seen     []uint64 // entries it received
	cancel   time.Duration
	pause    time.Duration
	stop     time.Duration // of tasks that end only by a cancel
	append   []api.PlanTask
	appendAt time.Duration
	appended bool // they were sent
	added    bool // and it got a response that they were added
	err      error
}

// someTask adds a task with random options to a plan.
func (k *trial) someTask(p *api.Plan, kind string) *api.PlanTask {
	t := api.PlanTask{ID: api.TaskID(fmt.Sprintf("%s.%d", kind, len(p.Tasks))), Subagent: api.Name(kind)}
	for _, key := range []string{"k1", "k2", "k3"} {
		switch k.rng.IntN(6) {
		case 0:
			t.Locks = append(t.Locks, api.Lock{Key: key})
		case 1:
			t.Locks = append(t.Locks, api.Lock{Key: key, Shared: true})
		}
	}
	for _, earlier := range p.Tasks {
		if k.rng.IntN(4) == 0 && (earlier.Subagent != "fails" && earlier.Subagent != "stopped" || k.rng.IntN(2) == 0) {
			t.DependsOn = append(t.DependsOn, earlier.ID)
		}
	}
	if k.rng.IntN(2) == 0 || kind == "flaky" {
		t.Retry = api.Retry{Attempts: 2 + k.rng.IntN(3), Backoff: api.Backoff{Min: api.Duration(10 * time.Millisecond), Max: api.Duration(80 * time.Millisecond)}}
		if kind == "late" || kind == "fails" {
			t.Retry.Attempts = 2
		}
	}
	p.Tasks = append(p.Tasks, t)
	return &p.Tasks[len(p.Tasks)-1]
}

// someTasks adds random tasks to a plan, which include the given kinds.
func (k *trial) someTasks(p *api.Plan, kinds ...string) {
	for _, kind := range kinds {
		k.someTask(p, kind)
	}
	others := []string{"edits", "edits", "fails", "green", "red", "typed", "untyped", "flaky", "asks", "late", "waits", "stopped"}
	for range 2 + k.rng.IntN(2) {
		k.someTask(p, others[k.rng.IntN(len(others)-2*k.rng.IntN(2))])
	}
	if k.rng.IntN(2) == 0 {
		k.someTask(p, "edits")
		from := p.Tasks[len(p.Tasks)-1].ID
		k.someTask(p, "typed")
		typed := p.Tasks[len(p.Tasks)-1].ID
		k.someTask(p, "takes").Needs = map[api.Name]api.Need{"change": {From: from, Patch: true}, "file": {From: from, Output: "x.txt"}, "value": {From: typed, Result: true}}
	}
}

// carryOut acts as the caller of a run: it submits the run, follows it to the
// end, answers its questions, cancels tasks that end only by a cancel, and
// steers it.
func (k *trial) carryOut(j *runJob) {
	var run api.Run
	req := request(k.t, j.plan)
	if j.err = k.insist(http.MethodPost, runsPath, req, &run); j.err != nil {
		return
	}
	j.answered = true
	began := time.Now()
	for after := ""; ; {
		var page api.RunEvents
		if j.err = k.insist(http.MethodGet, runsPath+"/"+j.id+"/events?wait=200ms&after="+after, nil, &page); j.err != nil {
			return
		}
		for _, e := range page.Events {
			j.seen = append(j.seen, e.Seq)
		}
		if page.Done {
			return
		}
		after = page.Next
		if j.err = k.steer(j, time.Since(began)); j.err != nil {
			return
		}
		if time.Since(began) > 2*time.Minute {
			s := k.runStory(j.id)
			j.err = fmt.Errorf("the run does not end: %+v", s.run)
			return
		}
	}
}

// steer sends the requests to a run that are due.
func (k *trial) steer(j *runJob, at time.Duration) error {
	act := func(verb string, body any) error {
		err := k.insist(http.MethodPost, "/v1/operator/runs/"+j.id+"/"+verb, body, nil)
		if refused := (*errRefused)(nil); errors.As(err, &refused) && refused.status == http.StatusConflict {
			return nil // it had ended already, or an earlier attempt succeeded
		}
		return err
	}
	var run api.Run
	if err := k.insist(http.MethodGet, runsPath+"/"+j.id, nil, &run); err != nil {
		return err
	}
	if err := k.grow(j, &run, at); err != nil {
		return err
	}
	for _, t := range run.Tasks {
		kind, _, _ := strings.Cut(string(t.Task), ".")
		if t.Asks && kind == "asks" {
			if err := act("answer", api.RunAnswer{Task: t.Task, DispatchID: t.DispatchID, Attempt: 1, Option: 1}); err != nil {
				return err
			}
		}
		if kind == "stopped" && !t.State.Settled() && at > j.stop && t.CancelBy == "" {
			if err := act("cancel", api.RunCancel{Task: t.Task}); err != nil {
				return err
			}
		}
	}
	if j.pause > 0 && at > j.pause {
		j.pause = 0
		if err := act("pause", nil); err != nil {
			return err
		}
		if err := act("resume", nil); err != nil {
			return err
		}
	}
	if j.cancel > 0 && at > j.cancel {
		j.cancel = 0
		return act("cancel", api.RunCancel{Reason: "enough"})
	}
	return nil
}

// someRuns returns the runs of a round. Each has the next one of the constructs, and the
// first one also that which is wanted.
func (k *trial) someRuns(n int, construct string, kinds ...string) (jobs []*runJob) {
	at := func() time.Duration { return time.Duration(1+k.rng.IntN(500)) * time.Millisecond }
	for i := range 2 {
		id := k.id("r", n, i)
		j := &runJob{id: id, plan: api.Plan{ID: api.RunID(id), Source: &api.SourceRequest{Name: "repo"}}, stop: at()}
		if construct != "" && i == 0 {
			k.construct(j, construct)
		}
		k.construct(j, constructs()[(2*n+i)%len(constructs())])
		k.someTasks(&j.plan, kinds...)
		if k.rng.IntN(3) == 0 {
			j.pause = at()
		}
		if k.rng.IntN(4) == 0 {
			j.cancel = at()
		}
		jobs = append(jobs, j)
		kinds = nil
	}
	return jobs
}

// runRound carries out two runs while it kills, and then runs all checks. The
// first run includes the kinds of the plan.
func (k *trial) runRound(n int, p plan, sum *tally) {
	k.t.Helper()
	if len(sum.bad) > 20 {
		k.t.Fatalf("too many violations:\n%s", strings.Join(sum.bad, "\n"))
	}
	k.arm(p.armed...)
	var kinds []string
	for _, kind := range p.kinds {
		kinds = append(kinds, kind.name)
	}
	jobs := k.someRuns(n, constructAt(p.at), kinds...)
	if strings.HasPrefix(string(p.at), "run.cancel") && jobs[0].cancel == 0 {
		jobs[0].cancel = 200 * time.Millisecond
	}
	var callers sync.WaitGroup
	for _, j := range jobs {
		callers.Go(func() { k.carryOut(j) })
	}
	if pause := time.Duration(k.rng.IntN(300)) * time.Millisecond; strings.HasPrefix(string(p.at), "schedule.") || n%3 == 0 {
		callers.Go(func() { k.requestSlot(pause) })
	}
	over := make(chan struct{})
	go func() { callers.Wait(); close(over) }()
	a := &assault{k: k, p: p, sum: sum, from: sum.next, killed: map[int]bool{}, blindly: map[int]bool{}}
	a.until(over)
	log := k.quiet(n, p, sum)
	var hits []hit
	hits, sum.next = k.hits(sum.next)
	fresh := uint64(max(0, len(sum.seen)-500)) //nolint:gosec // G115: not negative
	sum.seen = append(sum.seen, log...)
	bad := slices.Concat(k.wrongJobs(jobs, log, hits, a, sum, fresh), overlaps(log, hits), gaps(sum.seen))
	for _, b := range bad {
		b = fmt.Sprintf("round %d (%s): %s", n, p, b)
		k.t.Error(b)
		sum.bad = append(sum.bad, b)
	}
	if len(bad) > 0 {
		k.t.Log(brief(log))
	}
	sum.rounds++
}

// quiet waits until nothing of a round is left, and no run of a slot is open. It returns
// the log of the round.
func (k *trial) quiet(n int, p plan, sum *tally) []entry {
	for late := range polling(time.Minute) {
		k.settle(n, p, sum, sum.next)
		log := k.log(len(sum.seen) - 1)
		if len(pending(log)) == 0 || late {
			return log
		}
	}
	panic("unreachable")
}

// brief is a short form of a log.
func brief(log []entry) string {
	var text strings.Builder
	for _, e := range log {
		fmt.Fprintf(&text, "#%d %s %s %s/%s %s %d %+v\n", e.Seq, e.At.Format("05.000"), e.Kind, e.Run, e.Task, e.Dispatch, e.Attempt, e.Detail)
	}
	return text.String()
}

// wrongJobs lists the violations of a round's runs and of their dispatches: those of its
// callers, and those of slots.
func (k *trial) wrongJobs(jobs []*runJob, log []entry, hits []hit, a *assault, sum *tally, fresh uint64) (bad []string) {
	var stories []*runStory
	for _, j := range jobs {
		if j.err != nil {
			bad = append(bad, fmt.Sprintf("LOST: run %s: its caller: %v", j.id, j.err))
		}
		s := k.runStory(j.id)
		s.answered, s.seen, s.append, s.added = j.answered, j.seen, j.append, j.added
		stories = append(stories, s)
	}
	for _, e := range log {
		if e.Kind == "schedule.fired" {
			stories = append(stories, k.runStory(e.Run))
		}
	}
	for _, s := range stories {
		sum.runs++
		if s.run != nil {
			sum.outcomes["run "+string(s.run.State)]++
			for _, t := range s.run.Tasks {
				sum.outcomes["task "+string(t.State)]++
			}
		}
	}
	bad = append(bad, wrongRuns(log, stories)...)
	unproved := make(chan []string)
	go func() {
		var bad []string
		for _, s := range stories {
			if s.run != nil {
				bad = append(bad, k.wrongEvidence(s.id)...)
			}
		}
		unproved <- bad
	}()
	bad = append(bad, sum.made.wrongReuse(log, pureInputs(stories), fresh)...)
	bad = append(bad, k.wrongStarted(stories, log, hits, a, sum)...)
	return append(bad, <-unproved...)
}

// pureInputs lists the inputs of the pure tasks of runs, by RUN/TASK.
func pureInputs(stories []*runStory) map[string]string {
	inputs := map[string]string{}
	for _, s := range stories {
		for _, t := range s.plan.Tasks {
			if t.Subagent != "pure" {
				continue
			}
			input := string(t.Input)
			if need, ok := t.Needs["id"]; ok {
				input = needsOf + string(need.From)
			}
			inputs[s.id+"/"+string(t.ID)] = input
		}
	}
	return inputs
}

// wrongStarted lists the violations of the dispatches that the log says were started.
func (k *trial) wrongStarted(stories []*runStory, log []entry, hits []hit, a *assault, sum *tally) (bad []string) {
	runs, reused, done := map[string]*runStory{}, map[string]string{}, map[string]bool{}
	for _, s := range stories {
		runs[s.id] = s
	}
	for _, e := range log {
		if e.Kind == "task.reused" {
			reused[e.Dispatch] = e.Detail.Of
		}
	}
	for _, e := range log {
		if e.Kind != "task.started" || done[e.Dispatch] {
			continue
		}
		done[e.Dispatch] = true
		name := api.Name("")
		if s := runs[e.Run]; s != nil {
			name = s.subagent(e.Task)
		}
		if name == "" {
			bad = append(bad, fmt.Sprintf("UNTRUE: entry %d starts a task that there is not", e.Seq))
			continue
		}
		s := k.story(&job{id: e.Dispatch, kind: runKind(name, e.Dispatch)}, log, hits, a.killed, a.blindly)
		if of := reused[e.Dispatch]; of != "" {
			bad = append(bad, k.wrongCopy(s, of)...)
			continue
		}
		bad = append(bad, s.wrong()...)
		if name == "gathers" && s.record != nil && s.record.State == api.EventFinished {
			bad = append(bad, k.wrongGathered(runs[e.Run], e.Task, e.Dispatch)...)
		}
		sum.total++
	}
	return bad
}

// ofRuns lists the failpoints that only a run passes, with what it grows by, waits for
// and reuses.
func ofRuns() []failpoint.Name {
	return append(slices.DeleteFunc(failpoint.Names(), func(n failpoint.Name) bool { return !strings.HasPrefix(string(n), "run.") }), ofGrowth()...)
}

// runPlanAt returns a round of runs that kills at a failpoint, and then at more
// instants.
func (k *trial) runPlanAt(name failpoint.Name, who string) plan {
	p := plan{who: who, at: name}
	count := 1
	switch {
	case slices.Contains([]string{"run.commit", "run.committed", "run.request", "run.requested"}, string(name)):
		count = 1 + k.rng.IntN(8)
	case slices.Contains([]string{"task.ask", "task.voted"}, string(name)):
		count = 1 + k.rng.IntN(2) // the second time, people have voted
	case slices.Contains(ofGrowth(), name):
	case !strings.HasPrefix(string(name), "run."):
		count = 1 + k.rng.IntN(3)
	}
	if strings.HasPrefix(string(name), "run.recover") {
		p.armed = []string{fmt.Sprintf("%s %d kill", failpoint.StartProceed, 1+k.rng.IntN(3))}
	}
	action := failpoint.Kill
	if who == "both" {
		action = failpoint.Stop
	}
	p.armed = append(p.armed, fmt.Sprintf("%s %d %s", name, count, action))
	other := dispatched()[k.rng.IntN(len(dispatched()))]
	if !slices.ContainsFunc(p.armed, func(line string) bool { return strings.HasPrefix(line, string(other)+" ") }) {
		p.armed = append(p.armed, fmt.Sprintf("%s %d kill", other, 1+k.rng.IntN(4)))
	}
	p.again = []time.Duration{time.Duration(k.rng.IntN(900)) * time.Millisecond}
	for _, must := range []api.Name{"asks", "flaky"} {
		p.kinds = append(p.kinds, runKind(must, ""))
	}
	return p
}

// runPlanBlind returns a round of runs that kills at random instants.
func (k *trial) runPlanBlind() plan {
	at := func() time.Duration { return time.Duration(k.rng.IntN(1_500_000)) * time.Microsecond }
	p := plan{who: []string{"service", "worker", "both"}[k.rng.IntN(3)], blind: at(), again: []time.Duration{at(), at()}}
	slices.Sort(p.again)
	return p
}

// runCampaign is campaign with runs.
func runCampaign(t *testing.T, uid int, seed uint64, names []failpoint.Name, kills int) *tally {
	t.Helper()
	k := newTrial(t, uid, seed)
	k.flags = []string{"--orchestrator"}
	k.configure("retention:\n  content: {count: 400}\norchestrator:\n  queues: {default: {slots: 4}}\n")
	k.withGrowth()
	sum := &tally{
		kills: map[string]int{}, outcomes: map[string]int{}, reached: map[failpoint.Name]bool{},
		made: &made{map[string]string{}, map[string]string{}, map[string]uint64{}},
	}
	n := 0
	for i, name := range names {
		who := "service"
		if i%4 == int(seed%4) {
			who = "both"
		}
		for try := 0; try < 12 && !sum.reached[name]; try++ {
			k.runRound(n, k.runPlanAt(name, who), sum)
			n++
		}
	}
	all := slices.Concat(ofRuns(), dispatched())
	for sum.count() < kills {
		p := k.runPlanBlind()
		if k.rng.IntN(2) == 0 {
			p = k.runPlanAt(all[k.rng.IntN(len(all))], []string{"service", "both"}[k.rng.IntN(2)])
		}
		k.runRound(n, p, sum)
		n++
	}
	for _, b := range append(k.logFaults(sum.seen), wrongSlots(sum.seen)...) {
		t.Error(b)
		sum.bad = append(sum.bad, b)
	}
	return sum
}

// minRunKills is the minimum number of kills of runs.
const minRunKills = 50

// A kill of the service, or of it and its workers, at every failpoint of a run
// and at random instants, while plans with locks, retries, questions, needs, cancels
// and every construct are carried out, and schedules submit runs: every task is
// accounted for exactly once, nothing runs twice, without its locks or beyond its
// budget, no slot and no output is lost, the log replays to the reported states, no
// entry of a run follows its end, and its evidence verifies.
//
// proves R-O6, R-O3, R-O4, R-O7, R-O8, R-O9, R-O10, R-O11, R-O12
func TestKillsNeverChangeARun(t *testing.T) {
	t.Parallel()
	for _, c := range campaigns() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var names []failpoint.Name
			for i, name := range ofRuns() {
				if i%(c.step**stepFlag) == 0 {
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				t.Fatal("runs have no failpoints")
			}
			began := time.Now()
			sum := runCampaign(t, c.uid, *seedFlag, names, max(minRunKills, *killsFlag/2)*c.part/5)
			t.Logf("%s; %s; in %s", sum, growTally(sum.seen), time.Since(began).Round(time.Second))
			fmt.Printf("kills of runs as %s, seed %d: %s; %s; in %s\n", c.name, *seedFlag, sum, growTally(sum.seen), time.Since(began).Round(time.Second))
			for _, name := range names {
				if !sum.reached[name] {
					t.Errorf("no process was killed at %s", name)
				}
			}
		})
	}
}
