package e2e

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The built program checks plans in a world without a service, a catalog or a
// key, and changes no file there.
//
// proves R-O2
func TestPlansAreCheckedWithoutAService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.write("good.yaml", "tasks:\n- {id: a, subagent: s}\n- {id: b, subagent: s, needs: {x: {from: a, patch: true}}}\n", 0o644)
	w.write("bad.yaml", "tasks:\n- id: a\n  subagent: s\n  depends_on: [b]\n- {id: b, subagent: s, depends_on: [a], gate: {}}\n", 0o644)
	w.write("bad.json", `{"tasks": [{"id": "a", "subagent": "s", "subagent": "t"}]}`, 0o644)
	w.write("pangolin.json", `{"items": [{"id": "a", "executor": "dispatch", "inputs": {"subagent": "s"}, "resourceLocks": []}]}`, 0o644)
	w.write("shell.json", `{"items": [{"id": "a", "executor": "shell", "inputs": {"subagent": "s"}}]}`, 0o644)
	before := w.allFiles()
	for _, c := range []struct {
		line   string
		status int
		words  []string
	}{
		{"run validate good.yaml", 0, []string{"2 tasks, 1 dependency", "sha256:"}},
		{"run validate bad.yaml", 1, []string{"bad.yaml:4:16: $.tasks[0].depends_on[0] (task a): dependency cycle: a -> b -> a", "bad.yaml:5:41: $.tasks[1].gate (task b): missing key \"fix\"", "3 problems"}},
		{"run validate bad.yaml -o json", 1, []string{`"valid": false`, `"line": 4`, `"path": "$.tasks[1].gate"`}},
		{"run validate bad.json", 1, []string{"bad.json:1:41: ", `duplicate key "subagent"`}},
		{"run validate none.yaml", 1, []string{"no such file"}},
		{"run validate", 1, []string{"want: bailiwick run validate FILE"}},
		{"run render good.yaml", 0, []string{"1 a  s", "2 b  s  after a (patch as x)"}},
		{"run render good.yaml -o dot", 0, []string{"digraph plan {", "n0 -> n1"}},
		{"run render good.yaml -o mermaid", 0, []string{"flowchart LR"}},
		{"run schema", 0, []string{"https://json-schema.org/draft/2020-12/schema"}},
		{"run import pangolin.json", 0, []string{"- id: a", "subagent: s", "retry: {attempts: 2}"}},
		{"run import shell.json", 1, []string{"$.items[0].executor", `"shell"`, "name its target"}},
	} {
		args := strings.Fields(c.line)
		for i, a := range args {
			if strings.Contains(a, ".") {
				args[i] = w.path(a)
			}
		}
		w.refused(c.status, c.words, args...)
	}
	if after := w.allFiles(); after != before {
		t.Errorf("a verb that only reads a file changed the world: before\n%s\nafter\n%s", before, after)
	}
	// The control: a verb that needs a service changes files; on a machine, one that makes keys.
	w.try("dispatch", "list")
	if w.unit != nil {
		w.coldInit()
	}
	if w.allFiles() == before {
		t.Error("control: the check reports no change")
	}
	w.try("down")
}

// allFiles lists all files of the world.
func (w *world) allFiles() string {
	w.t.Helper()
	var b strings.Builder
	if err := filepath.WalkDir(w.dir, func(path string, _ fs.DirEntry, err error) error {
		b.WriteString(path + "\n")
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}

// What no worker could do is a problem of the plan when it is submitted, with its
// path and the task's name; nothing of the plan runs.
//
// proves R-O2
func TestAPlanThatCannotRunIsRefusedWithItsTasks(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0, subagent{name: "look", tier: "observe", script: "true"}, subagent{name: "short", script: "true", more: "    limits: {timeout: 1m}\n"})
	big := func(t *api.PlanTask) {
		t.Input, _ = json.Marshal(map[string]string{"do": strings.Repeat("x", 3<<20)}) // always encodes
	}
	_, err := w.conn().Runtime().Submit(t.Context(), request(t, planned("bad",
		shellTask("watch", "true", as("look"), func(t *api.PlanTask) { t.Input = nil }),
		shellTask("merge", "true", needing("change.patch", api.Need{From: "watch", Patch: true})),
		shellTask("late", "true", as("short"), within(2*time.Hour), func(t *api.PlanTask) { t.Input = nil }),
		shellTask("fine", "true", as("short"), within(time.Minute), func(t *api.PlanTask) { t.Input = nil }),
	)))
	wantCode(t, "the plan", err, api.CodeInvalid,
		`$.tasks[1].needs['change.patch'].patch (task merge): task "watch" returns no patch: its subagent "look" is of tier observe`,
		`$.tasks[2].timeout (task late): timeout of 2h0m0s: subagent "short" has the limit 1m0s`)
	if n := len(problems(err)); n != 2 {
		t.Errorf("%d problems: %v", n, problems(err))
	}
	_, err = w.conn().Runtime().Submit(t.Context(), request(t, planned("large", shellTask("huge", "true", big))))
	wantCode(t, "a large input", err, api.CodeInvalid, "$.tasks[0].input (task huge): ", "at most 2097152")
	_, err = w.conn().Runtime().Dispatch(t.Context(), api.DispatchRequest{Subagent: "short", TimeoutSeconds: 61})
	wantCode(t, "a dispatch", err, api.CodeInvalid, `subagent "short" has the limit 1m0s`)
	if n := len(w.entries("--kind", "run.submitted")); n != 0 {
		t.Errorf("%d runs were submitted", n)
	}
}
