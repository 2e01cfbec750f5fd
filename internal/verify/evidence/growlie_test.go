package evidence

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// sprout writes that a task grew.
func (s *story) sprout(w *work, attempt int, g plan.Growth, tasks, total int64) {
	doc, err := g.Canonical()
	s.must(err)
	resource := "code"
	if g.Cause == plan.CauseQuorum {
		resource = ""
	}
	s.write(record.Entry{
		Kind: record.KindRunGrown, Resource: resource, Run: string(w.run), Task: string(w.task), Dispatch: w.id, Attempt: attempt, Refs: map[string]api.Digest{record.RefGrowth: s.put(doc)},
		Detail: record.RunGrowth{Cause: string(g.Cause), Round: int64(g.Round), Tasks: tasks, Total: total},
	})
}

// control is a task without a dispatch.
func control(task api.TaskID) *work { return &work{run: "r1", task: task} }

// step0 writes a step of a task that has no subagent.
func (s *story) step0(kind record.Kind, w *work, d record.TaskStep) {
	s.write(record.Entry{Kind: kind, Run: string(w.run), Task: string(w.task), Detail: d})
}

// child is the dispatch of a task that grew.
func child(task api.TaskID, fence uint64, input string) *work {
	w := &work{id: api.DispatchID(fmt.Sprintf("t-c%d", fence)), run: "r1", task: task, fence: fence, input: input}
	if strings.HasPrefix(string(task), "part[") {
		w.itemFrom = of("a", 1).id
	}
	return w
}

// carry carries out a task whose result has a value.
func (s *story) carry(w *work, value string) {
	s.editResult = func(r *record.Result) { s.valued(r, value) }
	s.fire(w, 1)
	s.done(w, 1)
	s.editResult = nil
}

func (s *story) valued(r *record.Result, value string) {
	if value != "" {
		r.Summary.Value = json.RawMessage(value)
	}
}

// until carries a task out up to the end of its dispatch.
func (s *story) until(w *work, value string) {
	s.editResult = func(r *record.Result) { s.valued(r, value) }
	s.fire(w, 1)
	s.finish(w, api.EventFinished, "")
	s.editResult = nil
}

func itemsOf(t testing.TB, list string) (items []plan.Item) {
	t.Helper()
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(list), &raw); err != nil {
		t.Fatal(err)
	}
	items, err := plan.ItemsOf(&api.ForEach{Values: raw, Max: len(raw)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// mapping is a run that maps over a list: grown is the list by which it grows.
func mapping(honest, lied string) tale {
	return tale{report.RowCompleteness, plannedAs("", "a", `part ,"for_each":{"from":"a","items":"$.files[*]"},"input":{"v":"{{each.value}}"}`), func(s *story, lie bool) {
		s.carry(of("a", 1), `{"files":`+honest+`}`)
		items := itemsOf(s.t, honest)
		if lie {
			items = itemsOf(s.t, lied)
		}
		n := int64(len(items))
		s.sprout(control("part"), 0, plan.Growth{Cause: plan.CauseForEach, Task: "part", Items: items}, n, 2+n)
		for i, item := range items {
			s.carry(child(api.TaskID("part["+item.Name+"]"), uint64(i+2), `{"v":`+string(item.Value)+`}`), "") //nolint:gosec // G115: small
		}
		s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
		s.settle("r1", record.RunEnd{State: "done", Done: 2 + n})
	}}
}

const (
	gated  = `a ,"gate":{"verify":"code","fix":"code","attempts":1}`
	voting = `{"id":"r1","source":{"name":"app"},"tasks":[{"id":"a","subagent":"code","env":["plain"],"capabilities":["tools"]},` +
		`{"id":"q","env":["plain"],"capabilities":["tools"],"quorum":{"of":["code","code","code"],"approve":2},"depends_on":["a"]}]}`
	conditional = `b ,"when":{"task":"a","result":"$.risk","is":"high"}`
	red, green  = `{"verdict":"red"}`, `{"verdict":"green"}`
)

// round writes a round of the gate of a.
func (s *story) round(a *work, n int) {
	tasks, total := int64(1), int64(2)
	if n > 1 {
		tasks, total = 2, int64(2*n)
	}
	s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: n}, tasks, total)
}

// patchOf is the need for the patch of a dispatch.
func (s *story) patchOf(name api.Name, w *work) record.Need {
	p := s.results[fmt.Sprintf("%s/1", w.id)].Summary.Patch
	return record.Need{Name: name, Task: w.task, Dispatch: w.id, Kind: record.NeedPatch, Digest: p.Digest, Size: p.Size}
}

// check carries out a check of the patch of a dispatch.
func (s *story) check(n int, fence uint64, of *work, verdict string) *work {
	w := child(api.TaskID(fmt.Sprintf("a.gate%d", n)), fence, "")
	w.needs = []record.Need{s.patchOf("change", of)}
	s.editResult = func(r *record.Result) {
		s.valued(r, verdict)
		r.Summary.Outputs = append(r.Summary.Outputs, api.Artifact{Path: record.ResultOutput, Size: int64(len(verdict)), Digest: api.DigestOf([]byte(verdict))})
	}
	s.fire(w, 1)
	s.done(w, 1)
	s.editResult = nil
	return w
}

// fix carries out the first fix.
func (s *story) fix(fence uint64, of, check *work) *work {
	w := child("a.fix1", fence, "")
	v := s.results[fmt.Sprintf("%s/1", check.id)].Summary.Outputs[1]
	w.needs = []record.Need{s.patchOf("change", of), {Name: "verdict", Task: check.task, Dispatch: check.id, Kind: record.NeedResult, Digest: v.Digest, Size: v.Size}}
	s.carry(w, "")
	return w
}

func gateTales() map[string]tale {
	return map[string]tale{
		"a gate that is passed on red": {report.RowCompleteness, plannedAs("", gated), func(s *story, lie bool) {
			a := of("a", 1)
			s.until(a, "")
			s.round(a, 1)
			verdict := green
			if lie {
				verdict = red
			}
			s.check(1, 2, a, verdict)
			s.step(record.KindTaskDone, a, 1, record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 2})
		}},
		"a task that is done without its gate": {report.RowCompleteness, plannedAs("", gated), func(s *story, lie bool) {
			a := of("a", 1)
			s.until(a, "")
			n := int64(1)
			if !lie {
				s.round(a, 1)
				s.check(1, 2, a, green)
				n = 2
			}
			s.step(record.KindTaskDone, a, 1, record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: n})
		}},
		"a gate that fails on green": {report.RowCompleteness, plannedAs("", gated), func(s *story, lie bool) {
			a := of("a", 1)
			s.until(a, "")
			s.round(a, 1)
			g := s.check(1, 2, a, red)
			s.round(a, 2)
			f := s.fix(3, a, g)
			verdict := red
			if lie {
				verdict = green
			}
			s.check(2, 4, f, verdict)
			s.step(record.KindTaskFailed, a, 1, record.TaskStep{Reason: "verify"})
			s.settle("r1", record.RunEnd{State: "failed", Done: 3, Failed: 1})
		}},
		"a gate that gives up before its last fix": {report.RowCompleteness, plannedAs("", gated), func(s *story, lie bool) {
			a := of("a", 1)
			s.until(a, "")
			s.round(a, 1)
			g := s.check(1, 2, a, red)
			n := int64(1)
			if !lie {
				s.round(a, 2)
				s.check(2, 4, s.fix(3, a, g), red)
				n = 3
			}
			s.step(record.KindTaskFailed, a, 1, record.TaskStep{Reason: "verify"})
			s.settle("r1", record.RunEnd{State: "failed", Done: n, Failed: 1})
		}},
		"a fix of what is green": {report.RowCompleteness, plannedAs("", gated), func(s *story, lie bool) {
			a := of("a", 1)
			s.until(a, "")
			s.round(a, 1)
			verdict := red
			if lie {
				verdict = green
			}
			g := s.check(1, 2, a, verdict)
			s.round(a, 2)
			s.check(2, 4, s.fix(3, a, g), green)
			s.step(record.KindTaskDone, a, 1, record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 4})
		}},
		"a check that begins before the dispatch has finished": {report.RowCompleteness, plannedAs("", gated), func(s *story, lie bool) {
			a := of("a", 1)
			s.fire(a, 1)
			if lie {
				s.round(a, 1)
			}
			s.finish(a, api.EventFinished, "")
			if !lie {
				s.round(a, 1)
			}
			s.check(1, 2, a, green)
			s.step(record.KindTaskDone, a, 1, record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 2})
		}},
		"a check of a patch that was replaced": {report.RowManifest, plannedAs("", gated), func(s *story, lie bool) {
			a := of("a", 1)
			s.until(a, "")
			s.round(a, 1)
			g := s.check(1, 2, a, red)
			s.round(a, 2)
			f := s.fix(3, a, g)
			if lie {
				f = a
			}
			s.check(2, 4, f, green)
			s.step(record.KindTaskDone, a, 1, record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 4})
		}},
		"a patch from before it was fixed": {report.RowManifest, plannedAs("", gated, `b ,"needs":{"in":{"from":"a","patch":true}}`), func(s *story, lie bool) {
			a := of("a", 1)
			s.until(a, "")
			s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: 1}, 1, 3)
			g := s.check(1, 2, a, red)
			s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: 2}, 2, 5)
			f := s.fix(3, a, g)
			s.check(2, 4, f, green)
			s.step(record.KindTaskDone, a, 1, record.TaskStep{})
			if lie {
				f = a
			}
			b := of("b", 5)
			b.needs = []record.Need{s.patchOf("in", f)}
			s.carry(b, "")
			s.settle("r1", record.RunEnd{State: "done", Done: 5})
		}},
	}
}

// poll carries out the voters that have a verdict, of three; the others are cancelled.
func (s *story) poll(end record.Kind, verdicts ...string) {
	q := control("q")
	s.carry(of("a", 1), "")
	s.sprout(q, 0, plan.Growth{Cause: plan.CauseQuorum, Task: "q"}, 3, 5)
	for n, v := range verdicts {
		s.carry(child(api.TaskID(fmt.Sprintf("q.vote%d", n+1)), uint64(n+2), ""), `{"verdict":"`+v+`"}`) //nolint:gosec // G115: small
	}
	d, out := record.TaskStep{}, record.RunEnd{State: "done", Done: 2 + int64(len(verdicts)), Cancelled: 3 - int64(len(verdicts))}
	if end == record.KindTaskFailed {
		d.Reason = "verify"
		out.State, out.Done, out.Failed = "failed", out.Done-1, 1
	}
	s.step0(end, q, d)
	for n := len(verdicts); n < 3; n++ {
		s.step(record.KindTaskCancelled, control(api.TaskID(fmt.Sprintf("q.vote%d", n+1))), 0, record.TaskStep{By: string(api.Service)})
	}
	s.settle("r1", out)
}

func quorumTales() map[string]tale {
	return map[string]tale{
		"a quorum that was not reached": {report.RowCompleteness, voting, func(s *story, lie bool) {
			second := "approve"
			if lie {
				second = "reject"
			}
			s.poll(record.KindTaskDone, "approve", second)
		}},
		"a quorum that is settled before it is known": {report.RowCompleteness, voting, func(s *story, lie bool) {
			if lie {
				s.poll(record.KindTaskDone, "approve")
				return
			}
			s.poll(record.KindTaskDone, "approve", "approve")
		}},
		"a quorum that fails while it can be reached": {report.RowCompleteness, voting, func(s *story, lie bool) {
			second := "reject"
			if lie {
				second = "approve"
			}
			s.poll(record.KindTaskFailed, "reject", second)
		}},
		"a verdict that is not one, counted as an approval": {report.RowCompleteness, voting, func(s *story, lie bool) {
			second := "approve"
			if lie {
				second = "APPROVE"
			}
			s.poll(record.KindTaskDone, "approve", second)
		}},
	}
}

func conditionTales() map[string]tale {
	skipped := func(risk string, lied string) tale {
		return tale{report.RowCompleteness, plannedAs("", "a", conditional), func(s *story, lie bool) {
			if lie {
				risk = lied
			}
			s.carry(of("a", 1), `{"risk":"`+risk+`"}`)
			s.step(record.KindTaskSkipped, control("b"), 0, record.TaskStep{Cause: "a"})
			s.settle("r1", record.RunEnd{State: "done", Done: 1, Skipped: 1})
		}}
	}
	return map[string]tale{
		"a task that is skipped although its condition holds": skipped("low", "high"),
		"a task that starts although its condition does not hold": {report.RowCompleteness, plannedAs("", "a", conditional), func(s *story, lie bool) {
			risk := "high"
			if lie {
				risk = "low"
			}
			s.carry(of("a", 1), `{"risk":"`+risk+`"}`)
			s.carry(of("b", 2), "")
			s.settle("r1", record.RunEnd{State: "done", Done: 2})
		}},
		"a task that starts after one that was skipped, and does not accept it": {report.RowCompleteness, plannedAs("", "a", conditional, `c ,"depends_on":["b"],"after":"any"`, `d ,"depends_on":["b"]`), func(s *story, lie bool) {
			s.carry(of("a", 1), `{"risk":"low"}`)
			s.step(record.KindTaskSkipped, control("b"), 0, record.TaskStep{Cause: "a"})
			s.carry(of("c", 2), "")
			if lie {
				s.carry(of("d", 3), "")
				s.settle("r1", record.RunEnd{State: "done", Done: 3, Skipped: 1})
				return
			}
			s.step(record.KindTaskSkipped, control("d"), 0, record.TaskStep{Cause: "b"})
			s.settle("r1", record.RunEnd{State: "done", Done: 2, Skipped: 2})
		}},
		"a task with a condition on one that was skipped, which starts": {report.RowCompleteness, plannedAs("", "a", conditional, `c ,"when":{"task":"b","result":"$.x","is":1},"after":"any"`), func(s *story, lie bool) {
			s.carry(of("a", 1), `{"risk":"low"}`)
			s.step(record.KindTaskSkipped, control("b"), 0, record.TaskStep{Cause: "a"})
			if lie {
				s.carry(of("c", 2), "")
				s.settle("r1", record.RunEnd{State: "done", Done: 2, Skipped: 1})
				return
			}
			s.step(record.KindTaskSkipped, control("c"), 0, record.TaskStep{Cause: "b"})
			s.settle("r1", record.RunEnd{State: "done", Done: 1, Skipped: 2})
		}},
		"a task that fails because of a condition that has an answer": {report.RowCompleteness, plannedAs("", "a", conditional), func(s *story, lie bool) {
			value := `{"other":1}`
			if lie {
				value = `{"risk":"low"}`
			}
			s.carry(of("a", 1), value)
			s.step(record.KindTaskFailed, control("b"), 0, record.TaskStep{Reason: "output"})
			s.settle("r1", record.RunEnd{State: "failed", Done: 1, Failed: 1})
		}},
	}
}

func forEachTales() map[string]tale {
	const part = `part ,"for_each":{"from":"a","items":"$.files[*]"}`
	two := func(s *story) (x, y *work) {
		s.carry(of("a", 1), `{"files":["x","y"]}`)
		s.sprout(control("part"), 0, plan.Growth{Cause: plan.CauseForEach, Task: "part", Items: itemsOf(s.t, `["x","y"]`)}, 2, int64(2+2+strings.Count(string(s.documents[s.planOf("r1")[record.RefPlan]]), `"id":"all"`)))
		return child("part[x]", 2, ""), child("part[y]", 3, "")
	}
	out := map[string]tale{
		"a grown task that its cause does not give": mapping(`["x","y"]`, `["x","y","z"]`),
		"a grown task that is left out":             mapping(`["x","y"]`, `["x"]`),
		"a grown task of another name":              mapping(`["x","y"]`, `["x","z"]`),
		"grown tasks in another order":              mapping(`["x","y"]`, `["y","x"]`),
		"a grown task with another input":           mapping(`[{"name":"x","n":1}]`, `[{"name":"x","n":2}]`),
		"a grown task whose item is from nowhere": {report.RowManifest, plannedAs("", "a", part), func(s *story, lie bool) {
			x, y := two(s)
			if lie {
				x.itemFrom = ""
			}
			s.carry(x, "")
			s.carry(y, "")
			s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 4})
		}},
		"a for_each that grows twice": {report.RowCompleteness, plannedAs("", "a", part), func(s *story, lie bool) {
			x, y := two(s)
			if lie {
				s.sprout(control("part"), 0, plan.Growth{Cause: plan.CauseForEach, Task: "part", Items: itemsOf(s.t, `["x","y"]`)}, 2, 4)
			}
			s.carry(x, "")
			s.carry(y, "")
			s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 4})
		}},
		"a for_each that ends before its tasks": {report.RowCompleteness, plannedAs("", "a", part), func(s *story, lie bool) {
			x, y := two(s)
			s.carry(x, "")
			if lie {
				s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
			}
			s.carry(y, "")
			if !lie {
				s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
			}
			s.settle("r1", record.RunEnd{State: "done", Done: 4})
		}},
		"a for_each that is done, and one of its tasks is not": {report.RowCompleteness, plannedAs("", "a", part), func(s *story, lie bool) {
			x, y := two(s)
			s.carry(x, "")
			s.fire(y, 1)
			s.failed(y, 1, "agent")
			if lie {
				s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
				s.settle("r1", record.RunEnd{State: "done", Done: 3, Failed: 1})
				return
			}
			s.step(record.KindTaskFailed, control("part"), 0, record.TaskStep{Reason: "agent"})
			s.settle("r1", record.RunEnd{State: "failed", Done: 2, Failed: 2})
		}},
		"who cancelled the tasks of a for_each": {report.RowCompleteness, plannedAs("", "a", part), func(s *story, lie bool) {
			x, _ := two(s)
			s.carry(x, "")
			s.act(record.KindRunCancelled, "local:ann", "part", record.RunAction{})
			by := record.TaskStep{By: "local:ann"}
			if lie {
				by.By = string(api.Service)
			}
			s.step(record.KindTaskCancelled, control("part[y]"), 0, by)
			s.step(record.KindTaskCancelled, control("part"), 0, record.TaskStep{By: "local:ann"})
			s.settle("r1", record.RunEnd{State: "cancelled", Done: 2, Cancelled: 2})
		}},
		"who cancelled the last task of a for_each": {report.RowCompleteness, plannedAs("", "a", part), func(s *story, lie bool) {
			x, _ := two(s)
			s.carry(x, "")
			s.act(record.KindRunCancelled, "local:ann", "part[y]", record.RunAction{})
			s.step(record.KindTaskCancelled, control("part[y]"), 0, record.TaskStep{By: "local:ann"})
			by := record.TaskStep{By: "local:ann"}
			if lie {
				by.By = string(api.Service)
			}
			s.step(record.KindTaskCancelled, control("part"), 0, by)
			s.settle("r1", record.RunEnd{State: "cancelled", Done: 2, Cancelled: 2})
		}},
		"a for_each that does not grow from a list that it can grow from": {report.RowCompleteness, plannedAs("", "a", part), func(s *story, lie bool) {
			value := `{"files":["x","../y"]}`
			if lie {
				value = `{"files":["x","y"]}`
			}
			s.carry(of("a", 1), value)
			s.step(record.KindTaskFailed, control("part"), 0, record.TaskStep{Reason: "output"})
			s.settle("r1", record.RunEnd{State: "failed", Done: 1, Failed: 1})
		}},
		"a for_each that grows beyond the limit of tasks": {report.RowCompleteness, plannedAs(`,"limits":{"tasks":3}`, "a", part), func(s *story, lie bool) {
			s.carry(of("a", 1), `{"files":["x","y"]}`)
			if !lie {
				s.step(record.KindTaskFailed, control("part"), 0, record.TaskStep{Reason: "output"})
				s.settle("r1", record.RunEnd{State: "failed", Done: 1, Failed: 1})
				return
			}
			s.sprout(control("part"), 0, plan.Growth{Cause: plan.CauseForEach, Task: "part", Items: itemsOf(s.t, `["x","y"]`)}, 2, 4)
			s.settle("r1", record.RunEnd{State: "done", Done: 2})
		}},
		"a task that grows before its list is there": {report.RowCompleteness, plannedAs("", "a", `part ,"for_each":{"values":["x"]},"depends_on":["a"]`), func(s *story, lie bool) {
			grow := func() {
				s.sprout(control("part"), 0, plan.Growth{Cause: plan.CauseForEach, Task: "part", Items: itemsOf(s.t, `["x"]`)}, 1, 3)
			}
			if lie {
				grow()
			}
			s.carry(of("a", 1), "")
			if !lie {
				grow()
			}
			x := child("part[x]", 2, "")
			x.itemFrom = "" // of the plan
			s.carry(x, "")
			s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 3})
		}},
	}
	all := plannedAs("", "a", part, `all ,"needs":{"in":{"from":"part","patch":true,"allow_failed":true}}`)
	needs := func(wrong func(list []record.Need) []record.Need) func(s *story, lie bool) {
		return func(s *story, lie bool) {
			x, y := two(s)
			s.carry(x, "")
			s.carry(y, "")
			s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
			w := of("all", 4)
			w.needs = []record.Need{s.patchOf("in", x), s.patchOf("in", y)}
			w.needs[0].Item, w.needs[1].Item = "x", "y"
			if lie {
				w.needs = wrong(w.needs)
			}
			s.carry(w, "")
			s.settle("r1", record.RunEnd{State: "done", Done: 5})
		}
	}
	out["a product of a for_each that is left out"] = tale{report.RowManifest, all, needs(func(list []record.Need) []record.Need { return list[:1] })}
	out["a product of a for_each under the name of another"] = tale{report.RowManifest, all, needs(func(list []record.Need) []record.Need {
		list[0].Item, list[1].Item = "y", "x"
		return list
	})}
	return out
}

// adds writes that a caller added a task b.
func (s *story) adds(who api.Principal, policy string, tasks, total int64) {
	var list []api.PlanTask
	s.must(json.Unmarshal([]byte(`[{"id":"b","subagent":"code","env":["plain"],"capabilities":["tools"],"source":{"name":"app"}}]`), &list))
	doc, err := canon.Marshal(plan.Growth{Cause: plan.CauseAppend, Tasks: list})
	s.must(err)
	s.write(record.Entry{
		Kind: record.KindRunAppended, Principal: who, Action: "run.append", Resource: "r1", Policies: []string{policy}, Run: "r1",
		Refs: map[string]api.Digest{record.RefGrowth: s.put(doc)}, Detail: record.RunGrowth{Cause: "append", Tasks: tasks, Total: total},
	})
}

func appendTales() map[string]tale {
	tell := func(row report.RowName, add func(s *story, lie bool)) tale {
		return tale{row, plannedAs("", "a"), func(s *story, lie bool) {
			a := of("a", 1)
			s.fire(a, 1)
			add(s, lie)
			s.done(a, 1)
			s.carry(of("b", 2), "")
			s.settle("r1", record.RunEnd{State: "done", Done: 2})
		}}
	}
	return map[string]tale{
		"tasks that a stranger adds": tell(report.RowAuthorisation, func(s *story, lie bool) {
			who := api.Principal("local:ann")
			if lie {
				who = "local:eve"
			}
			s.adds(who, "append", 1, 2)
		}),
		"tasks that an AI adds without a grant for it": tell(report.RowAuthorisation, func(s *story, lie bool) {
			policy := "append"
			if lie {
				policy = "grant:g0"
			}
			s.adds("local:ann", policy, 1, 2)
		}),
		"more tasks than were added": tell(report.RowCompleteness, func(s *story, lie bool) {
			tasks := int64(1)
			if lie {
				tasks = 2
			}
			s.adds("local:ann", "append", tasks, 2)
		}),
	}
}

// approvalTales are of a task that people approve, and nobody does in time.
func approvalTales() map[string]tale {
	const doc = `{"id":"r1","source":{"name":"app"},"tasks":[{"id":"ok","approval":{"by":["human:kim"],"timeout":"1h"}}]}`
	tell := func(untrue func(s *story, expire func(), fail func(reason api.Reason))) tale {
		return tale{report.RowCompleteness, doc, func(s *story, lie bool) {
			action := api.TaskAction{V: 1, ID: "a-cccccccccccc", Run: "r1", Task: "ok", Principal: "local:ann", Plan: s.planOf("r1")[record.RefPlan], By: []api.Principal{"human:kim"}, Needs: 1, Shown: []api.ShownTask{}}
			s.step0(record.KindTaskWaiting, control("ok"), record.TaskStep{})
			action.Expires = s.at.Add(time.Hour).UTC()
			content, err := canon.Marshal(action)
			s.must(err)
			e := record.Entry{
				Kind: record.KindApprovalRequest, Run: "r1", Task: "ok", Refs: map[string]api.Digest{record.RefAction: s.put(content)},
				Detail: record.ApprovalRequest{Approval: string(action.ID), Needs: 1, Policies: []string{}},
			}
			s.write(e)
			expire := func() {
				s.at = action.Expires
				e.Kind = record.KindApprovalExpired
				s.write(e)
			}
			fail := func(reason api.Reason) {
				s.step0(record.KindTaskFailed, control("ok"), record.TaskStep{Reason: string(reason)})
			}
			if lie {
				untrue(s, expire, fail)
			} else {
				expire()
				fail(api.ReasonTimeout)
			}
			s.settle("r1", record.RunEnd{State: "failed", Failed: 1})
		}}
	}
	return map[string]tale{
		"an approval that did not expire":        tell(func(_ *story, _ func(), fail func(api.Reason)) { fail(api.ReasonTimeout) }),
		"an approval that failed for its reason": tell(func(_ *story, expire func(), fail func(api.Reason)) { expire(); fail(api.ReasonOutput) }),
	}
}

// growTales are runs that grow, each written honestly and with one lie.
func growTales() map[string]tale {
	all := map[string]tale{}
	for _, some := range []map[string]tale{forEachTales(), gateTales(), quorumTales(), conditionTales(), appendTales(), approvalTales(), raceTales()} {
		maps.Copy(all, some)
	}
	return all
}

// Each run that grows is written with one lie, which needs the service key, and without:
// the first fails, and in the row for it, the second in none.
//
// proves R-A7, R-O9
func TestEachLieAboutAGrowthIsFound(t *testing.T) {
	for name, x := range growTales() {
		t.Run(name, func(t *testing.T) {
			if r := verifyRun(t, x, false); r.Failed() || r.Row(x.row).Status != report.Pass {
				t.Errorf("without the lie:\n%s", r.Text())
			}
			if r := verifyRun(t, x, true); r.Row(x.row).Status != report.Fail {
				t.Errorf("with the lie:\n%s", r.Text())
			}
		})
	}
}

// A retry takes over the tasks of a for_each that are done, and its growth: an entry
// that takes over another one is found.
//
// proves R-A7, R-O4, R-O9
func TestARetryOfARunThatGrewVerifies(t *testing.T) {
	doc := plannedAs("", "a", `part ,"for_each":{"from":"a","items":"$.files[*]"}`)
	for _, c := range []struct {
		name  string
		taken int64
		again string
		ok    bool
	}{{"honest", 2, "part[y]", true}, {"one more taken over", 3, "part[y]", false}, {"another one again", 2, "part[x]", false}} {
		t.Run(c.name, func(t *testing.T) {
			s := newStory(t)
			s.submit(doc, "", 0)
			s.carry(of("a", 1), `{"files":["x","y"]}`)
			s.sprout(control("part"), 0, plan.Growth{Cause: plan.CauseForEach, Task: "part", Items: itemsOf(t, `["x","y"]`)}, 2, 4)
			s.carry(child("part[x]", 2, ""), "")
			y := child("part[y]", 3, "")
			s.fire(y, 1)
			s.failed(y, 1, "agent")
			s.step(record.KindTaskFailed, control("part"), 0, record.TaskStep{Reason: "agent"})
			s.settle("r1", record.RunEnd{State: "failed", Done: 2, Failed: 2})
			s.editEntry = func(_ uint64, e *record.Entry) {
				if d, ok := e.Detail.(record.RunRequest); ok {
					d.Tasks = 4
					e.Detail = d
				}
			}
			s.submit(strings.Replace(doc, `"r1"`, `"r2"`, 1), "r1", c.taken)
			s.editEntry = nil
			again := child(api.TaskID(c.again), 4, "")
			again.run = "r2"
			s.carry(again, "")
			up := control("part")
			up.run = "r2"
			s.step(record.KindTaskDone, up, 0, record.TaskStep{})
			s.settle("r2", record.RunEnd{State: "done", Done: 4})
			r := Verify(reread(t, s.bundle(bundle.Case{Run: "r2"})), s.trust(), Options{})
			if failed := slices.ContainsFunc(r.Rows, func(row report.Row) bool { return row.Status == report.Fail }); failed == c.ok {
				t.Errorf("failed %t:\n%s", failed, r.Text())
			}
		})
	}
}
