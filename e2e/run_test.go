package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// quickPlan is a plan of one task that does nothing.
const quickPlan = "tasks:\n  - {id: only, subagent: sh, input: {do: \"true\"}, source: {name: repo}}\n"

// A service has an orchestrator only if it was requested. Without it dispatches
// work, and each verb that starts or changes a run says what is missing. Only one
// service runs, however it was started.
//
// proves R-O1
func TestOrchestratorIsOptIn(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.write("plan.yaml", quickPlan, 0o644)
	w.up()
	for _, line := range []string{
		"run submit " + w.path("plan.yaml"), "run retry r1", "queue list", "queue pause default", "queue resume default",
	} {
		w.refused(1, []string{"orchestrator"}, strings.Fields(line)...)
	}
	_, err := w.conn().Runtime().Submit(t.Context(), request(t, planned("", shellTask("a", "true"))))
	wantCode(t, "submit", err, api.CodeNotConfigured, "orchestrator")
	wantEnd(t, w.dispatch("sh", "--source", "repo", "--set", "do=true"), api.EventFinished, "")
	before := w.status().PID
	w.upRuns()
	if now := w.status().PID; now == before {
		t.Errorf("the service without an orchestrator still runs, as process %d", now)
	}
	wantStates(t, w.awaitSettled(w.submit(planned("", shellTask("a", "true")))), "done; a done")
	pid := w.status().PID
	w.upRuns() // one exists
	for _, flags := range [][]string{{"serve"}, {"serve", "--orchestrator"}, {"serve", "--orchestrator", "--socket", w.path("run/other.sock")}} {
		if d := w.exec(filepath.Join(bin, "bailiwickd"), flags...); d.status != 1 || !strings.Contains(d.stderr, "process "+strconv.Itoa(pid)) {
			t.Errorf("a second service, %q: %s", flags, d)
		}
	}
	if now := w.status().PID; now != pid {
		t.Errorf("the service is process %d, it was %d", now, pid)
	}
	// A one-shot service never has an orchestrator: after its idle shutdown no
	// process would carry out the plans.
	w.must("down")
	w.write("config/bailiwick/service.yaml", "version: 1\norchestrator: {}\n", 0o600)
	wantEnd(t, w.dispatch("sh", "--source", "repo", "--set", "do=true"), api.EventFinished, "")
	_, err = w.conn().Runtime().Submit(t.Context(), request(t, planned("", shellTask("a", "true"))))
	wantCode(t, "submit to a service that ends when idle", err, api.CodeNotConfigured, "orchestrator")
	w.upRuns()
	wantStates(t, w.awaitSettled(w.submit(planned("", shellTask("a", "true")))), "done; a done")
}

// wrongPlans lists plans with several problems, and for each problem its path
// and a word of its message.
func wrongPlans() map[string]struct {
	text string
	want [][2]string
} {
	return map[string]struct {
		text string
		want [][2]string
	}{
		"form": {`{"id": "wrong", "colour": "red", "tasks": [
			{"id": "a", "subagent": "sh", "input": {"do": "true"}, "depends_on": ["c"]},
			{"id": "b", "subagent": "sh", "input": {"do": "true"}, "depends_on": ["a", "nowhere"]},
			{"id": "c", "subagent": "sh", "input": {"do": "true"}, "depends_on": ["b"]},
			{"id": "a", "subagent": "sh", "input": {"do": "true"}},
			{"id": "d", "subagent": "sh", "input": {"do": "true"}, "locks": ["k", {"shared": "k"}], "needs": {"x": {"from": "gone", "patch": true}, "y": {"from": "a", "patch": true, "output": "o"}}},
			{"id": "e", "subagent": "sh", "input": {"do": "true"}, "retry": {"attempts": 99}, "for_each": {"from": "a"}}
		]}`, [][2]string{
			{"colour", ""}, {"tasks[1]", "nowhere"}, {"tasks[3]", "a"}, {"tasks[4]", "gone"}, {"tasks[4]", "k"}, {"tasks[4]", "patch"}, {"tasks[5]", "attempts"}, {"tasks[5]", "for_each"},
		}},
		"circle": {`{"id": "wrong", "tasks": [
			{"id": "a", "subagent": "sh", "input": {"do": "true"}, "depends_on": ["c"]},
			{"id": "b", "subagent": "sh", "input": {"do": "true"}, "depends_on": ["a"]},
			{"id": "c", "subagent": "sh", "input": {"do": "true"}, "depends_on": ["b"]}
		]}`, [][2]string{{"", "a"}}},
		"meaning": {`{"id": "wrong", "source": {"name": "repo"}, "tasks": [
			{"id": "a", "subagent": "strict", "input": {"n": "x"}},
			{"id": "b", "subagent": "sh", "input": {"do": "true"}, "source": {"name": "repo", "commit": "nowhere"}},
			{"id": "c", "subagent": "sh", "input": {"do": "true"}, "needs": {"up": {"from": "b", "result": true}}}
		]}`, [][2]string{{"tasks[0]", "input"}, {"tasks[1]", "commit"}, {"tasks[2]", "result"}}},
	}
}

// All problems of a plan are reported at once, each with its path, over HTTP
// and on the command line; nothing is stored, and the ID remains free.
//
// proves R-O2, R-A3
func TestSubmitReportsAllPlanProblems(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0, subagent{name: "strict", script: "true", more: "    input: {type: object, properties: {n: {type: integer}}}\n"})
	for name, c := range wrongPlans() {
		body, err := json.Marshal(api.RunRequest{Plan: json.RawMessage(c.text)})
		must(t, err)
		status, e := w.refusal(runsPath, "application/json", strings.NewReader(string(body)))
		if status != http.StatusBadRequest || e.Code != api.CodeInvalid || e.AuditEntry == nil || len(e.Problems) < len(c.want) {
			t.Errorf("%s: %d %+v", name, status, e)
		}
		for _, want := range c.want {
			if !slices.ContainsFunc(e.Problems, func(p api.Problem) bool {
				return strings.Contains(p.Path, want[0]) && strings.Contains(p.Path+" "+p.Message, want[1])
			}) {
				t.Errorf("%s: no problem at %s contains %q: %+v", name, want[0], want[1], e.Problems)
			}
		}
		w.write("plan.json", c.text, 0o644)
		words := []string{}
		for _, want := range c.want {
			words = append(words, want[1])
		}
		if d := w.refused(1, words, "run", "submit", w.path("plan.json")); strings.Count(d.stderr, "\n") < len(c.want) {
			t.Errorf("%s: as text: %s", name, d)
		}
	}
	if text := w.try("run", "submit", w.path("plan.json")).stderr; text == "" {
		t.Error("no problem is reported")
	}
	// Names that the caller may not use are denied, all at once, with the same
	// message as unknown names.
	denied := `{"id": "wrong", "source": {"name": "repo"}, "tasks": [
		{"id": "a", "subagent": "nothing", "input": {"do": "true"}},
		{"id": "b", "subagent": "sh", "input": {"do": "true"}, "source": {"name": "elsewhere"}},
		{"id": "c", "subagent": "sh", "input": {"do": "true"}, "env": ["secrets"]},
		{"id": "d", "subagent": "sh", "input": {"do": "true"}}
	]}`
	_, err := w.conn().Runtime().Submit(t.Context(), api.RunRequest{Plan: json.RawMessage(denied)})
	wantCode(t, "a plan without grants", err, api.CodeDenied, "tasks[0]", "nothing", "tasks[1]", "elsewhere", "tasks[2]", "secrets")
	w.write("plan.json", denied, 0o644)
	w.refused(3, []string{"nothing", "elsewhere", "secrets"}, "run", "submit", w.path("plan.json"))
	if n := len(w.entries("--kind", "run.denied")); n != 2 {
		t.Errorf("the log has %d denials of plans", n)
	}
	list, err := w.conn().Runtime().Runs(t.Context(), api.RunFilter{Limit: 100})
	if must(t, err); len(list) != 0 || len(w.list()) != 0 || len(w.entries("--kind", "run.submitted")) != 0 {
		t.Errorf("a refused plan is stored: %+v %+v", list, w.list())
	}
	if left := w.settledRemains(); left != nil {
		t.Errorf("left behind: %v", left)
	}
	// The control: a valid plan is accepted, under the same ID.
	wantStates(t, w.awaitSettled(w.submit(planned("wrong", shellTask("a", "true")))), "done; a done")
}

// The same plan under the same ID is the same run, however often it is
// submitted, concurrently or after it has settled; a different plan under that
// ID is refused.
//
// takeover both modes, AI client: no replay
//
// proves R-O8
func TestSubmitIsIdempotent(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	p := planned("again", shellTask("a", awaitGate("go")))
	req := request(t, p)
	var callers sync.WaitGroup
	var made atomic.Int32
	for range 8 {
		callers.Go(func() {
			run, err := w.conn().Runtime().Submit(t.Context(), req)
			if err != nil || w.chosen(string(run.RunID)) != "again" {
				t.Errorf("concurrently: %+v %v", run, err)
			}
			if !run.Existing {
				made.Add(1)
			}
		})
	}
	callers.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("%d of 8 requests are told that they made the run", n)
	}
	other := request(t, planned("again", shellTask("a", "true")))
	refused := func(when string) {
		t.Helper()
		_, err := w.conn().Runtime().Submit(t.Context(), other)
		wantCode(t, when, err, api.CodeConflict, "again")
	}
	refused("another plan while it runs")
	// The same plan encoded differently: order of members, explicit defaults.
	spelled := fmt.Sprintf(`{"tasks": [{"subagent": "sh", "input": {"do": %q}, "id": "a", "retry": {"attempts": 1}}], "queue": "default", "source": {"name": "repo"}, "id": "again"}`, awaitGate("go"))
	if run, err := w.conn().Runtime().Submit(t.Context(), api.RunRequest{Plan: json.RawMessage(spelled)}); err != nil || w.chosen(string(run.RunID)) != "again" {
		t.Errorf("the same plan encoded differently: %+v %v", run, err)
	}
	kill(t, w.status().PID)
	w.upRuns()
	if run, err := w.conn().Runtime().Submit(t.Context(), req); err != nil || w.chosen(string(run.RunID)) != "again" {
		t.Errorf("after a restart: %+v %v", run, err)
	}
	w.open("go")
	wantStates(t, w.awaitSettled("again"), "done; a done")
	if run, err := w.conn().Runtime().Submit(t.Context(), req); err != nil || run.State != api.RunDone || !run.Existing {
		t.Errorf("after it has settled: %+v %v", run, err)
	}
	refused("another plan after it has settled")
	if n, m := len(w.entries("--kind", "run.submitted")), len(w.entries("--kind", "dispatch.accepted")); n != 1 || m != 1 {
		t.Errorf("the log has %d submissions and %d dispatches", n, m)
	}
	// An ID may also be given outside the plan, but not two different ones.
	if run, err := w.conn().Runtime().Submit(t.Context(), api.RunRequest{RunID: "beside", Plan: request(t, planned("", shellTask("a", "true"))).Plan}); err != nil || w.chosen(string(run.RunID)) != "beside" {
		t.Errorf("an ID outside the plan: %+v %v", run, err)
	}
	if run, err := w.conn().Runtime().Submit(t.Context(), api.RunRequest{RunID: "two", Plan: req.Plan}); err != nil || w.chosen(string(run.RunID)) != "two" || run.Existing {
		t.Errorf("an ID instead of the plan's: %+v %v", run, err)
	}
	w.awaitSettled("two") // it leaves no worker
}

// A plan that is submitted again starts nothing, whatever follows it: the answer
// says how its run ended and how to run it again.
//
// proves R-O8
func TestSubmittingAPlanAgainSaysThatItsRunExists(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	raw, err := json.Marshal(planned("p5", shellTask("a", "true")))
	must(t, err)
	w.write("plan.json", string(raw), 0o644)
	file := w.path("plan.json")
	w.must("run", "submit", file, "--watch")
	for _, flag := range []string{"--watch", "--wait=1m", "--quiet"} {
		d := w.refused(5, []string{"run p5 already exists: done ", "1 of 1 tasks done", "bailiwick run retry p5", "--new", "--id NEW"}, "run", "submit", file, flag)
		if w.chosen(d.stdout) != "p5\n" || strings.Contains(d.stderr, "submitted") {
			t.Errorf("%s: %s", flag, d)
		}
	}
	var run api.Run
	decode(t, w.refused(5, nil, "run", "submit", file, "-o", "json").stdout, &run)
	if !run.Existing || w.chosen(string(run.RunID)) != "p5" {
		t.Errorf("as JSON: %+v", run)
	}
	if n := len(w.entries("--kind", "run.submitted")); n != 1 {
		t.Errorf("%d runs were submitted", n)
	}
	other, err := json.Marshal(planned("p5", shellTask("b", "true")))
	must(t, err)
	w.write("other.json", string(other), 0o644)
	w.refused(1, []string{"p5 is in use for another plan", "--new", "--id NEW", "bailiwick run retry p5"}, "run", "submit", w.path("other.json"))
	// The ways on.
	w.must("run", "submit", file, "--id", "p6", "--watch")
	w.must("run", "submit", w.path("other.json"), "--new", "--watch")
	if n := len(w.entries("--kind", "run.submitted")); n != 3 {
		t.Errorf("%d runs were submitted, want 3", n)
	}
}

// replays checks that the log of the world replays to the reported states of
// its runs.
func (w *world) replays(runs ...api.RunID) {
	w.t.Helper()
	var log []entry
	for dec := json.NewDecoder(strings.NewReader(w.must("audit", "list", "-o", "jsonl"))); dec.More(); {
		var line struct {
			Seq   uint64          `json:"seq"`
			Entry json.RawMessage `json:"entry"`
		}
		must(w.t, dec.Decode(&line))
		e := entry{Seq: line.Seq, leaf: string(line.Entry)}
		must(w.t, json.Unmarshal(line.Entry, &e))
		log = append(log, e)
	}
	var stories []*runStory
	for _, id := range runs {
		id = w.run(id).RunID // as it is stored
		run := w.run(id)
		s := &runStory{id: string(id), answered: true, run: &run, barred: true}
		raw, err := w.conn().Runtime().RunPlan(w.t.Context(), id)
		must(w.t, err)
		must(w.t, json.Unmarshal(raw, &s.plan))
		for _, e := range w.history(id) {
			s.seen = append(s.seen, e.Seq)
		}
		stories = append(stories, s)
	}
	for _, bad := range slices.Concat(wrongRuns(log, stories), gaps(log)) {
		w.t.Error(bad)
	}
}

// The end of a worker is noticed at once: in the log its end, the end of its
// task and the start of the next task follow each other. A chain this long
// would otherwise exceed the test's timeout.
//
// proves R-O5
func TestWorkerExitIsNoticedImmediately(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	var chain []api.PlanTask
	for i := range 12 {
		next := shellTask(api.TaskID(fmt.Sprintf("t%d", i)), "true")
		if i > 0 {
			next.DependsOn = []api.TaskID{chain[i-1].ID}
		}
		chain = append(chain, next)
	}
	id := w.submit(planned("chain", chain...))
	if run := w.awaitSettled(id); run.State != api.RunDone || run.Counts[api.TaskDone] != len(chain) {
		t.Fatalf("the run is %+v", run)
	}
	w.replays(id)
	var kinds []string
	stated := w.entries("--kind", "dispatch.attested") // not a step of the run; may come at any time
	events := w.history(id)
	for i, e := range events {
		if i > 0 {
			next := events[i-1].Seq + 1
			for slices.Contains(stated, fmt.Sprint(next)) {
				next++
			}
			if e.Seq != next {
				t.Errorf("entry %d of the run follows entry %d", e.Seq, events[i-1].Seq)
			}
		}
		kinds = append(kinds, e.Event)
	}
	want := []string{"run.submitted"}
	for range chain {
		want = append(want, "task.started", "dispatch.accepted", "dispatch.started", "dispatch.finished", "task.done")
	}
	if want = append(want, "run.settled"); !slices.Equal(kinds, want) {
		t.Errorf("the events are %q", kinds)
	}
}

// The command line submits a plan file, follows the run, exits with a status
// for its outcome, and shows it.
//
// proves R-O1
func TestARunFromTheCommandLine(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, ordinaryUID)
	w.write("plan.yaml", `
id: by-hand
source: {name: repo}
tasks:
  - {id: first, subagent: sh, input: {do: "echo ONE > a.txt"}, locks: [repo/a.txt]}
  - {id: second, subagent: sh, input: {do: "grep -q ONE inputs/first && git apply inputs/first && echo TWO >> a.txt"}, needs: {first: {from: first, patch: true}}}
  - {id: third, subagent: sh, input: {do: "exit 3"}, depends_on: [first]}
  - {id: fourth, subagent: sh, input: {do: "true"}, depends_on: [third]}
`, 0o644)
	if out := strings.TrimSpace(w.must("run", "submit", w.path("plan.yaml"), "-o", "name")); w.chosen(out) != "by-hand" {
		t.Errorf("submit prints %q", out)
	}
	w.refused(1, []string{"by-hand", "failed"}, "run", "wait", "by-hand")
	var run api.Run
	decode(t, w.must("run", "show", "by-hand", "-o", "json"), &run)
	wantStates(t, run, "failed; first done; second done; third failed agent; fourth skipped")
	if text := w.must("run", "show", "by-hand"); !strings.Contains(text, "fourth") || !strings.Contains(text, "skipped") || !strings.Contains(text, "exit status 3") {
		t.Errorf("show prints %s", text)
	}
	if list := w.must("run", "list"); !strings.Contains(list, "by-hand") {
		t.Errorf("list prints %s", list)
	}
	other := w.submit(planned("other", shellTask("a", "true")))
	w.awaitSettled(other)
	log := w.chosen(w.must("audit", "list", "--run", "by-hand"))
	if !strings.Contains(log, "submitted run by-hand with 4 tasks") || !strings.Contains(log, "run by-hand settled as failed") || strings.Contains(log, "run other") || strings.Count(log, "\n") != len(w.history("by-hand")) {
		t.Errorf("the log is %s", log)
	}
	w.refused(1, []string{"run id"}, "audit", "list", "--run", "By Hand")
	watched := w.refused(1, nil, "run", "watch", "by-hand", "-o", "jsonl").stdout
	if events := w.history("by-hand"); strings.Count(watched, "\n") != len(events) {
		t.Errorf("%d events, watch prints %s", len(events), watched)
	}
	for line := range strings.Lines(watched) {
		var e api.RunEvent
		decode(t, line, &e)
	}
	w.must("run", "patch", "by-hand", "--all", "--dir", w.path("patches"))
	if files, err := os.ReadDir(w.path("patches")); err != nil || len(files) < 2 {
		t.Errorf("patches: %v %v", files, err)
	}
	if left := w.settledRemains(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// settledRemains lists leftovers of workers once nothing runs.
func (w *world) settledRemains() []string {
	return settled(func() (left []string) {
		for _, pid := range w.workers() {
			left = append(left, fmt.Sprintf("worker %d", pid))
		}
		dirs, _ := filepath.Glob(w.path("state/bailiwick/dispatches/*"))
		return append(left, dirs...)
	})
}

// A run that exceeds its wall time is cancelled with its running tasks.
//
// proves R-O2, R-O7
func TestRunEndsAtItsWallTimeLimit(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	p := planned("late", shellTask("a", awaitGate("never")), shellTask("b", "true", after("a")), shellTask("c", "true"))
	p.Limits.Wall = api.Duration(10 * time.Second)
	id := w.submit(p)
	dispatch := w.begunTask(id, "a")
	j := jailed{map[int]bool{}, map[string]bool{}}
	w.observe(&j)
	run := w.awaitSettled(id)
	if c := task(t, run, "c").State; run.State != api.RunCancelled || task(t, run, "a").State != api.TaskCancelled || task(t, run, "b").State == api.TaskDone || c != api.TaskDone || run.Deadline == nil {
		t.Errorf("the run is %+v", run)
	}
	w.nothingLeft(dispatch, j)
	w.replays(id)
	// Nobody asked for it: the service did it, and the log names the limit.
	if run.CancelBy != api.Service || !strings.Contains(run.CancelReason, "limits.wall of 10s") || task(t, run, "a").CancelBy != api.Service {
		t.Errorf("cancelled by %q: %q; its task by %q", run.CancelBy, run.CancelReason, task(t, run, "a").CancelBy)
	}
	w.namesOnlyWhoActed("run.expired", "dispatch.aborted", "dispatch.cancelled", "task.cancelled", "run.settled")
	if n := len(w.entries("--kind", "dispatch.cancel_requested")); n != 0 {
		t.Errorf("the log has %d requests to cancel", n)
	}
	if out := w.chosen(w.must("audit", "list", "--run", string(id))); !strings.Contains(out, "run late reached its limits.wall of 10s") || !strings.Contains(out, "cancelled by service") {
		t.Errorf("audit list: %s", out)
	}
	w.verifyEvidence(string(id))
	if list := w.must("waiting"); !strings.Contains(list, "run late") {
		t.Errorf("it does not wait for a person: %q", list)
	}
	w.must("waiting", "--dismiss", "late")
	if list := w.must("waiting"); list != "" {
		t.Errorf("it waits although it was dismissed: %q", list)
	}
}

// namesOnlyWhoActed fails the test if an entry names a principal for what the
// service did, or if the log lacks one of the kinds.
func (w *world) namesOnlyWhoActed(kinds ...string) {
	w.t.Helper()
	seen := map[string]bool{}
	for dec := json.NewDecoder(strings.NewReader(w.must("audit", "list", "-o", "jsonl"))); dec.More(); {
		var line struct {
			Entry struct{ Kind, Principal string }
		}
		must(w.t, dec.Decode(&line))
		e := line.Entry
		if seen[e.Kind] = true; e.Principal != "" && record.Kind(e.Kind).Actor() == record.ActorService {
			w.t.Errorf("%s names %s, who did not do it", e.Kind, e.Principal)
		}
	}
	for _, k := range kinds {
		if !seen[k] {
			w.t.Errorf("the log has no %s", k)
		}
	}
}
