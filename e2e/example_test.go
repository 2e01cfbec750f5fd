package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// header is the expected outcome of an example, from the comment at its top.
type header struct {
	expect  map[string]string            // by task, and "run": the state, with a reason or cause
	answer  map[api.TaskID]int           // the option to choose
	approve map[api.TaskID]api.Principal // who approves the task
}

func readHeader(t testing.TB, text string) header {
	t.Helper()
	h := header{map[string]string{}, map[api.TaskID]int{}, map[api.TaskID]api.Principal{}}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			break
		}
		line = strings.TrimSpace(line[1:])
		if what, ok := strings.CutPrefix(line, "expect: "); ok {
			name, want, _ := strings.Cut(what, " ")
			h.expect[name] = want
		}
		if what, ok := strings.CutPrefix(line, "answer: "); ok {
			name, option, _ := strings.Cut(what, " ")
			n, err := strconv.Atoi(option)
			must(t, err)
			h.answer[api.TaskID(name)] = n
		}
		if what, ok := strings.CutPrefix(line, "approve: "); ok {
			name, by, _ := strings.Cut(what, " ")
			h.approve[api.TaskID(name)] = api.Principal(by)
		}
	}
	return h
}

// outcomes describes the outcome of a run, in the form of a header.
func outcomes(run api.Run) map[string]string {
	found := map[string]string{"run": string(run.State)}
	for _, o := range run.Tasks {
		found[string(o.Task)] = strings.TrimSpace(string(o.State) + " " + string(o.Reason) + string(o.Cause))
	}
	return found
}

// differences lists where the outcome of a run differs from its header.
func (h header) differences(run api.Run) (bad []string) {
	found := outcomes(run)
	for name, want := range h.expect {
		if !slices.Contains(strings.Split(want, " or "), found[name]) {
			bad = append(bad, name+" is "+found[name]+", expected "+want)
		}
	}
	for name := range found {
		if h.expect[name] == "" {
			bad = append(bad, name+" is not mentioned")
		}
	}
	return bad
}

// Every example plan ends as its header says, in the repository that examples/setup
// creates, and its evidence verifies. People approve with a token and a key of their own.
//
// proves R-O2, R-O3, R-O4, R-O9
func TestExamplesRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	must(t, os.Chmod(w.dir, 0o755))
	w.init()
	setup, err := filepath.Abs("../examples/setup")
	must(t, err)
	if d := w.exec(setup, w.path("examples")); d.status != 0 {
		t.Fatalf("examples/setup: %s", d)
	}
	w.must("catalog", "apply", "-f", w.path("examples/bailiwick.yaml"))
	w.operator("ann")
	w.upRuns()
	w.downAtEnd()
	w.token("human:ann")
	files, err := filepath.Glob("../examples/*plan*.yaml")
	if must(t, err); len(files) < 3 {
		t.Fatalf("%d examples: %q", len(files), files)
	}
	for _, name := range files {
		file, err := filepath.Abs(name)
		must(t, err)
		text, err := os.ReadFile(file)
		must(t, err)
		h := readHeader(t, string(text))
		w.must("run", "validate", file)
		id := api.RunID(strings.TrimSpace(w.must("run", "submit", file, "-o", "name")))
		for task, option := range h.answer {
			w.awaitEvent(id, event("task.waiting", task))
			w.must("run", "answer", string(id), "--task", string(task), "--option", strconv.Itoa(option))
		}
		for task, by := range h.approve {
			w.awaitEvent(id, event("approval.requested", task))
			approval := strings.TrimSpace(w.must("approval", "list", "--all", "-o", "name"))
			w.refused(3, []string{"other people approve"}, "approval", "approve", approval)
			w.must("approval", "approve", approval, "--principal-token-file", w.tokenFile(string(by)), "--key", w.path("home/ann.key"))
		}
		run := w.awaitSettled(id)
		for _, bad := range h.differences(run) {
			t.Errorf("%s: %s", filepath.Base(name), bad)
		}
		w.verifyEvidence(string(id))
		if len(w.entries("--run", string(id), "--kind", "run.grown")) == 0 { // the replay of this suite knows fixed plans only
			w.replays(id)
		}
		// The control: a wrong header is detected.
		first := string(run.Tasks[0].Task)
		for _, planted := range []func(map[string]string){func(e map[string]string) { e[first] = "denied" }, func(e map[string]string) { delete(e, first) }, func(e map[string]string) { e["run"] = "waiting" }} {
			h := readHeader(t, string(text))
			planted(h.expect)
			if len(h.differences(run)) != 1 {
				t.Errorf("%s: a wrong header is not detected", filepath.Base(name))
			}
		}
	}
	if patch := w.must("dispatch", "patch", string(task(t, w.run("fan"), "merge").DispatchID)); strings.Count(patch, "diff --git") != 4 {
		t.Errorf("the merge of the fan is %s", patch)
	}
	// Of a task with a gate, the last fix has the patch: a branch of the run has all of it.
	w.must("run", "patch", "refactor", "--merge", "refactored", "--repo", w.path("examples/book"))
	if text := w.git("examples/book", "show", "refactored:one.txt"); !strings.Contains(text, "silver cat") || strings.Count(text, "Revised.") != 1 {
		t.Errorf("the branch has %q", text)
	}
	w.refused(1, []string{"no worker of its own"}, "run", "patch", "refactor", "edit")
	if report := w.output(w.run("report"), "report", "report.md"); !strings.HasPrefix(report, "# Words: 34\n") {
		t.Errorf("the report is %q", report)
	}
	if patch := w.must("dispatch", "patch", string(task(t, w.run("question"), "merge").DispatchID)); !strings.Contains(patch, "+The Grey Cat") || !strings.Contains(patch, "+Contents") {
		t.Errorf("the book with its title is %s", patch)
	}
}

// operator creates a further operator key, home/NAME.key, and lists it in operators.json.
func (w *world) operator(name string) {
	w.t.Helper()
	w.must("operator", "keygen", "--key", w.path("home", name+".key"), "--name", name, "--insecure-unencrypted")
	d := w.exec("jq", "-cS", `.keys += [input + {principal: "human:`+name+`"}]`, w.path("data/bailiwick/operators.json"), w.path("home", name+".key.pub"))
	if d.status != 0 {
		w.t.Fatal(d)
	}
	w.write("data/bailiwick/operators.json", d.stdout, 0o644)
}

// The nightly update of dependencies brings a package.json up to date, leaves what is up
// to date alone, and stops at the budget of its grant. All of it is in the history, the
// budgets and the evidence.
//
// proves R-O10, R-O11
func TestTheNightlyExampleUpdatesWithinItsBudget(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		must(t, os.Chmod(w.dir, 0o755))
		w.init()
		setup, err := filepath.Abs("../examples/nightly/setup")
		must(t, err)
		if d := w.exec(setup, w.path("nightly")); d.status != 0 {
			t.Fatalf("examples/nightly/setup: %s", d)
		}
		w.must("catalog", "apply", "-f", w.path("nightly/bailiwick.yaml"))
		w.upRuns()
		w.downAtEnd()
		w.must("principal", "add", "ci:nightly")
		w.must("ceiling", "set", "ci:nightly", "reversible")
		if next := w.must("schedule", "next", "dependencies", "-n", "7"); strings.Count(next, " 02:00 ") != 7 {
			t.Errorf("the next slots are\n%s", next)
		}
		night := func(want string) api.Run {
			t.Helper()
			id := api.RunID(strings.TrimSpace(w.must("schedule", "run", "dependencies", "-o", "name")))
			run := w.awaitSettled(id)
			wantStates(t, run, want)
			w.verifyEvidence(string(id))
			if history := w.must("schedule", "history", "dependencies", "-o", "json"); run.Principal != "ci:nightly" || !strings.Contains(history, string(id)) {
				t.Errorf("run %s of %s; the history is %s", id, run.Principal, history)
			}
			return run
		}
		budget := func(name string, left int) {
			t.Helper()
			if out := w.must("budget", "show", name); !strings.Contains(out, " "+strconv.Itoa(left)+" dispatches, ") {
				t.Errorf("%d dispatches should be left of %s:\n%s", left, name, out)
			}
		}

		first := night("done; outdated done; update done")
		patch := w.must("dispatch", "patch", string(task(t, first, "update").DispatchID))
		for _, line := range []string{`+    "express": "4.21.2",`, `+    "zod": "3.23.8"`} {
			if !strings.Contains(patch, line) || strings.Contains(patch, `-    "pino"`) {
				t.Errorf("the patch lacks %q, or changes pino:\n%s", line, patch)
			}
		}
		budget(string(first.RunID), 2)
		budget("nightly-ci-nightly", 10)

		// The next night finds nothing to do, after a person took the patch.
		w.must("run", "apply", string(first.RunID), "--repo", w.path("nightly/service"))
		w.commit("nightly/service", "Update the dependencies")
		second := night("done; outdated done; update skipped")
		if o := task(t, second, "update"); o.Cause != "outdated" {
			t.Errorf("update was skipped for %q: %s", o.Cause, o.Message)
		}
		budget("nightly-ci-nightly", 9)

		// Something new, and a budget of the day that has one dispatch left.
		w.write("nightly/index/latest.json", `{"express": "4.21.2", "pino": "9.6.0", "zod": "3.23.8"}`, 0o644)
		w.replace("nightly/bailiwick.yaml", "dispatches: 12", "dispatches: 4")
		w.must("catalog", "apply", "-f", w.path("nightly/bailiwick.yaml"))
		third := night("failed; outdated done; update denied denied")
		if message := task(t, third, "update").Message; !strings.Contains(message, "dispatches: 4 of 4 spent, 0 left") {
			t.Errorf("update was denied with %q", message)
		}
		if history := w.must("schedule", "history", "dependencies"); strings.Count(history, " done ") != 2 || strings.Count(history, " failed ") != 1 {
			t.Errorf("the history is\n%s", history)
		}
	})
}
