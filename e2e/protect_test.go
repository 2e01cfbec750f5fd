package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A patch that changes the check which verify runs makes it green: the record, the log, the
// evidence and a protected gate say so, and the gate refuses it. A check that comes from a
// capability cannot be changed. Each attack has a control: the ordinary change, which raises
// nothing.
//
// proves R-D10, R-O9
func TestAPatchThatWritesItsOwnCheck(t *testing.T) {
	t.Parallel()
	const obeys = "set -e\nmkdir -p outputs\neval \"$(cat inputs/prompt.md)\""
	more := func(verify string) string {
		return "    prompt: \"{{.do}}\"\n    verify: {command: " + verify + "}\n"
	}
	w := orchestrated(
		t, 0,
		subagent{name: "own", script: obeys, more: more("[./link.sh], protects: ['prüfung/**']")},
		subagent{name: "capable", script: obeys, more: more("[./judge.sh]")},
		subagent{name: "verifier", script: "mkdir -p outputs\necho '{\"verdict\": \"green\"}' > outputs/result.json\n", more: "    output: {type: object}\n"},
	)
	w.write("project/capabilities/capable/judge.sh", "#!/bin/sh\ntest -e good\n", 0o755)
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.write("repo/check.sh", "#!/bin/sh\ntest -e good\n", 0o755)
	w.write("repo/prüfung/a.txt", "a\n", 0o644)
	must(t, os.Symlink("check.sh", w.path("repo/link.sh")))
	w.commit("repo", "with a check")

	const cheats = "echo '#!/bin/sh' > check.sh"
	for name, c := range map[string]struct {
		subagent, do string
		state        api.Event
		changed      string
	}{
		"the ordinary change":       {"own", "echo x > good", api.EventFinished, ""},
		"a change that is bad":      {"own", "echo x > bad", api.EventFailed, ""},
		"the check behind a link":   {"own", cheats, api.EventFinished, "check.sh"},
		"the link itself":           {"own", "echo '#!/bin/sh' > new.sh; chmod +x new.sh; ln -sf new.sh link.sh", api.EventFinished, "link.sh new.sh"},
		"a protected file":          {"own", "echo x > good; echo b > prüfung/a.txt", api.EventFinished, "prüfung/a.txt"},
		"of a capability, good":     {"capable", "echo x > good", api.EventFinished, ""},
		"of a capability, bad":      {"capable", "echo x > bad", api.EventFailed, ""},
		"of a capability, attacked": {"capable", "echo '#!/bin/sh' > judge.sh; echo x > bad", api.EventFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			input, err := json.Marshal(map[string]string{"do": c.do})
			must(t, err)
			d := w.dispatch(c.subagent, "--source", "repo", "--input", string(input))
			v := &api.VerifyReport{}
			if d.Outcome != nil && d.Outcome.Verify != nil {
				v = d.Outcome.Verify
			}
			if d.State != c.state || v.Passed != (c.state == api.EventFinished) || strings.Join(v.Changed, " ") != c.changed {
				t.Fatalf("%s, want %s with changed checks %q: %+v %s", d.State, c.state, c.changed, v, d.Message)
			}
			shown, logged := w.must("dispatch", "show", string(d.ID)), w.must("audit", "list", "--dispatch", string(d.ID))
			said := strings.Contains(shown, "the patch changes "+strings.ReplaceAll(c.changed, " ", ", ")+", which verify runs")
			if said != (c.changed != "") || strings.Contains(logged, "that it runs") != said {
				t.Errorf("said: %t\n%s\n%s", said, shown, logged)
			}
			if r := w.verifyEvidence(string(d.ID)); r.Failed() || strings.Contains(r.Text(), "which verify runs") != said {
				t.Errorf("said: %t\n%s", said, r.Text())
			}
		})
	}
	for name, c := range map[string]struct {
		do    string
		gate  string
		state api.TaskState
		want  string
	}{
		"ordinary":      {"echo x > good", `, "protected": true`, api.TaskDone, ""},
		"refused":       {cheats, `, "protected": true`, api.TaskFailed, `the patch changes "check.sh", which verify runs, and the gate of task work is protected`},
		"not protected": {cheats, "", api.TaskDone, ""},
	} {
		t.Run("gate, "+name, func(t *testing.T) {
			do, err := json.Marshal(c.do)
			must(t, err)
			var p api.Plan
			must(t, json.Unmarshal([]byte(`{"source": {"name": "repo"}, "tasks": [{"id": "work", "subagent": "own", "input": {"do": `+string(do)+`}, "gate": {"verify": "verifier", "fix": "own"`+c.gate+`}}]}`), &p))
			run := w.awaitSettled(w.submit(p))
			if work := run.Tasks[0]; work.State != c.state || !strings.Contains(work.Message, c.want) || (work.Reason == api.ReasonVerify) != (c.want != "") {
				t.Errorf("%s %s: %s, want %s: %s", work.State, work.Reason, work.Message, c.state, c.want)
			}
			if r := w.verifyEvidence(string(run.RunID)); r.Failed() || strings.Contains(r.Text(), "the patch changes check.sh, which verify runs") != (c.do == cheats) {
				t.Errorf("the evidence:\n%s", r.Text())
			}
		})
	}
	// A protected gate needs a verify command of the task and of the fix.
	_, err := w.conn().Runtime().Submit(t.Context(), request(t, api.Plan{Source: &api.SourceRequest{Name: "repo"}, Tasks: []api.PlanTask{
		{ID: "work", Subagent: "own", Input: json.RawMessage(`{"do": "true"}`), Gate: &api.Gate{Verify: api.GateStep{Subagent: "verifier"}, Fix: api.GateStep{Subagent: "sh", Input: json.RawMessage(`{"do": "true"}`)}, Protected: true}},
	}}))
	if found := strings.Join(problems(err), "\n"); !strings.Contains(found, `$.tasks[0].gate.protected`) || !strings.Contains(found, `subagent "sh" has no verify command`) {
		t.Errorf("a protected gate whose fix has no verify command: %v\n%s", err, found)
	}
}
