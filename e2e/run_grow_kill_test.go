package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// growKinds lists the kinds of dispatches whose products decide how a run grows. What
// each says is fixed, so that the checks know what has to grow.
func growKinds() []kind {
	finishes := func(name, script, more string) kind {
		return kind{subagent: subagent{name: name, script: half + script, more: more}, want: endsWith(api.EventFinished, ""), patch: true, log: "begun\n"}
	}
	says := func(name, result string) kind {
		return finishes(name, result+" > outputs/result.json", "    output: {type: object, properties: {files: {type: array}, risk: {type: string}, verdict: {type: string}}}\n")
	}
	return []kind{
		says("lists", `echo '{"files": ["x", {"name": "y"}, "z"], "risk": "low"}'`),
		says("checks", `if grep -q '^+fixed' inputs/change; then v=green; else v=red; fi; printf '{"verdict": "%s"}' $v`),
		says("approves", `grep -q '^+half' inputs/in && echo '{"verdict": "approve"}'`),
		says("rejects", `echo '{"verdict": "reject"}'`),
		finishes("fixes", `grep -q '^+half' inputs/change && grep -q red inputs/verdict && echo fixed > fixed.txt`, ""),
		finishes("uses", `grep -q '^+fixed' inputs/in`, ""),
		finishes("gathers", `{ ls inputs/in 2> /dev/null || true; } > outputs/got`, ""),
		finishes("pure", `cat /proc/sys/kernel/random/uuid > outputs/id`, "    effect: pure\n"),
	}
}

// itemsOfTrial are the names of the items of every for_each of a trial.
func itemsOfTrial() []string { return []string{"x", "y", "z"} }

// constructs are the ways in which the plan of a trial grows, waits or is bounded.
func constructs() []string {
	return []string{"list", "gate", "quorum", "approval", "append", "pure", "values", "when", "people", "gates", "budget", "denial", "unfixed"}
}

// construct adds a construct to the plan of a run.
func (k *trial) construct(j *runJob, how string) {
	p := &j.plan
	add := func(name string, t api.PlanTask) api.TaskID {
		t.ID = api.TaskID(fmt.Sprintf("%s.%d", name, len(p.Tasks)))
		if t.Subagent == "" && t.Quorum == nil && t.Approval == nil {
			t.Subagent = api.Name(name)
		}
		p.Tasks = append(p.Tasks, t)
		return t.ID
	}
	patch := func(from api.TaskID) map[api.Name]api.Need {
		return map[api.Name]api.Need{"in": {From: from, Patch: true}}
	}
	gate := &api.Gate{Verify: api.GateStep{Subagent: "checks"}, Fix: api.GateStep{Subagent: "fixes"}, Attempts: 2}
	values := func() (list []json.RawMessage) {
		for _, name := range itemsOfTrial() {
			list = append(list, json.RawMessage(fmt.Sprintf("%q", name)))
		}
		return list
	}
	quick := api.Retry{Attempts: 3, Backoff: api.Backoff{Min: api.Duration(10 * time.Millisecond), Max: api.Duration(50 * time.Millisecond)}}
	switch how {
	case "list", "values":
		of := api.ForEach{Values: values()}
		if how == "list" {
			of = api.ForEach{From: add("lists", api.PlanTask{}), Items: "$.files[*]"}
		}
		part := add("part", api.PlanTask{Subagent: []api.Name{"flaky", "edits"}[k.rng.IntN(2)], ForEach: &of, Retry: quick, Locks: []api.Lock{{Key: "k1", Shared: k.rng.IntN(2) == 0}, {Key: "{{each.name}}"}}})
		some := k.rng.IntN(2) == 0
		add("gathers", api.PlanTask{Needs: map[api.Name]api.Need{"in": {From: part, Patch: true, AllowFailed: some}}})
	case "gate", "unfixed":
		if how == "unfixed" {
			gate.Fix.Subagent, gate.Attempts = "edits", 1
		}
		work := add("work", api.PlanTask{Subagent: "edits", Gate: gate, Locks: []api.Lock{{Key: "k2"}}})
		add("uses", api.PlanTask{Needs: patch(work)})
	case "gates":
		part := add("part", api.PlanTask{Subagent: "edits", Gate: gate, ForEach: &api.ForEach{Values: values()}})
		add("gathers", api.PlanTask{Needs: patch(part)})
	case "quorum", "people":
		of := []string{"approves", "rejects", "approves"}
		if how == "people" {
			of = []string{"approves", "rejects", approver}
		}
		vote := add("vote", api.PlanTask{Quorum: &api.Quorum{Of: of, Approve: 2}, Needs: patch(add("edits", api.PlanTask{}))})
		add("edits", api.PlanTask{DependsOn: []api.TaskID{vote}})
	case "approval", "denial":
		name := map[string]string{"approval": "ship", "denial": "halt"}[how]
		ship := add(name, api.PlanTask{Approval: &api.TaskApproval{By: []api.Principal{approver}, Show: []api.TaskID{add("edits", api.PlanTask{})}}})
		add("edits", api.PlanTask{DependsOn: []api.TaskID{ship}})
	case "when":
		list := add("lists", api.PlanTask{})
		risk := func(is string) *api.When {
			return &api.When{Task: list, Result: "$.risk", Is: json.RawMessage(fmt.Sprintf("%q", is))}
		}
		high, low := add("edits", api.PlanTask{When: risk("high")}), add("edits", api.PlanTask{When: risk("low")})
		add("edits", api.PlanTask{DependsOn: []api.TaskID{high, low}, After: api.AfterAny})
		add("edits", api.PlanTask{DependsOn: []api.TaskID{high}})
	case "append":
		j.append, j.appendAt = []api.PlanTask{{ID: "edits.90", Subagent: "edits"}, {ID: "uses.91", Subagent: "uses", Needs: patch("work.92")}, {ID: "work.92", Subagent: "edits", Gate: gate}}, time.Duration(1+k.rng.IntN(300))*time.Millisecond
	case "budget":
		p.Budget = &api.Budget{Dispatches: api.Count(2 + k.rng.IntN(5))}
	case "pure":
		input := json.RawMessage(fmt.Sprintf(`{"n":%d}`, k.rng.IntN(3)))
		first := add("pure", api.PlanTask{Input: input})
		add("pure", api.PlanTask{Input: input, Needs: map[api.Name]api.Need{"id": {From: first, Output: "id"}}})
	}
}

// approver is the person who approves in a trial.
const approver = "human:bob"

// withGrowth prepares a trial for plans that grow: a person who approves, and two
// schedules of a principal that has a budget. One has a slot in each minute, the other
// one only those that are requested.
func (k *trial) withGrowth() {
	k.t.Helper()
	k.write("project/slot.yaml", "source: {name: repo}\ntasks:\n  - {id: edits.0, subagent: edits}\n", 0o644)
	k.replace(manifest, "grants:\n", fmt.Sprintf(`schedules:
  - {name: minutely, cron: "* * * * *", zone: Europe/Rome, plan: slot.yaml, principal: "ci:slots", overlap: queue, catchUp: all, catchUpWithin: 1h}
  - {name: asked, cron: "0 0 1 1 *", zone: UTC, plan: slot.yaml, principal: "ci:slots", overlap: queue}
grants:
  - {principal: "ci:slots", subagents: [edits], sources: [repo], targets: [local], ceiling: reversible, budget: {dispatches: %d}}
`, slotBudget))
	k.up(func() {})
	k.token(approver)
	_, public := k.operatorKey("approver")
	k.must("operators", "add", public, "--principal", approver)
	k.must("principal", "add", "ci:slots")
	k.must("ceiling", "set", "ci:slots", "reversible")
	k.must("catalog", "apply", "--connect", "-f", k.path(manifest)) // now its slots are not refused
	k.write("tmp-trust.json", k.must("audit", "trust"), 0o644)
	for _, dir := range []string{k.dir, k.path("home")} {
		must(k.t, os.Chmod(dir, 0o755)) //nolint:gosec // G302: the auditor is another account
	}
}

// slotBudget is how many dispatches the principal of the schedules has on a day.
const slotBudget = 25

// vote has the approver decide about what a run waits for. What a kill interrupts is
// repeated later.
func (k *trial) vote(run string) error {
	var list []api.ApprovalView
	if err := k.insist(http.MethodGet, "/v1/runtime/approvals", nil, &list); err != nil {
		return err
	}
	for _, v := range list {
		if v.State != api.ApprovalOpen || string(v.Action.Run) != run {
			continue
		}
		verb := "approve"
		if strings.HasPrefix(string(v.Action.Task), "halt.") {
			verb = "deny"
		}
		k.try("--socket", k.path("run/bailiwick/api.sock"), "approval", verb, string(v.Action.ID), "--principal-token-file", k.tokenFile(approver), "--key", k.path("home/approver.key")) // with --socket it starts no service
	}
	return nil
}

// grow sends what a run that grows waits for: votes, and tasks that are appended.
func (k *trial) grow(j *runJob, run *api.Run, at time.Duration) error {
	if slices.ContainsFunc(run.Tasks, func(t api.RunTask) bool { return t.State == api.TaskWaiting && t.DispatchID == "" }) {
		if err := k.vote(j.id); err != nil {
			return err
		}
	}
	if len(j.append) == 0 || j.appended || at < j.appendAt {
		return nil
	}
	j.appended = true
	raw, err := json.Marshal(j.append)
	if err != nil {
		return err
	}
	err = k.insist(http.MethodPost, "/v1/operator/runs/"+j.id+"/append", api.RunAppend{Tasks: raw, Key: j.id}, nil)
	if refused := (*errRefused)(nil); errors.As(err, &refused) && refused.status == http.StatusConflict {
		return nil // it had ended already
	}
	j.added = err == nil
	return err
}

// requestSlot requests a slot of a schedule once. The log says what became of it.
func (k *trial) requestSlot(pause time.Duration) {
	time.Sleep(pause) // varies the moment
	_ = k.ask(http.MethodPost, "/v1/operator/schedules/asked/run", nil, nil)
}

// ofGrowth lists the failpoints of what runs grow by, wait for and reuse.
func ofGrowth() []failpoint.Name {
	return slices.DeleteFunc(failpoint.Names(), func(n failpoint.Name) bool {
		kind, _, _ := strings.Cut(string(n), ".")
		return !slices.Contains([]string{"task", "schedule", "reuse", "decide"}, kind)
	})
}

// constructAt names the construct whose run passes a failpoint; empty for any.
func constructAt(name failpoint.Name) string {
	switch kind, _, _ := strings.Cut(string(name), "."); {
	case kind == "task", kind == "decide":
		return "approval"
	case kind == "reuse":
		return "pure"
	case strings.HasPrefix(string(name), "run.grow"):
		return "gate"
	}
	return ""
}

// wrongEvidence exports the evidence about a run, and verifies it offline.
func (k *trial) wrongEvidence(id string) []string {
	k.t.Helper()
	file := k.path("home", id+".evidence")
	if d := k.try("audit", "export", id, "--out", file); d.status != 0 {
		return []string{fmt.Sprintf("LOST: the evidence about run %s: %s", id, d)}
	}
	defer os.Remove(file)                         //nolint:errcheck // the world is removed too
	if err := os.Chmod(file, 0o644); err != nil { //nolint:gosec // G302: the auditor is another account
		return []string{err.Error()}
	}
	d := k.verifyOffline(file, "--trust", k.path("tmp-trust.json"), "-o", "json")
	var r report.Report
	if err := json.Unmarshal([]byte(d.stdout), &r); err != nil || d.status != 0 || r.Failed() {
		return []string{fmt.Sprintf("UNTRUE: the evidence about run %s does not verify (%v): %s\n%s", id, err, r.Text(), d.stderr)}
	}
	return nil
}

// subagent is the subagent of a task of a run, which may have grown or been appended.
// Empty: there is no such task.
func (s *runStory) subagent(task string) api.Name {
	for _, t := range slices.Concat(s.plan.Tasks, s.append) {
		rest, ok := strings.CutPrefix(task, string(t.ID))
		if t.ForEach != nil && strings.HasPrefix(rest, "[") {
			if _, rest, ok = strings.Cut(rest, "]"); rest == "" {
				return t.Subagent
			}
		}
		var n int
		switch {
		case !ok:
		case rest == "" && t.ForEach == nil:
			return t.Subagent
		case strings.HasPrefix(rest, ".gate") && t.Gate != nil:
			return t.Gate.Verify.Subagent
		case strings.HasPrefix(rest, ".fix") && t.Gate != nil:
			return t.Gate.Fix.Subagent
		case strings.HasPrefix(rest, ".vote") && t.Quorum != nil:
			if _, err := fmt.Sscanf(rest, ".vote%d", &n); err == nil && n >= 1 && n <= len(t.Quorum.Of) {
				return api.Name(t.Quorum.Of[n-1])
			}
		}
	}
	return ""
}

// wrongCopy checks that a dispatch that reuses the result of another had no worker, and
// has what that one has.
func (k *trial) wrongCopy(s *story, of string) (bad []string) {
	from, err := k.describe(of)
	switch {
	case s.record == nil || err != nil || s.record.Outcome == nil || from.Outcome == nil || s.record.Outcome.Patch == nil || from.Outcome.Patch == nil || from.State != api.EventFinished || s.record.State != api.EventFinished:
		return []string{fmt.Sprintf("LOST: %s reuses %s: %+v %v", s.id, of, s.record, err)}
	case len(s.hits) > 0 || len(s.entries) > 0:
		bad = append(bad, fmt.Sprintf("DOUBLED: %s reuses %s and has a worker: %v %v", s.id, of, s.hits, s.entries))
	}
	digests := func(o *api.ResultSummary) (list []api.Digest) {
		for _, a := range append(slices.Clone(o.Outputs), *o.Patch) {
			list = append(list, a.Digest)
		}
		return list
	}
	if mine, theirs := digests(s.record.Outcome), digests(from.Outcome); !slices.Equal(mine, theirs) {
		bad = append(bad, fmt.Sprintf("UNTRUE: %s has %v, and %s, which it reuses, %v", s.id, mine, of, theirs))
	}
	if s.applied != "" {
		bad = append(bad, fmt.Sprintf("LOST: the patch of %s: %s", s.id, s.applied))
	}
	return bad
}

// wrongGathered checks that a task that needs the products of a for_each had those of
// its tasks that are done, and no others.
func (k *trial) wrongGathered(s *runStory, task, dispatch string) []string {
	i := slices.IndexFunc(s.plan.Tasks, func(t api.PlanTask) bool { return string(t.ID) == task })
	if i < 0 || s.run == nil {
		return nil
	}
	want := ""
	for _, item := range itemsOfTrial() {
		for _, t := range s.run.Tasks {
			if string(t.Task) == fmt.Sprintf("%s[%s]", s.plan.Tasks[i].Needs["in"].From, item) && t.State == api.TaskDone {
				want += item + "\n"
			}
		}
	}
	if d := k.try("dispatch", "outputs", dispatch, "got"); d.stdout != want {
		return []string{fmt.Sprintf("LOST or UNTRUE: %s/%s got %q, want %q: %s", s.id, task, d.stdout, want, d.stderr)}
	}
	return nil
}
