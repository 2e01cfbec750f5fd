package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const templatePlan = `id: release
labels: {ticket: OPS-12, file: "${params.file}"}
parameters:
  type: object
  required: [file]
  properties:
    file: {type: string}
    level: {type: integer, default: 1}
source: {name: repo}
tasks:
  - id: a
    subagent: sh
    input: {do: "echo ${params.file} ${params.level} > outputs/o; cat inputs/input.json > outputs/in", level: "${params.level}"}
`

// A plan with parameters runs with the values that are given and the defaults, the
// log says which, and runs are found by the labels of their plans.
//
// proves R-O2, R-B7
func TestPlansHaveParametersAndLabels(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.write("plan.yaml", templatePlan, 0o644)
	file := w.path("plan.yaml")
	w.must("run", "submit", file, "-p", "file=x.go", "--watch")
	run := w.run("release")
	if got := w.output(run, "a", "o"); got != "x.go 1\n" {
		t.Errorf("with the default: %q", got)
	}
	w.must("run", "submit", file, "-p", "file=y.go", "-p", "level=7", "--id", "other", "--watch")
	if got := w.output(w.run("other"), "a", "o"); got != "y.go 7\n" {
		t.Errorf("with a value: %q", got)
	}
	if text := w.history("other")[0].Text; !strings.Contains(text, `"file=\"y.go\""`) || !strings.Contains(text, "level=7") {
		t.Errorf("the entry: %s", text)
	}
	raw, err := w.conn().Runtime().RunPlan(t.Context(), "other")
	if must(t, err); strings.Contains(string(raw), "params") || !strings.Contains(string(raw), `"level":7`) {
		t.Errorf("the stored plan: %s", raw)
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{`$.parameters: parameter "file" has no value; give one: -p file=VALUE`, nil},
		{`the parameters do not match their schema: level: type: `, []string{"-p", "file=x", "-p", "level=1.5"}},
		{"requires a value of type integer", []string{"-p", "file=x", "-p", "level=high"}},
		{"no such parameter", []string{"-p", "file=x", "-p", "levels=1"}},
		{"want KEY=TEXT", []string{"-p", "file"}},
	} {
		w.refused(1, []string{c.says}, append([]string{"run", "submit", file, "--new"}, c.args...)...)
	}
	w.refused(1, []string{`-p file=VALUE`}, "run", "validate", file)
	w.must("run", "validate", file, "-p", "file=x")
	w.must("run", "render", file, "-p", "file=x")
	w.refused(5, []string{"bailiwick run submit " + file + " -p file=x.go --new"}, "run", "submit", file, "-p", "file=x.go")
	for label, want := range map[string]string{"ticket=OPS-12": "other release", "file=x.go": "release", "file=gone": "", "ticket=OPS": ""} {
		if got := strings.Join(strings.Fields(w.chosen(w.must("run", "list", "--label", label, "-o", "name"))), " "); got != want {
			t.Errorf("run list --label %s: %q, want %q", label, got, want)
		}
	}
	w.refused(1, []string{"want KEY=VALUE"}, "run", "list", "--label", "ticket")
	if out := w.must("run", "show", "release"); !strings.Contains(out, "file=x.go") || !strings.Contains(out, "ticket=OPS-12") {
		t.Errorf("run show: %s", out)
	}
	w.verifyEvidence("other")
}

// A dry run says what would run, with the decision about each task, and leaves
// nothing behind: no run and no entry.
//
// proves R-O2
func TestADryRunStartsAndLogsNothing(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.write("plan.yaml", templatePlan, 0o644)
	w.write("denied.yaml", "tasks: [{id: a, subagent: sh, input: {do: x}}, {id: b, subagent: secret}]\n", 0o644)
	before := len(w.entries())
	out := w.chosen(w.must("run", "submit", w.path("plan.yaml"), "-p", "file=x.go", "--dry-run"))
	if !strings.Contains(out, "run release would start 1 task in queue default") || !strings.Contains(out, "nothing was started") || !strings.Contains(out, "a  sh") {
		t.Errorf("%s", out)
	}
	var run api.Run
	decode(t, w.must("run", "submit", w.path("plan.yaml"), "-p", "file=x.go", "--dry-run", "-o", "json"), &run)
	if !run.DryRun || run.Total != 1 || run.Plan == "" || run.Revision == 0 {
		t.Errorf("as JSON: %+v", run)
	}
	w.refused(3, []string{"$.tasks[1] (task b): "}, "run", "submit", w.path("denied.yaml"), "--dry-run")
	if after := len(w.entries()); after != before {
		t.Errorf("%d entries were logged", after-before)
	}
	if out := w.must("run", "list", "-o", "name"); out != "" {
		t.Errorf("runs: %s", out)
	}
	w.must("run", "submit", w.path("plan.yaml"), "-p", "file=x.go", "--watch")
	w.refused(5, []string{"run release already exists"}, "run", "submit", w.path("plan.yaml"), "-p", "file=x.go", "--dry-run")
	// Uncommitted changes are a note.
	w.write("repo/a.txt", "changed\n", 0o644)
	if d := w.try("run", "submit", w.path("plan.yaml"), "-p", "file=x.go", "--new"); d.status != 0 || !strings.Contains(d.stderr, "note: source repo has uncommitted changes to 1 file") {
		t.Errorf("%s", d)
	}
	// A model gives values as a person does.
	req := api.RunRequest{RunID: "made", Parameters: map[string]json.RawMessage{"file": json.RawMessage(`"z"`)}}
	req.Plan = json.RawMessage(`{"parameters":{"type":"object","properties":{"file":{"type":"string"}}},"tasks":[{"id":"a","subagent":"sh","input":{"do":"true # ${params.file}"}}]}`)
	if run, err := w.conn().Runtime().Submit(t.Context(), req); err != nil || !w.names(string(run.RunID), "made") {
		t.Errorf("over the API: %+v %v", run, err)
	}
	w.awaitSettled("made")
}
