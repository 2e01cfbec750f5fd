package evidence

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// reusing is a run whose first task has the result of an earlier dispatch, and whose
// second one needs it.
type reusing struct {
	effect   api.Effect
	task     string                     // more of the first task in the plan
	before   func(s *story, x *work)    // the earlier dispatch; nil: it finishes
	shares   []api.Principal            // of the grant of ann
	manifest func(m *record.Manifest)   // of the first task's
	entry    func(e *record.Entry)      // that admits the reuse
	submit   func(d *record.RunRequest) //
	wait     time.Duration              // before the run
	later    bool                       // the earlier dispatch ends after the reuse
	owner    api.Principal              // of the earlier dispatch
	result   func(r *record.Result)     // of the earlier dispatch
}

func (u reusing) tell(s *story) []bundle.Case {
	catalog, reach := s.editCatalog, s.reach
	s.editCatalog = func(docs map[api.Ref]any) {
		if catalog != nil {
			catalog(docs)
		}
		code := docs["subagent/code"].(api.Subagent) //nolint:forcetypeassert // publish made it
		code.Effect = u.effect
		docs["subagent/code"] = code
		for ref, v := range docs {
			if g, ok := v.(api.Grant); ok && g.Principal == "local:ann" {
				g.Reuse = u.shares
				docs[ref] = g
			}
		}
	}
	s.reach = func(m *record.Manifest) {
		if reach != nil {
			reach(m)
		}
		m.Pure = &record.Pure{Tree: strings.Repeat("b2", 20)}
	}
	s.publish("local:ann", "local:bob")
	s.consent("local:bob", api.Reversible)
	x := &work{id: "d-01"}
	if u.owner != "" {
		s.editManifest = func(m *record.Manifest) { m.Principal, m.Policies = u.owner, []string{"grant:g1"} }
		s.editEntry = func(_ uint64, e *record.Entry) {
			if e.Kind == record.KindDispatchAccepted {
				e.Principal, e.Policies = u.owner, []string{"grant:g1"}
			}
		}
	}
	s.admit(x)
	s.editManifest, s.editEntry = nil, nil
	s.start(x)
	s.editResult = u.result
	end := func() {
		if u.before != nil {
			u.before(s, x)
		} else {
			s.finish(x, api.EventFinished, "")
		}
	}
	if !u.later {
		end()
	}
	s.editResult = nil
	s.at = s.at.Add(u.wait)
	s.editEntry = func(_ uint64, e *record.Entry) {
		if d, ok := e.Detail.(record.RunRequest); ok && u.submit != nil {
			u.submit(&d)
			e.Detail = d
		}
	}
	s.submit(plannedAs("", "a"+u.task, `b ,"needs":{"in":{"from":"a","patch":true}}`), "", 0)
	a := of("a", 1)
	a.of = x.id
	s.step(record.KindTaskStarted, a, 1, record.TaskStart{Fence: 1})
	s.editManifest = u.manifest
	s.editEntry = func(_ uint64, e *record.Entry) {
		if e.Kind == record.KindTaskReused && u.entry != nil {
			u.entry(e)
		}
	}
	s.admit(a)
	s.editManifest, s.editEntry = nil, nil
	s.step(record.KindTaskDone, a, 1, record.TaskStep{})
	if u.later {
		end()
	}
	b := of("b", 2)
	b.needs = []record.Need{{Name: "in", Task: "a", Dispatch: a.id, Kind: record.NeedPatch, Digest: api.DigestOf([]byte("patch of " + x.key())), Size: 3}}
	s.fire(b, 1)
	s.done(b, 1)
	s.settle("r1", record.RunEnd{State: "done", Done: 2})
	return []bundle.Case{{Run: "r1"}, {Dispatch: a.id}}
}

func reuse(s *story) []bundle.Case { return reusing{effect: api.EffectPure}.tell(s) }

// The earlier result of a task is believed only if its inputs were the same, it is
// complete, its principal may have it, and it was there by then. Each lie is told beside
// the honest run.
//
// proves R-O12 R-A7
func TestAReuseIsRefusedUnlessItsInputsAreTheSame(t *testing.T) {
	key := func(k string) func(e *record.Entry) {
		return func(e *record.Entry) {
			d, _ := e.Detail.(record.TaskReuse)
			d.Key = k
			e.Detail = d
		}
	}
	pure := func(change func(m *record.Manifest)) func(m *record.Manifest) {
		return func(m *record.Manifest) {
			p := *m.Pure
			m.Pure = &p
			change(m)
		}
	}
	other := strings.Repeat("c3", 20)
	result := func(change func(sum *api.ResultSummary)) func(r *record.Result) {
		return func(r *record.Result) { change(&r.Summary) }
	}
	for name, c := range map[string]struct {
		u    reusing
		want string // empty: it is honest
	}{
		"honest":             {reusing{}, ""},
		"of another, shared": {reusing{owner: "local:bob", shares: []api.Principal{"local:bob"}}, ""},
		"young enough":       {reusing{task: ` ,"reuse":{"max_age":"2h"}`, wait: time.Hour}, ""},

		"another tree":  {reusing{manifest: pure(func(m *record.Manifest) { m.Pure.Tree = other })}, "the result is of other inputs"},
		"another tool":  {reusing{manifest: pure(func(m *record.Manifest) { m.Pure.Version = "2.0.0" })}, "the result is of other inputs"},
		"another level": {reusing{manifest: pure(func(m *record.Manifest) { m.Level = "full" })}, "the result is of other inputs"},
		"another input": {reusing{manifest: pure(func(m *record.Manifest) { m.Input = api.DigestOf([]byte(`{"n":1}`)) })}, "the result is of other inputs"},
		"another need": {reusing{manifest: pure(func(m *record.Manifest) {
			m.Needs = []record.Need{{Name: "in", Task: "b", Dispatch: "d-01", Kind: record.NeedPatch, Digest: api.DigestOf(nil)}}
		})}, "the result is of other inputs"},
		"a tainted need": {reusing{manifest: pure(func(m *record.Manifest) {
			m.Needs = []record.Need{{Name: "in", Task: "b", Dispatch: "d-01", Kind: record.NeedPatch, Digest: api.DigestOf(nil)}}
			m.Taint = &api.Taint{Dispatch: "d-01", Attempt: 1, Call: 1, Tool: "web/get"}
		})}, "its inputs are not all known"},
		"another env":        {reusing{manifest: pure(func(m *record.Manifest) { m.Artifacts[4].Digest = api.DigestOf(nil) })}, "the result is of other inputs"},
		"another key":        {reusing{entry: key(string(api.DigestOf([]byte("key"))))}, "the result is of other inputs"},
		"no key":             {reusing{entry: key("")}, "the result is of other inputs"},
		"not pure":           {reusing{effect: api.EffectWrite}, "it says that subagent"},
		"of another":         {reusing{owner: "local:bob"}, "which no grant of catalog revision 2 lets local:ann reuse"},
		"failed":             {reusing{before: func(s *story, x *work) { s.finish(x, api.EventFailed, api.ReasonAgent) }}, "had not finished"},
		"finished later":     {reusing{later: true}, "had not finished"},
		"partial":            {reusing{result: result(func(sum *api.ResultSummary) { sum.Partial = true })}, "its result is partial"},
		"red":                {reusing{result: result(func(sum *api.ResultSummary) { sum.Verify = &api.VerifyReport{ExitCode: 1, ReportOnly: true} })}, "did not pass verify"},
		"redacted":           {reusing{result: result(func(sum *api.ResultSummary) { sum.Outputs[0].Redacted = true })}, "values of secrets were removed"},
		"another version":    {reusing{result: result(func(sum *api.ResultSummary) { sum.Agent = &api.AgentReport{Adapter: "codex", Version: "9.9.9"} })}, `version "9.9.9" of its agent ran`},
		"never by the plan":  {reusing{task: ` ,"reuse":"never"`}, "which the plan or the request of its run excludes"},
		"too old":            {reusing{task: ` ,"reuse":{"max_age":"1h"}`, wait: 2 * time.Hour}, "which the plan or the request of its run excludes"},
		"never by the owner": {reusing{submit: func(d *record.RunRequest) { d.NoReuse = true }}, "which the plan or the request of its run excludes"},
		"of nothing": {reusing{entry: func(e *record.Entry) {
			d, _ := e.Detail.(record.TaskReuse)
			d.Of = "d-99"
			e.Detail = d
		}}, "which is not in the bundle"},
		"of itself": {reusing{entry: func(e *record.Entry) {
			d, _ := e.Detail.(record.TaskReuse)
			d.Of = string(e.Dispatch)
			e.Detail = d
		}}, "has the result of another"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			if c.u.effect == "" {
				c.u.effect = api.EffectPure
			}
			cases := c.u.tell(s)
			b := reread(t, s.bundle(cases[0]))
			r := Verify(b, s.trust(), Options{})
			switch {
			case c.want == "" && r.Failed():
				t.Errorf("the honest run is refused:\n%s", r.Text())
			case c.want != "" && (!r.Failed() || !strings.Contains(r.Text(), c.want)):
				t.Errorf("want a refusal because %q:\n%s", c.want, r.Text())
			}
		})
	}
}

// A dispatch that was tainted, by its own calls or its needs, gives nobody its result.
//
// proves R-O12 R-T9
func TestATaintedResultIsNotReused(t *testing.T) {
	for _, call := range []string{"", "web/get"} {
		s := newStory(t)
		tooled(s)
		u := reusing{effect: api.EffectPure, before: func(s *story, x *work) {
			if call != "" {
				s.calls(x).call(call, "")
			}
			s.finish(x, api.EventFinished, "")
		}}
		cases := u.tell(s)
		r := Verify(reread(t, s.bundle(cases[0])), s.trust(), Options{})
		if call == "" && r.Failed() || call != "" && !strings.Contains(r.Text(), "it is tainted") {
			t.Errorf("call %q:\n%s", call, r.Text())
		}
	}
}
