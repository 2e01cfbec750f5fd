package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// header is the expected outcome of an example, from the comment at its top.
type header struct {
	expect map[string]string  // by task, and "run": the state, with a reason or cause
	answer map[api.TaskID]int // the option to choose
}

func readHeader(t testing.TB, text string) header {
	t.Helper()
	h := header{map[string]string{}, map[api.TaskID]int{}}
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
		if found[name] != want {
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

// Every example plan ends as its header says, in the repository that
// examples/setup creates.
//
// proves R-O2, R-O3, R-O4
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
	w.upRuns()
	w.downAtEnd()
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
		run := w.awaitSettled(id)
		for _, bad := range h.differences(run) {
			t.Errorf("%s: %s", filepath.Base(name), bad)
		}
		w.replays(id)
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
	if report := w.output(w.run("report"), "report", "report.md"); !strings.HasPrefix(report, "# Words: 34\n") {
		t.Errorf("the report is %q", report)
	}
	if patch := w.must("dispatch", "patch", string(task(t, w.run("question"), "merge").DispatchID)); !strings.Contains(patch, "+The Grey Cat") || !strings.Contains(patch, "+Contents") {
		t.Errorf("the book with its title is %s", patch)
	}
}
