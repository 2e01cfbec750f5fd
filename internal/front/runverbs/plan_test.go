package runverbs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// planRun executes a command line. FILE stands for a file with the text, and - for
// the text on standard input.
func planRun(t *testing.T, text, line string) (status int, out, errs string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	v := invocation{Output: console.Output{Stdout: &stdout, Stderr: &stderr}, Stdin: strings.NewReader(text), args: strings.Fields(strings.ReplaceAll(line, "FILE", file))}
	status = v.run(t.Context())
	return status, strings.ReplaceAll(stdout.String(), file, "FILE"), strings.ReplaceAll(stderr.String(), file, "FILE")
}

const drawnPlan = `source: {name: service}
tasks:
  - {id: merge, subagent: merger, depends_on: [right], needs: {a: {from: left, patch: true}, b: {from: right, output: sub/x "y".md}}}
  - {id: left, subagent: edit, locks: [k, {shared: go.mod}], retry: {attempts: 3}}
  - {id: right, subagent: edit, locks: [{shared: go.mod}]}
`

const wrongPlan = `# a comment
tasks:
  - id: a
    subagent: s
    depends_on: [b]
    neds: {}
  - id: b
    subagent: s
    depends_on: [a, ghost]
`

// Validation needs no service.
//
// proves R-O2
func TestValidateReportsAllProblemsWithTheirPlace(t *testing.T) {
	wrong := `FILE:5:18: $.tasks[0].depends_on[0] (task a): dependency cycle: a -> b -> a
FILE:6:5: $.tasks[0].neds (task a): unknown key "neds"; did you mean "needs"?
FILE:9:21: $.tasks[1].depends_on[1] (task b): no such task "ghost"
`
	status, out, errs := planRun(t, wrongPlan, "run validate FILE")
	lines := strings.SplitAfter(errs, "\n")
	for want := range strings.Lines(wrong) {
		if !strings.Contains(errs, want) {
			t.Errorf("%s lacks %s", errs, want)
		}
	}
	if status != 1 || out != "" || len(lines) != 6 || !strings.Contains(errs, "the plan has 3 problems") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	if status, _, errs := planRun(t, wrongPlan, "run validate -"); status != 1 || !strings.Contains(errs, "-:6:5: $.tasks[0].neds") {
		t.Errorf("standard input: status %d, %q", status, errs)
	}
	// Control: a valid plan.
	status, out, errs = planRun(t, drawnPlan, "run validate FILE")
	if status != 0 || errs != "" || !strings.HasPrefix(out, "FILE: 3 tasks, 2 dependencies, 2 locks, 2 layers\nqueue       default\ndigest      sha256:") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

func TestValidateReportsTheSameAsJSON(t *testing.T) {
	var v struct {
		Valid    bool
		Digest   api.Digest
		Tasks    int
		Problems []struct {
			Path, Message string
			Line, Column  int
		}
	}
	status, out, errs := planRun(t, wrongPlan, "run validate FILE -o json")
	if err := json.Unmarshal([]byte(out), &v); err != nil || status != 1 || errs != "" || v.Valid || len(v.Problems) != 3 {
		t.Fatalf("status %d, %v, %q, %+v", status, err, errs, v)
	}
	for _, p := range v.Problems {
		if p.Path == "" || p.Message == "" || p.Line == 0 || p.Column == 0 {
			t.Errorf("%+v", p)
		}
	}
	status, out, _ = planRun(t, drawnPlan, "run validate - -o jsonl")
	v.Problems = nil
	if err := json.Unmarshal([]byte(out), &v); err != nil || status != 0 || !v.Valid || v.Tasks != 3 || len(v.Problems) > 0 {
		t.Fatalf("status %d, %v, %+v", status, err, v)
	}
	if _, out, _ := planRun(t, drawnPlan, "run validate - -o name"); strings.TrimSpace(out) != string(v.Digest) {
		t.Errorf("%q, want %s", out, v.Digest)
	}
	// The text is not even YAML.
	status, out, _ = planRun(t, "tasks: [", "run validate FILE -o json")
	if err := json.Unmarshal([]byte(out), &v); err != nil || status != 1 || v.Valid || len(v.Problems) != 1 {
		t.Errorf("status %d, %v, %+v", status, err, v)
	}
}

func TestRenderDrawsDependencies(t *testing.T) {
	for line, want := range map[string]string{
		"run render FILE": `3 tasks, 2 dependencies, 2 locks, 2 layers
    1 left   edit    holds k, shared go.mod; 3 attempts
      right  edit    holds shared go.mod
    2 merge  merger  after left (patch as a), right (sub/x "y".md as b)
`,
		"run render - -o dot": `digraph plan {
  rankdir=LR;
  node [shape=box, style=rounded];
  n0 [label="merge\nmerger"];
  n1 [label="left\nedit"];
  n2 [label="right\nedit"];
  n1 -> n0 [label="(patch as a)"];
  n2 -> n0 [label="(sub/x \"y\".md as b)"];
}
`,
		"run render FILE -o mermaid": `flowchart LR
  n0["merge<br/>merger"]
  n1["left<br/>edit"]
  n2["right<br/>edit"]
  n1 -->|"(patch as a)"| n0
  n2 -->|"(sub/x #34;y#34;.md as b)"| n0
`,
	} {
		if status, out, errs := planRun(t, drawnPlan, line); status != 0 || out != want || errs != "" {
			t.Errorf("%s: status %d, %q\n%s\nwant\n%s", line, status, errs, out, want)
		}
	}
	_, out, _ := planRun(t, drawnPlan, "run render FILE -o json")
	if p, problems := plan.Parse([]byte(out)); problems != nil || string(p.Canonical())+"\n" != out {
		t.Errorf("%s: %v", out, problems)
	}
	if status, out, errs := planRun(t, wrongPlan, "run render FILE"); status != 1 || out != "" || !strings.Contains(errs, "FILE:6:5: ") {
		t.Errorf("a bad plan: status %d, %q, %q", status, out, errs)
	}
	if status, _, errs := planRun(t, drawnPlan, "run render FILE -o jsonl"); status != 1 || !strings.Contains(errs, "want text, dot, mermaid or json") {
		t.Errorf("status %d, %q", status, errs)
	}
}

// A plan that grows is drawn by its templates, a run by its tasks.
//
// proves R-O9
func TestRenderDrawsWhatGrows(t *testing.T) {
	const grows = `tasks:
- {id: split, subagent: splitter}
- {id: part, subagent: edit, for_each: {from: split, outputs: "p/*"}, gate: {verify: check, fix: fixer}}
- {id: all, subagent: merger, needs: {p: {from: part, patch: true}}, when: {task: split, result: $.n, is: 2}}
- {id: review, quorum: {of: [a, "human:ann"], approve: 2}, depends_on: [all]}
- {id: ship, approval: {by: ["human:ann"]}, depends_on: [review]}
`
	status, out, errs := planRun(t, grows, "run render FILE")
	for _, want := range []string{"part    edit  ", "after split (for each p/*); gate check, fixer fixes at most 1", "after split (when $.n is 2), part (patch as p)", "votes: 2 of a, human:ann  after all", "approval: 1 of human:ann  after review"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, %s\n%s\nlacks %s", status, errs, out, want)
		}
	}
	if _, out, _ := planRun(t, grows, "run render FILE -o dot"); !strings.Contains(out, `n1 [label="part\nedit\ngate check, fixer fixes at most 1", peripheries=2];`) || !strings.Contains(out, `n0 -> n1 [label="(for each p/*)"];`) {
		t.Error(out)
	}
	d := drawingOf([]api.RunTask{
		{Task: "part", State: api.TaskGrowing, Subagent: "edit"}, {Task: "part[a]", State: api.TaskDone, Subagent: "edit", GrewFrom: "part"}, {Task: "all", State: api.TaskPending, Subagent: "merger", After: []api.TaskID{"part"}},
	})
	want := "flowchart LR\n  n0[[\"part<br/>edit growing\"]]\n  n1[\"part#91;a#93;<br/>edit done\"]\n  n2[\"all<br/>merger pending\"]\n  n0 -.-> n1\n  n0 --> n2\n"
	if got := d.Mermaid(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if status, _, errs := planRun(t, grows, "run render FILE --run r1"); status != 1 || errs == "" {
		t.Errorf("a plan and a run: status %d, %s", status, errs)
	}
}

func TestSchemaIsPrinted(t *testing.T) {
	if status, out, _ := planRun(t, "", "run schema"); status != 0 || out != string(api.PlanSchema()) {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestImportReportsTheTranslation(t *testing.T) {
	theirs := `{"items": [
  {"id": "a", "executor": "dispatch", "inputs": {"subagent": "edit", "workerInput": {"file": "x"}}, "resourceLocks": ["k"]},
  {"id": "b~2", "executor": "remote", "inputs": {"subagent": "edit"}, "depends_on": ["a"]}]}`
	status, out, errs := planRun(t, theirs, "run import --executor remote=big FILE")
	want := `queue: default
tasks:
  - id: a
    subagent: edit
    input: {file: x}
    locks: [k]
    retry: {attempts: 2}
  - id: b-2
    subagent: edit
    depends_on: [a]
    retry: {attempts: 2}
    target: big
`
	wantErrs := `FILE: $.items[1].id: "b~2" is written b-2
FILE: $.items: each task gets retry: {attempts: 2}, the default of Pangolin's engine
`
	if status != 0 || out != want || errs != wantErrs {
		t.Errorf("status %d\n%s\n%s", status, out, errs)
	}
	if status, _, errs := planRun(t, out, "run validate FILE"); status != 0 {
		t.Errorf("the written plan is invalid: %s", errs)
	}
	if status, out, _ := planRun(t, theirs, "run import - --executor remote=big -o json"); status != 0 || !strings.HasPrefix(out, `{"queue":"default","tasks":[{"id":"a"`) {
		t.Errorf("status %d, %s", status, out)
	}
	status, out, errs = planRun(t, strings.Replace(theirs, `"depends_on"`, `"onFailure"`, 1), "run import FILE")
	for _, problem := range []string{`FILE:3:71: $.items[1].onFailure: "onFailure" has no translation`, `FILE:3:17: $.items[1].executor: executor "remote": name its target; use --executor remote=TARGET`} {
		if status != 1 || out != "" || !strings.Contains(errs, problem) {
			t.Errorf("status %d, %q, %q, want %s", status, out, errs, problem)
		}
	}
	if status, _, errs = planRun(t, theirs, "run import FILE --executor remote"); status != 1 || !strings.Contains(errs, "want EXECUTOR=TARGET") {
		t.Errorf("status %d, %q", status, errs)
	}
}

// Neither a plan nor the name of its file is trusted.
//
// proves R-D7
func TestPlanTextIsEscaped(t *testing.T) {
	for _, text := range []string{
		`{"tasks":[{"id":"\u001b[2J","subagent":"s","\u001b]0;x\u0007":1,"depends_on":["\u202e"],"locks":["\u009b1A"]}]}`,
		"tasks: [\"\x1b[2J\"",
		`{"items":[{"id":"\u001b[2J","title":"\u001b[2J","executor":"\u001b[2J"}]}`,
		`{"tasks":[{"id":"a","subagent":"s","locks":["e\u0301\u0301\u0301\u0301\u0301\u0301"]},{"id":"b","subagent":"s","needs":{"x":{"from":"a","output":"e\u0301\u0301\u0301\u0301\u0301\u0301"}}}]}`,
	} {
		for _, line := range []string{"run validate FILE", "run render FILE", "run render FILE -o dot", "run render FILE -o mermaid", "run import FILE"} {
			_, out, errs := planRun(t, text, line)
			if controls(out) || controls(errs) {
				t.Errorf("%s: %q %q", line, out, errs)
			}
		}
	}
	if !controls("\x1b[2J") {
		t.Error("control: the text of the plan is not shown at all")
	}
}
