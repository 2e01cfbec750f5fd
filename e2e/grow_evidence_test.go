package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// The evidence about a run that grew by every construct verifies offline, and the
// service agrees.
//
// proves R-O9, R-A7
func TestEvidenceOfRunsThatGrewVerifiesOffline(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, evidenceOfRunsThatGrewVerifiesOffline)
}

func evidenceOfRunsThatGrewVerifiesOffline(t *testing.T, uid int) {
	lists := `    output: {type: object, properties: {files: {type: array}, risk: {type: string}, verdict: {type: string}}}` + "\n"
	script := func(result string) string { return "mkdir -p outputs\necho '" + result + "' > outputs/result.json\n" }
	w := orchestrated(t, uid,
		subagent{name: "lists", script: script(`{"files": ["x", {"name": "y"}, "z"], "risk": "low"}`), more: lists},
		subagent{name: "wrong", script: script(`{"files": ["x", "../y"]}`), more: lists},
		subagent{name: "verifier", script: "mkdir -p outputs\nif grep -q '^+fixed' inputs/change; then v=green; else v=red; fi\necho '{\"verdict\": \"'$v'\"}' > outputs/result.json\n", more: lists},
		subagent{name: "fixer", script: "echo fixed > fixed.txt\n"},
		subagent{name: "yes", script: script(`{"verdict": "approve"}`), more: lists},
		subagent{name: "no", script: script(`{"verdict": "reject"}`), more: lists},
	)
	trust := w.trustFile()
	for name, c := range map[string]struct {
		state api.RunState
		plan  string
	}{
		"maps":     {api.RunDone, `{"id": "list", "subagent": "lists"}, {"id": "part", "subagent": "fixer", "for_each": {"from": "list", "items": "$.files[*]"}}, {"id": "all", "subagent": "sh", "input": {"do": "ls inputs/in/x inputs/in/y inputs/in/z"}, "needs": {"in": {"from": "part", "patch": true}}}`},
		"cannot":   {api.RunFailed, `{"id": "list", "subagent": "wrong"}, {"id": "part", "subagent": "fixer", "for_each": {"from": "list", "items": "$.files[*]"}}, {"id": "next", "subagent": "fixer", "depends_on": ["part"]}`},
		"loses":    {api.RunFailed, `{"id": "part", "subagent": "sh", "input": {"do": "{{each.value}}"}, "for_each": {"values": [{"name": "a", "do": 1}, "true"]}}`},
		"some":     {api.RunFailed, `{"id": "part", "subagent": "sh", "input": {"do": "{{each.name}}"}, "for_each": {"values": ["true", "false"]}}, {"id": "all", "subagent": "sh", "input": {"do": "ls inputs/in/true"}, "needs": {"in": {"from": "part", "patch": true, "allow_failed": true}}}`},
		"fixed":    {api.RunDone, `{"id": "work", "subagent": "sh", "input": {"do": "echo bad > a.txt"}, "gate": {"verify": "verifier", "fix": "fixer", "attempts": 2}}, {"id": "next", "subagent": "sh", "input": {"do": "grep fixed inputs/in"}, "needs": {"in": {"from": "work", "patch": true}}}`},
		"red":      {api.RunFailed, `{"id": "work", "subagent": "sh", "input": {"do": "echo bad > a.txt"}, "gate": {"verify": "verifier", "fix": {"subagent": "sh", "input": {"do": "echo no > b.txt"}}, "attempts": 2}}`},
		"approved": {api.RunDone, `{"id": "work", "subagent": "fixer"}, {"id": "vote", "quorum": {"of": ["yes", "no", "yes"], "approve": 2}, "needs": {"in": {"from": "work", "patch": true}}}, {"id": "next", "subagent": "fixer", "depends_on": ["vote"]}`},
		"rejected": {api.RunFailed, `{"id": "work", "subagent": "fixer"}, {"id": "vote", "quorum": {"of": ["no", "no", "yes"], "approve": 2}, "needs": {"in": {"from": "work", "patch": true}}}`},
		"branches": {api.RunDone, `{"id": "list", "subagent": "lists"}, {"id": "high", "subagent": "fixer", "when": {"task": "list", "result": "$.risk", "is": "high"}}, {"id": "low", "subagent": "fixer", "when": {"task": "list", "result": "$.risk", "is": "low"}}, {"id": "next", "subagent": "fixer", "depends_on": ["high", "low"], "after": "any"}, {"id": "never", "subagent": "fixer", "depends_on": ["high"]}`},
		"gates":    {api.RunDone, `{"id": "list", "subagent": "lists"}, {"id": "part", "subagent": "sh", "input": {"do": "echo bad > a.txt"}, "for_each": {"from": "list", "items": "$.files[*]"}, "gate": {"verify": "verifier", "fix": "fixer"}}, {"id": "all", "subagent": "sh", "input": {"do": "grep fixed inputs/in/x"}, "needs": {"in": {"from": "part", "patch": true}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var p api.Plan
			must(t, json.Unmarshal([]byte(`{"id": "`+name+`", "source": {"name": "repo"}, "tasks": [`+c.plan+`]}`), &p))
			run := w.awaitSettled(w.submit(p))
			if run.State != c.state {
				t.Errorf("the run is %s, want %s: %+v", run.State, c.state, run.Tasks)
			}
			d := w.verifyOffline(w.exported(name), "--trust", trust, "-o", "json")
			var r report.Report
			if err := json.Unmarshal([]byte(d.stdout), &r); err != nil || r.Failed() {
				t.Errorf("the evidence does not verify (%v):\n%s\n%s", err, r.Text(), w.must("audit", "list", "--run", name))
			}
			if name == "maps" { // a task that grew, alone: with the dispatch that left its list
				if r := w.verifyEvidence(string(run.Tasks[3].DispatchID)); run.Tasks[3].GrewFrom != "part" || r.Dispatches != 2 {
					t.Errorf("%s: %s", run.Tasks[3].Task, r.Text())
				}
			}
		})
	}
	if st := w.must("audit", "list", "--kind", "evidence.refused"); len(st) > 200 {
		t.Errorf("the service refuses its own evidence:\n%s", st)
	}
}

// A cancel of a run or a for_each also ends the task that still waits for its lock, and the
// cancel of the last task ends its for_each.
//
// proves R-A7 (no false alarm)
func TestEvidenceOfACancelledForEachVerifiesOffline(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0, subagent{name: "stays", script: "echo begun; if grep -q stay inputs/input.json; then sleep 600; fi", more: "    input: {type: object, properties: {of: {type: string}}}\n"})
	for name, c := range map[string]struct {
		first            string
		begun, cancelled api.TaskID
	}{"whole": {"stay", "part[stay]", ""}, "parent": {"stay", "part[stay]", "part"}, "last": {"end", "part[stays]", "part[stays]"}} {
		t.Run(name, func(t *testing.T) {
			id := w.submit(planned(api.RunID(name), api.PlanTask{
				ID: "part", Subagent: "stays", Input: json.RawMessage(`{"of": "{{each.name}}"}`), Locks: []api.Lock{{Key: name}},
				ForEach: &api.ForEach{Values: []json.RawMessage{[]byte(`"` + c.first + `"`), []byte(`"stays"`)}},
			}))
			w.begunTask(id, c.begun)
			_, err := w.conn().Operator().CancelRun(t.Context(), id, api.RunCancel{Task: c.cancelled, Reason: "not this"})
			must(t, err)
			if run := w.awaitSettled(id); run.State != api.RunCancelled || run.Tasks[0].State != api.TaskCancelled {
				t.Errorf("the run is %s: %+v", run.State, run.Tasks)
			}
			if r := w.verifyEvidence(name); r.Failed() || strings.Contains(r.Text(), "cancelled by service") {
				t.Errorf("the evidence:\n%s", r.Text())
			}
		})
	}
}

// growers are subagents whose results let runs grow. What they leave depends on their
// dispatch: some of it grows nothing.
func growers() []subagent {
	const output = "    output: {type: object}\n"
	leaves := func(results ...string) string {
		script := "mkdir -p outputs/parts\ncase $(printf %s \"$BAILIWICK_DISPATCH\" | sha256sum) in\n"
		for i, r := range results {
			of := "*"
			if i < len(results)-1 {
				of = "[" + "0123456789abcdef"[16*i/len(results):16*(i+1)/len(results)] + "]*"
			}
			script += of + ") echo '" + r + "' > outputs/result.json;;\n"
		}
		return script + "esac\n"
	}
	// A voter may still run, and then fail or not, when its quorum is known.
	const late = "case $(printf %s \"$BAILIWICK_DISPATCH\" | sha256sum) in ?[0-4]*) sleep 0.4; exit 3;; ?[5-8]*) sleep 0.6;; esac\n"
	return []subagent{
		{name: "lists", script: leaves(`{"files": ["x", {"name": "y"}, "z"], "risk": "low"}`, `{"files": [], "risk": "high"}`, `{"files": ["../x"], "risk": 1}`, `{"files": {}}`, `{"files": ["w"], "risk": "high"}`) + "echo 1 > outputs/parts/a; echo 2 > outputs/parts/b; echo more >> a.txt", more: output},
		{name: "gates", script: leaves(`{"verdict": "red"}`, `{"verdict": "green"}`, `{"verdict": "red"}`, `{"verdict": "GREEN"}`), more: output},
		{name: "votes", script: leaves(`{"verdict": "approve", "why": "good"}`, `{"verdict": "approve"}`, `{"verdict": "reject"}`, `{"verdict": ["approve"]}`) + late, more: output},
		{name: "part", script: "case $(printf %s \"$BAILIWICK_DISPATCH\" | sha256sum) in [0-3]*) exit 3;; esac; cat inputs/input.json 2>/dev/null > part.txt || echo done > part.txt", more: "    input: {type: object, properties: {of: {type: string, maxLength: 1}}}\n"},
	}
}

// grows adds tasks that grow to a plan.
func (h *honest) grows(p *api.Plan) {
	one := func(n int) bool { return h.rng.IntN(n) == 0 }
	add := func(t api.PlanTask) *api.PlanTask {
		t.ID = api.TaskID(fmt.Sprintf("grow-%d", len(p.Tasks)))
		p.Tasks = append(p.Tasks, t)
		return &p.Tasks[len(p.Tasks)-1]
	}
	some := func(t *api.PlanTask) {
		if one(3) {
			t.Locks = []api.Lock{{Key: "k1", Shared: one(2)}}
		}
		if one(3) {
			t.Retry = api.Retry{Attempts: 2, Backoff: api.Backoff{Min: api.Duration(10 * time.Millisecond), Max: api.Duration(20 * time.Millisecond)}}
		}
	}
	list := add(api.PlanTask{Subagent: "lists"}).ID
	last := list
	for range 1 + h.rng.IntN(3) {
		t := api.PlanTask{Subagent: "part"}
		some(&t)
		switch h.rng.IntN(5) {
		case 0:
			t.ForEach = &api.ForEach{From: list, Items: "$.files[*]"}
			t.Input = json.RawMessage(`{"of": "{{each.name}}"}`)
		case 1:
			t.ForEach = &api.ForEach{From: list, Outputs: "parts/*"}
			t.Needs = map[api.Name]api.Need{"in": {From: list, Output: "{{each.path}}"}}
			t.Locks = append(t.Locks, api.Lock{Key: "part/{{each.name}}"})
		case 2:
			t.ForEach = &api.ForEach{Values: []json.RawMessage{[]byte(`"u"`), []byte(`{"name": "v"}`)}}
			t.DependsOn = []api.TaskID{last}
		case 3:
			t.Subagent, t.Locks = "", nil
			t.Quorum = &api.Quorum{Of: []string{"votes", "votes", "votes"}[:1+h.rng.IntN(3)], Approve: 1}
			if n := len(t.Quorum.Of); n > 2 {
				t.Quorum.Approve = 2
			}
			t.Needs = map[api.Name]api.Need{"in": {From: list, Patch: true}}
		case 4:
			t = api.PlanTask{Approval: h.approval(), DependsOn: []api.TaskID{last}}
		}
		if t.Subagent != "" && one(2) {
			t.Gate = &api.Gate{Verify: api.GateStep{Subagent: "gates"}, Fix: api.GateStep{Subagent: "part"}, Attempts: 1 + h.rng.IntN(2)}
		}
		if one(3) {
			t.When = &api.When{Task: list, Result: "$.risk", Is: json.RawMessage(`"low"`)}
		}
		if one(4) {
			t.After = api.AfterAny
			t.DependsOn = []api.TaskID{last}
		}
		grown := add(t)
		last = grown.ID
		if t.Subagent == "" || one(2) {
			continue
		}
		next := api.PlanTask{Subagent: "part", Needs: map[api.Name]api.Need{"all": {From: last, Patch: true, AllowFailed: t.ForEach != nil && one(2)}}}
		if one(3) {
			next.After = api.AfterAny
		}
		add(next)
	}
	if one(6) {
		p.Limits.Tasks = len(p.Tasks) + 4 + h.rng.IntN(8)
	}
}

// moreTasks requests that tasks are added to a run; one of them cannot grow.
func moreTasks(run *api.Run) api.RunAppend {
	id := strings.Map(func(r rune) rune {
		if strings.ContainsRune("[].", r) {
			return '-'
		}
		return r
	}, string(run.Tasks[0].Task))
	t := fmt.Sprintf(`[{"id": "more-%s", "subagent": "part", "depends_on": [%q], "gate": {"verify": "gates", "fix": "part"}}, {"id": "each-%[1]s", "subagent": "part", "for_each": {"values": ["s", "tt"]}, "input": {"of": "{{each.name}}"}}]`, id, run.Tasks[0].Task)
	return api.RunAppend{Tasks: json.RawMessage(t), Key: string(run.RunID)}
}
