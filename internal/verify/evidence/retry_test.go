package evidence

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// A retry may take over only what no change reaches, and its entry says what was
// taken over and what changed: an entry that claims anything else is found.
//
// proves R-A7, R-O4
func TestEachLieAboutARetryIsFound(t *testing.T) {
	const task = `{"id":%q,"subagent":"code","env":["plain"],"capabilities":["tools"]`
	planOf := func(id, more, ofA, ofB string) string {
		one := func(name, more string) string { return strings.Replace(task, "%q", `"`+name+`"`, 1) + more + `}` }
		return `{"id":"` + id + `","source":{"name":"app"}` + more + `,"tasks":[` + one("a", ofA) + `,` + one("b", `,"depends_on":["a"]`+ofB) + `,` + one("c", "") + `]}`
	}
	// Each retry of r1, whose tasks are all done, with the tasks that it starts.
	for name, c := range map[string]struct {
		plan    string
		request record.RunRequest
		starts  string
		wrong   string // part of what the verifier says; empty: the retry is honest
	}{
		"from b on":                        {planOf("r2", "", "", ""), record.RunRequest{From: []string{"b"}, Taken: 2}, "b", ""},
		"from a on":                        {planOf("r2", "", "", ""), record.RunRequest{From: []string{"a"}, Taken: 1}, "ab", ""},
		"another input":                    {planOf("r2", "", "", `,"input":{"n":1}`), record.RunRequest{Changed: []string{"input of task b"}, Taken: 2}, "b", ""},
		"a task taken over though changed": {planOf("r2", "", "", `,"input":{"n":1}`), record.RunRequest{Changed: []string{"input of task b"}, Taken: 3}, "", "reuses 3 tasks, but 2"},
		"a task taken over though what it depends on changed": {planOf("r2", "", `,"input":{"n":1}`, ""), record.RunRequest{Changed: []string{"input of task a"}, Taken: 2}, "a", "reuses 2 tasks, but 1"},
		"a change that is not said":                           {planOf("r2", "", "", `,"input":{"n":1}`), record.RunRequest{Taken: 2}, "b", "differs from the plan of run r1"},
		"a change that did not happen":                        {planOf("r2", "", "", ""), record.RunRequest{Changed: []string{"input of task b"}, From: []string{"b"}, Taken: 2}, "b", "differs from the plan of run r1"},
		"a task rerun that is not said":                       {planOf("r2", "", "", ""), record.RunRequest{Taken: 2}, "b", "reuses 2 tasks, but 3"},
		"from a task that is missing":                         {planOf("r2", "", "", ""), record.RunRequest{From: []string{"z"}, Taken: 3}, "", `no task "z"`},
		"another definition":                                  {planOf("r2", "", "", `,"priority":1`), record.RunRequest{Taken: 2}, "b", "another definition of task b"},
		"another source":                                      {strings.Replace(planOf("r2", "", "", ""), `"source":{"name":"app"}`, `"source":{"name":"lib"}`, 1), record.RunRequest{Changed: []string{"source lib at "}, Taken: 0}, "abc", "another definition of task a"},
		"no source":                                           {strings.Replace(planOf("r2", "", "", ""), `"source":{"name":"app"},`, "", 1), record.RunRequest{Taken: 3}, "", "another definition of task a"},
		"another bound":                                       {planOf("r2", `,"limits":{"wall":"1h"}`, "", ""), record.RunRequest{From: []string{"b"}, Taken: 2}, "b", "another plan"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.submit(planOf("r1", "", "", ""), "", 0)
			for i, id := range []api.TaskID{"a", "b", "c"} {
				w := of(id, uint64(i+1)) //nolint:gosec // G115: small
				s.fire(w, 1)
				s.done(w, 1)
			}
			s.settle("r1", record.RunEnd{State: "done", Done: 3})
			s.editEntry = func(_ uint64, e *record.Entry) {
				if ask, ok := e.Detail.(record.RunRequest); ok {
					ask.Changed, ask.From = c.request.Changed, c.request.From
					e.Detail = ask
				}
			}
			s.submit(c.plan, "r1", c.request.Taken)
			s.editEntry = nil
			for i, id := range strings.Split(c.starts, "") {
				w := &work{id: api.DispatchID("t-" + id + "2"), run: "r2", task: api.TaskID(id), fence: uint64(i + 4)} //nolint:gosec // G115: small
				if strings.Contains(c.plan, `"input"`) && c.wrong == "" {
					input := api.DigestOf([]byte(`{"n":1}`))
					s.editManifest = func(m *record.Manifest) { m.Input = input }
					s.editEntry = func(_ uint64, e *record.Entry) {
						if _, begins := e.Refs[record.RefInput]; begins {
							e.Refs[record.RefInput] = input
						}
					}
				}
				s.fire(w, 1)
				s.done(w, 1)
			}
			s.settle("r2", record.RunEnd{State: "done", Done: 3})
			r := Verify(reread(t, s.bundle(bundle.Case{Run: "r2"})), s.trust(), Options{})
			row := r.Row(report.RowCompleteness)
			if (row.Status == report.Fail) != (c.wrong != "") || !strings.Contains(row.Why, c.wrong) || c.wrong == "" && r.Failed() {
				t.Errorf("want %q:\n%s", c.wrong, r.Text())
			}
		})
	}
}

// Only the owner of a run retries it, and a retry does not go back to older rules. Controls:
// the owner retries it under the same rules, and an earlier run under newer ones.
//
// proves R-P1, R-A7
func TestARetryOfAnotherOwnerOrOlderRulesIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		by          api.Principal
		first, next int64 // rules
		wrong       string
	}{
		"its owner":                    {"local:ann", 5, 5, ""},
		"after an upgrade":             {"local:ann", 4, 5, ""},
		"another principal":            {"human:bob", 5, 5, "human:bob retries run r1 of local:ann, but only its owner may"},
		"another name of the same one": {"human:ann", 5, 5, "human:ann retries run r1 of local:ann"},
		"older rules":                  {"local:ann", 5, 4, "it claims rules 4, but run r1, which it retries, has rules 5"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.earlier5 = true // otherwise older rules fail by themselves
			submitted := func(by api.Principal, rules int64) func(uint64, *record.Entry) {
				return func(_ uint64, e *record.Entry) {
					if ask, ok := e.Detail.(record.RunRequest); ok {
						ask.Rules, ask.From = rules, nil
						if ask.RetryOf != "" {
							ask.From = []string{"a"}
						}
						e.Principal, e.Resource, e.Detail = by, string(by), ask
					}
				}
			}
			s.editEntry = submitted("local:ann", c.first)
			s.submit(plannedAs("", "a"), "", 0)
			s.editEntry = nil
			s.carry(of("a", 1), "")
			s.settle("r1", record.RunEnd{State: "done", Done: 1})
			s.editEntry = submitted(c.by, c.next)
			s.submit(strings.Replace(plannedAs("", "a"), `"r1"`, `"r2"`, 1), "r1", 0)
			s.editEntry = nil
			s.carry(&work{id: "t-a2", run: "r2", task: "a", fence: 2}, "")
			s.settle("r2", record.RunEnd{State: "done", Done: 1})
			r := Verify(reread(t, s.bundle(bundle.Case{Run: "r2"})), s.trust(), Options{})
			if row := r.Row(report.RowCompleteness); r.Failed() != (c.wrong != "") || !strings.Contains(row.Why, c.wrong) {
				t.Errorf("want %q:\n%s", c.wrong, r.Text())
			}
		})
	}
}

// A run whose only task was cancelled ends as cancelled, and its entries have to say why.
// Runs of rules that no released version followed are refused.
//
// proves R-P1, R-A7
func TestRunsOfTheOldestRulesVerify(t *testing.T) {
	wall := plannedAs(`,"limits":{"wall":"10m"}`, "a")
	for name, c := range map[string]struct {
		rules int64
		plan  string
		end   record.RunEnd
		wrong string
	}{
		"cancelled":          {plan.OldestRules, plannedAs("", "a"), record.RunEnd{State: "cancelled", Cancelled: 1}, ""},
		"failed":             {plan.OldestRules, plannedAs("", "a"), record.RunEnd{State: "failed", Cancelled: 1}, `settled as "failed"`},
		"done":               {plan.OldestRules, plannedAs("", "a"), record.RunEnd{State: "done", Cancelled: 1}, `settled as "done"`},
		"expired in silence": {plan.OldestRules, wall, record.RunEnd{State: "cancelled", Cancelled: 1, Millis: 600_000}, "cancelled without a request"},
		"older rules":        {plan.OldestRules - 1, plannedAs("", "a"), record.RunEnd{State: "cancelled", Cancelled: 1}, "it claims rules 2, which only unreleased versions followed: this version verifies rules 3 to 5"},
		"no rules":           {0, wall, record.RunEnd{State: "cancelled", Cancelled: 1, Millis: 600_000}, "it claims rules 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.earlier5 = true
			s.editEntry = func(_ uint64, e *record.Entry) {
				if ask, ok := e.Detail.(record.RunRequest); ok {
					ask.Rules = c.rules
					e.Detail = ask
				}
			}
			s.submit(c.plan, "", 0)
			by := string(api.Service)
			if c.end.Millis == 0 {
				s.act(record.KindRunCancelled, "local:ann", "a", record.RunAction{})
				by = "local:ann"
			}
			s.step(record.KindTaskCancelled, &work{run: "r1", task: "a"}, 0, record.TaskStep{By: by})
			s.settle("r1", c.end)
			r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
			row := r.Row(report.RowCompleteness)
			if (row.Status == report.Fail) != (c.wrong != "") || !strings.Contains(row.Why, c.wrong) {
				t.Errorf("want %q:\n%s", c.wrong, r.Text())
			}
		})
	}
}
