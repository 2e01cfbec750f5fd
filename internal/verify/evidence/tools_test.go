package evidence

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// A report says how many calls were made, refused, approved and never answered, and who
// approved them.
//
// proves R-G4, R-G6
func TestAReportCountsToolCalls(t *testing.T) {
	s := newStory(t)
	r := Verify(reread(t, s.bundle(toolCalls(s)[0])), s.trust(), Options{})
	want := "7 calls allowed, each by the role, pins and rules then in force and logged before its effect; 3 approved by people before, 6 returned, 1 of unknown outcome; 5 refused"
	if row := r.Row(report.RowTools); r.Failed() || row.Status != report.Pass || row.Why != want {
		t.Errorf("%s\nwant %s", r.Text(), want)
	}
	for _, words := range []string{
		"local:eve approved a call of warehouse/drop by dispatch d-01, approval a-bbbbbbbbbbbb", "local:bob denied a call of warehouse/apply by dispatch d-01, approval a-cccccccccccc",
	} {
		if !strings.Contains(r.Text(), words) {
			t.Errorf("%q is not in\n%s", words, r.Text())
		}
	}
	s = newStory(t)
	s.whole("d-01")
	if r := Verify(reread(t, s.bundle(bundle.Case{Dispatch: "d-01"})), s.trust(), Options{}); r.Row(report.RowTools).Status != report.NA || r.Failed() {
		t.Errorf("without a call:\n%s", r.Text())
	}
}

// Evidence that lacks a call, its return, a denial, a request for an approval or a vote
// is refused, also where the exporter proves the remaining entries again. Control: the
// whole evidence verifies (TestAReportCountsToolCalls).
//
// proves R-G4, R-A7
func TestWithheldToolEntriesAreFound(t *testing.T) {
	s := newStory(t)
	c := toolCalls(s)[0]
	tried := map[record.Kind]int{}
	for i := range s.entries {
		e := &s.entries[i]
		d, _ := e.Detail.(record.OperatorDecision)
		if !slices.Contains(toolKinds(), e.Kind) && d.Approval == "" {
			continue
		}
		tried[e.Kind]++
		b := s.bundle(c)
		withhold(s, b, func(other *record.Entry) bool { return other == e })
		if r := Verify(reread(t, b), s.trust(), Options{}); !r.Failed() || r.Claim != report.ClaimNone {
			t.Errorf("without entry #%d %s:\n%s", i, e.Kind, r.Text())
		}
	}
	for _, k := range append(toolKinds(), record.KindOperatorRecorded) {
		if tried[k] == 0 {
			t.Errorf("no %s was withheld", k)
		}
	}
	b := s.bundle(c)
	action := api.Digest("")
	for i := range s.entries {
		if d := s.entries[i].Refs[record.RefAction]; d != "" {
			action = d
		}
	}
	delete(b.Documents, action)
	if r := Verify(reread(t, b), s.trust(), Options{}); !r.Failed() {
		t.Errorf("without what was approved:\n%s", r.Text())
	}
}

// toolLie is a dispatch of a service that writes what the rules do not allow.
type toolLie struct {
	before func(s *story)                   // the dispatch is admitted
	call   func(s *story, c *calls)         // calls tools
	forge  func(e *record.Entry)            // each entry of a call, before it is written
	after  func(s *story, b *bundle.Bundle) //
}

func (l toolLie) judge(t *testing.T) report.Report {
	t.Helper()
	s := tooled(newStory(t))
	s.second = s.newKey()
	if l.before != nil {
		l.before(s)
	}
	w := &work{id: "d-01"}
	s.admit(w)
	s.start(w)
	if l.forge != nil {
		s.editEntry = func(_ uint64, e *record.Entry) {
			if slices.Contains(toolKinds(), e.Kind) {
				l.forge(e)
			}
		}
	}
	l.call(s, s.calls(w))
	s.editEntry = nil
	s.finish(w, api.EventFinished, "")
	b := s.bundle(bundle.Case{Dispatch: "d-01"})
	if l.after != nil {
		l.after(s, b)
	}
	return Verify(reread(t, b), s.trust(), Options{})
}

// allowed makes an allowed call of any entry about one.
func allowed(policies ...string) func(e *record.Entry) {
	return func(e *record.Entry) {
		if d, ok := e.Detail.(record.ToolCall); ok && e.Kind == record.KindToolDenied {
			d.Reasons = nil
			e.Kind, e.Decision, e.Policies, e.Detail = record.KindToolCalled, record.Allow, policies, d
		}
	}
}

const approvalID = api.ApprovalID("a-aaaaaaaaaaaa")

// approvedBy requests an approval, has these people vote with the operators' keys, and
// makes the call.
func approvedBy(tool string, change func(a *api.ToolAction), votes ...func(s *story, action api.Digest)) func(s *story, c *calls) {
	return func(s *story, c *calls) {
		var d api.Digest
		if change == nil {
			d = c.request(tool, approvalID)
		} else {
			d = c.request(tool, approvalID, change)
		}
		for _, v := range votes {
			v(s, d)
		}
		c.call(tool, approvalID)
	}
}

func yes(who api.Principal) func(s *story, action api.Digest) {
	return func(s *story, action api.Digest) { s.vote(api.VerbApprove, who, approvalID, action, s.own(who)) }
}

// yesUnder is yes with a further key, of owner.
func yesUnder(who, owner api.Principal) func(s *story, action api.Digest) {
	return func(s *story, action api.Digest) { s.vote(api.VerbApprove, who, approvalID, action, s.keyOf(owner)) }
}

// yesWith is yes with the first key of owner.
func yesWith(who, owner api.Principal) func(s *story, action api.Digest) {
	return func(s *story, action api.Digest) { s.vote(api.VerbApprove, who, approvalID, action, s.own(owner)) }
}

// removed removes a principal after the votes before it.
func removed(who api.Principal) func(s *story, action api.Digest) {
	return func(s *story, _ api.Digest) {
		s.decide(api.OperatorRecord{Verb: api.VerbPrincipalRemove, Principal: who})
	}
}

func no(who api.Principal) func(s *story, action api.Digest) {
	return func(s *story, action api.Digest) { s.vote(api.VerbDeny, who, approvalID, action, s.own(who)) }
}

// version1 makes a request one of a service older than principals of keys.
func version1(a *api.ToolAction) { a.V = 1 }

// earlier is a story older than principals of keys.
func earlier(s *story) { s.earlier5 = true }

// deniedThen requests an approval that is denied, and after read one that is approved and
// used.
func deniedThen(version int, read func(*calls)) func(*story, *calls) {
	return func(s *story, c *calls) {
		of := func(a *api.ToolAction) { a.V = version }
		s.vote(api.VerbDeny, "local:eve", "a-aaaaaaaaaaab", c.request("warehouse/apply", "a-aaaaaaaaaaab", of), s.second)
		read(c)
		approvedBy("warehouse/apply", of, yes("local:bob"))(s, c)
	}
}

// The verifier repeats each call that a service which lies has logged as allowed. Each lie
// has its honest control.
//
// proves R-G2, R-G3, R-G4, R-G6, R-A7
func TestForgedToolCallsAreRefused(t *testing.T) {
	one := func(id string) func(*story, *calls) { return func(_ *story, c *calls) { c.call(id, "") } }
	reach := func(change func(m *record.Manifest)) func(*story) {
		return func(s *story) {
			usual := s.reach
			s.reach = func(m *record.Manifest) { usual(m); change(m) }
		}
	}
	role := []string{"tool:warehouse/secrets:transform"}
	for name, c := range map[string]struct {
		honest bool
		toolLie
	}{
		"a tool of the role":       {true, toolLie{call: one("warehouse/query")}},
		"a tool of another role":   {false, toolLie{call: one("warehouse/secrets"), forge: allowed(role...)}},
		"a tool in another case":   {false, toolLie{call: one("warehouse/Query"), forge: allowed("tool:warehouse/Query:transform")}},
		"a tool of another server": {false, toolLie{before: reach(func(m *record.Manifest) { m.Tools = []api.Name{"warehouse"} }), call: func(_ *story, c *calls) { c.call("web/get", "") }}},
		"other policies":           {false, toolLie{call: one("warehouse/query"), forge: func(e *record.Entry) { e.Policies = slices.Repeat([]string{"owner"}, len(e.Policies)) }}},
		"above the ceiling":        {false, toolLie{before: reach(func(m *record.Manifest) { m.Ceiling = api.Reversible }), call: one("warehouse/write"), forge: allowed("tool:warehouse/write:transform")}},
		"above the consent": {false, toolLie{call: func(s *story, c *calls) {
			s.consent("local:ann", api.Observe)
			c.call("warehouse/write", "")
		}}},
		"within the consent": {true, toolLie{call: func(s *story, c *calls) {
			s.consent("local:ann", api.Stateful)
			c.call("warehouse/write", "")
		}}},
		"under a stop": {false, toolLie{call: func(s *story, c *calls) {
			s.write(record.Entry{Kind: record.KindStopEngaged, Principal: "local:op", Detail: record.StopEngaged{Stop: "s-1", Scope: "principal", Name: "local:ann"}})
			c.call("warehouse/query", "")
		}}},
		"beyond the limit": {false, toolLie{before: reach(func(m *record.Manifest) { m.Limits.Calls = 1 }), call: func(_ *story, c *calls) { c.call("report", ""); c.call("report", "") }}},
		"within the limit": {true, toolLie{before: reach(func(m *record.Manifest) { m.Limits.Calls = 2 }), call: func(_ *story, c *calls) { c.call("report", ""); c.call("report", "") }}},
		"in another tier":  {false, toolLie{call: one("warehouse/write"), forge: func(e *record.Entry) { tier := api.Observe; e.Tier = &tier }}},
		"in another role":  {false, toolLie{call: one("warehouse/query"), forge: func(e *record.Entry) { e.Role = "quality" }}},
		"for another principal": {false, toolLie{call: one("warehouse/query"), forge: func(e *record.Entry) {
			if e.Kind == record.KindToolCalled {
				e.Principal = "local:bob"
			}
		}}},
		"two returns": {false, toolLie{call: func(_ *story, c *calls) { c.call("report", ""); c.back("report", 1) }}},
		"no return":   {false, toolLie{call: func(_ *story, c *calls) { c.out("report", "", []byte(`{}`)) }}},

		"after text from outside, approved": {true, toolLie{call: func(s *story, c *calls) {
			c.call("web/get", "")
			approvedBy("warehouse/write", nil, yes("local:bob"))(s, c)
		}}},
		"after text from outside": {false, toolLie{call: func(_ *story, c *calls) { c.call("web/get", ""); c.call("warehouse/write", "") }, forge: allowed("tool:warehouse/write:transform")}},
		"a taint that is hidden": {false, toolLie{call: func(s *story, c *calls) {
			c.call("web/get", "")
			c.taint = nil
			c.call("warehouse/write", "")
		}}},
		"a server that becomes trusted": {false, toolLie{call: one("web/get"), forge: func(e *record.Entry) {
			if d, ok := e.Detail.(record.ToolCall); ok {
				d.Taints = false
				e.Detail = d
			}
		}}},
		"forbidden after text from outside": {false, toolLie{call: func(s *story, c *calls) {
			c.call("web/get", "")
			approvedBy("warehouse/wipe", nil, yes("local:bob"))(s, c)
		}, forge: allowed("tool:warehouse/wipe:transform")}},

		"approved":                             {true, toolLie{call: approvedBy("warehouse/apply", nil, yes("local:bob"))}},
		"approved by a person who was removed": {false, toolLie{call: approvedBy("warehouse/apply", nil, yes("human:kim"), removed("human:kim"))}},
		"approved as local, removed as human":  {false, toolLie{call: approvedBy("warehouse/apply", nil, yes("local:bob"), removed("human:bob"))}},
		"approved and removed as local":        {false, toolLie{call: approvedBy("warehouse/apply", nil, yes("local:bob"), removed("local:bob"))}},
		"removed as human, before principals":  {true, toolLie{before: earlier, call: approvedBy("warehouse/apply", nil, yes("local:bob"), removed("human:bob"))}},
		"another name was removed":             {true, toolLie{call: approvedBy("warehouse/apply", nil, yes("local:bob"), removed("human:bobby"))}},
		"another person was removed":           {true, toolLie{call: approvedBy("warehouse/apply", nil, yes("human:kim"), removed("human:lee"))}},
		"approved by two people":               {true, toolLie{call: approvedBy("warehouse/drop", nil, yes("local:bob"), yes("local:eve"))}},
		"without an approval":                  {false, toolLie{call: one("warehouse/apply"), forge: allowed("tool:warehouse/apply:transform")}},
		"without a vote":                       {false, toolLie{call: approvedBy("warehouse/apply", nil)}},
		"denied":                               {false, toolLie{call: approvedBy("warehouse/apply", nil, no("local:bob"))}},
		"approved and denied":                  {false, toolLie{call: approvedBy("warehouse/apply", nil, yes("local:bob"), no("local:eve"))}},
		"approved by its submitter":            {false, toolLie{call: approvedBy("warehouse/apply", nil, yes("local:ann"))}},
		"approved by an agent":                 {false, toolLie{call: approvedBy("warehouse/apply", nil, yes("agent:claude"))}},
		"approved without a grant":             {false, toolLie{call: approvedBy("warehouse/apply", nil, yes("local:mallory"))}},
		"approved by one of two":               {false, toolLie{call: approvedBy("warehouse/drop", nil, yes("local:bob"))}},
		"approved by one person twice":         {false, toolLie{call: approvedBy("warehouse/drop", nil, yes("local:bob"), yesUnder("local:bob", "human:bob"))}},
		"approved by two with one key":         {false, toolLie{call: approvedBy("warehouse/drop", nil, yes("local:bob"), yesWith("local:eve", "human:bob"))}},
		"approved with its submitter's key":    {false, toolLie{call: approvedBy("warehouse/apply", nil, yesUnder("local:bob", "local:ann"))}},
		"approved with each other's key":       {false, toolLie{call: approvedBy("warehouse/drop", nil, yesWith("local:bob", "local:eve"), yesWith("local:eve", "local:bob"))}},
		"denied with its submitter's key":      {false, toolLie{call: approvedBy("warehouse/apply", nil, func(s *story, d api.Digest) { s.vote(api.VerbDeny, "local:bob", approvalID, d, s.keyOf("local:ann")) })}},
		"a vote about another action":          {false, toolLie{call: approvedBy("warehouse/apply", nil, func(s *story, _ api.Digest) { yes("local:bob")(s, api.DigestOf([]byte("x"))) })}},
		"a vote with a foreign key":            {false, toolLie{call: approvedBy("warehouse/apply", nil, func(s *story, d api.Digest) { s.vote(api.VerbApprove, "local:bob", approvalID, d, s.newKey()) })}},
		"a vote after the call": {false, toolLie{call: func(s *story, c *calls) {
			d := c.request("warehouse/apply", approvalID)
			c.call("warehouse/apply", approvalID)
			yes("local:bob")(s, d)
			c.call("report", "")
		}}},
		"a vote before the request": {false, toolLie{call: func(s *story, c *calls) {
			at := s.at
			d := c.request("warehouse/apply", approvalID)
			s.entries, s.leaves = s.entries[:len(s.entries)-1], s.leaves[:len(s.leaves)-1]
			s.at, s.last["d d-01"] = at, s.last["d d-01"]-1
			yes("local:bob")(s, d)
			c.request("warehouse/apply", approvalID)
			c.call("warehouse/apply", approvalID)
		}}},
		"an approval that expired": {false, toolLie{call: approvedBy("warehouse/apply", func(a *api.ToolAction) { a.Expires = a.Expires.Add(-time.Hour) }, yes("local:bob"))}},
		"one approval twice": {false, toolLie{call: func(s *story, c *calls) {
			approvedBy("warehouse/apply", nil, yes("local:bob"))(s, c)
			c.call("warehouse/apply", approvalID)
		}}},
		"an approval of other arguments": {false, toolLie{call: approvedBy("warehouse/apply", func(a *api.ToolAction) { a.Arguments = []byte(`{"table":"other"}`) }, yes("local:bob"))}},
		"an approval of another tier":    {false, toolLie{call: approvedBy("warehouse/drop", func(a *api.ToolAction) { a.Tier, a.Needs = api.Stateful, 1 }, yes("local:bob"))}},
		"fewer people than the tier":     {false, toolLie{call: approvedBy("warehouse/drop", func(a *api.ToolAction) { a.Needs = 1 }, yes("local:bob"))}},
		"another definition":             {false, toolLie{call: approvedBy("warehouse/apply", func(a *api.ToolAction) { a.Definition = api.DigestOf([]byte("x")) }, yes("local:bob"))}},
		"another target":                 {false, toolLie{call: approvedBy("warehouse/apply", func(a *api.ToolAction) { a.Target = "prod" }, yes("local:bob"))}},
		"another role":                   {false, toolLie{call: approvedBy("warehouse/apply", func(a *api.ToolAction) { a.Role = "quality" }, yes("local:bob"))}},
		"another submitter":              {false, toolLie{call: approvedBy("warehouse/apply", func(a *api.ToolAction) { a.Principal = "local:mallory" }, yes("local:bob"))}},
		"another revision":               {false, toolLie{call: approvedBy("warehouse/apply", func(a *api.ToolAction) { a.Revision = api.DigestOf([]byte("x")) }, yes("local:bob"))}},
		"a taint that people did not see": {false, toolLie{call: func(s *story, c *calls) {
			d := c.request("warehouse/write", approvalID)
			yes("local:bob")(s, d)
			c.call("web/get", "")
			c.call("warehouse/write", approvalID)
		}}},
		"denied, then approved after text from outside": {false, toolLie{call: deniedThen(api.ToolActionVersion, func(c *calls) { c.call("web/get", "") })}},
		"denied, then approved again":                   {false, toolLie{call: deniedThen(api.ToolActionVersion, func(*calls) {})}},
		"denied after the second request": {false, toolLie{call: func(s *story, c *calls) {
			first := c.request("warehouse/apply", "a-aaaaaaaaaaab")
			c.call("web/get", "")
			yes("local:bob")(s, c.request("warehouse/apply", approvalID))
			s.vote(api.VerbDeny, "local:eve", "a-aaaaaaaaaaab", first, s.second)
			c.call("warehouse/apply", approvalID)
		}}},
		"another call denied": {true, toolLie{call: func(s *story, c *calls) {
			s.vote(api.VerbDeny, "local:bob", "a-aaaaaaaaaaab", c.request("warehouse/write", "a-aaaaaaaaaaab"), s.operator)
			c.call("web/get", "")
			approvedBy("warehouse/apply", nil, yes("local:bob"))(s, c)
		}}},
		"denied, then approved, of version 1": {false, toolLie{call: deniedThen(1, func(c *calls) { c.call("web/get", "") })}},
		"denied, then approved under version 1": {false, toolLie{call: func(s *story, c *calls) {
			s.vote(api.VerbDeny, "local:eve", "a-aaaaaaaaaaab", c.request("warehouse/apply", "a-aaaaaaaaaaab"), s.second)
			approvedBy("warehouse/apply", version1, yes("local:bob"))(s, c)
		}}},
		"a request of version 1": {false, toolLie{call: approvedBy("warehouse/apply", version1, yes("local:bob"))}},
		"a request of version 1, after its service's keys got principals": {false, toolLie{before: earlier, call: func(s *story, c *calls) {
			s.assignKeys()
			approvedBy("warehouse/apply", version1, yes("local:bob"))(s, c)
		}}},
		// Services before keys had principals asked again.
		"denied, then approved, of version 1, before principals": {true, toolLie{before: earlier, call: deniedThen(1, func(c *calls) { c.call("web/get", "") })}},
		"a request of version 1, approved after the keys got principals": {true, toolLie{before: earlier, call: func(s *story, c *calls) {
			d := c.request("warehouse/apply", approvalID, version1)
			s.assignKeys()
			yes("local:bob")(s, d)
			c.call("warehouse/apply", approvalID)
		}}},
		"version 1, then version 2": {true, toolLie{before: earlier, call: func(s *story, c *calls) {
			s.vote(api.VerbDeny, "local:eve", "a-aaaaaaaaaaab", c.request("warehouse/write", "a-aaaaaaaaaaab", version1), s.second)
			approvedBy("warehouse/apply", nil, yes("local:bob"))(s, c)
		}}},
		"version 2, then version 1": {false, toolLie{before: earlier, call: func(s *story, c *calls) {
			s.vote(api.VerbDeny, "local:eve", "a-aaaaaaaaaaab", c.request("warehouse/write", "a-aaaaaaaaaaab"), s.second)
			approvedBy("warehouse/apply", version1, yes("local:bob"))(s, c)
		}}},
		"a version that does not exist": {false, toolLie{call: approvedBy("warehouse/apply", func(a *api.ToolAction) { a.V = 3 }, yes("local:bob"))}},
		"an approval of another tool": {false, toolLie{call: func(s *story, c *calls) {
			yes("local:bob")(s, c.request("warehouse/apply", approvalID))
			c.call("warehouse/write", approvalID)
		}}},
	} {
		if r := c.judge(t); r.Failed() == c.honest {
			t.Errorf("%s: refused %v\n%s", name, r.Failed(), r.Text())
		}
	}
}

// What a task takes over from a tainted one taints it, in a run and over several steps,
// and so does being an item of its list: a manifest that says otherwise is refused.
//
// proves R-G6
func TestTaintFollowsNeedsAndItemsInEvidence(t *testing.T) {
	for what, tell := range map[string]func(*story) []bundle.Case{"a need": taintedRun, "an item": taintedList} {
		s := newStory(t)
		for _, c := range tell(s) {
			if r := Verify(reread(t, s.bundle(c)), s.trust(), Options{}); r.Failed() {
				t.Fatalf("%s, the control:\n%s", what, r.Text())
			}
		}
		for name, lie := range map[string]func(m *record.Manifest){
			"none": func(m *record.Manifest) { m.Taint = nil },
			"another call": func(m *record.Manifest) {
				m.Taint = &api.Taint{Dispatch: m.Taint.Dispatch, Attempt: 1, Call: 2, Tool: m.Taint.Tool}
			},
			"another tool": func(m *record.Manifest) {
				m.Taint = &api.Taint{Dispatch: m.Taint.Dispatch, Attempt: 1, Call: 1, Tool: "report"}
			},
			"another's taint": func(m *record.Manifest) { m.Taint = &api.Taint{Dispatch: "d-99", Attempt: 1, Call: 1, Tool: "web/get"} },
		} {
			s := newStory(t)
			s.changeTaint = lie
			for _, c := range tell(s) {
				if r := Verify(reread(t, s.bundle(c)), s.trust(), Options{}); r.Row(report.RowProvenance).Status != report.Fail {
					t.Errorf("%s, %s:\n%s", what, name, r.Text())
				}
			}
		}
	}
}

// What decides that a task runs taints it: the result that a condition reads, over several
// tasks, and the verdict of a voter. A manifest that leaves it out, or names another
// dispatch, is refused, whatever rules the run claims. Before operator keys had principals,
// services left it out.
//
// proves R-G6
func TestTaintFollowsDecisionsInEvidence(t *testing.T) {
	none := func(m *record.Manifest) { m.Taint, m.DecidedBy = nil, "" }
	for what, tell := range map[string]func(*story) []bundle.Case{"a condition": decidedRun, "a voter": decidedByVote} {
		for name, c := range map[string]struct {
			honest bool
			rules  int64
			lie    func(m *record.Manifest)
		}{
			"as it is":                    {true, plan.Rules, nil},
			"left out, no rules":          {false, 0, none},
			"left out":                    {false, plan.Rules, none},
			"left out, older rules":       {false, 4, none},
			"left out, before principals": {true, 4, none},
			"a taint without its origin":  {false, plan.Rules, func(m *record.Manifest) { m.DecidedBy = "" }},
			"an origin without a taint":   {false, plan.Rules, func(m *record.Manifest) { m.Taint = nil }},
			"another call": {false, plan.Rules, func(m *record.Manifest) {
				m.Taint = &api.Taint{Dispatch: m.DecidedBy, Attempt: 1, Call: 2, Tool: "web/get"}
			}},
			"a dispatch that decided nothing": {false, plan.Rules, func(m *record.Manifest) {
				m.DecidedBy = of("a", 1).id
				if what == "a condition" {
					m.DecidedBy = "t-none"
				}
			}},
		} {
			s := newStory(t)
			s.changeTaint, s.earlier5 = c.lie, strings.HasSuffix(name, "before principals")
			s.editEntry = func(_ uint64, e *record.Entry) {
				if d, ok := e.Detail.(record.RunRequest); ok {
					d.Rules = c.rules
					e.Detail = d
				}
			}
			for _, b := range tell(s) {
				if r := Verify(reread(t, s.bundle(b)), s.trust(), Options{}); r.Failed() == c.honest {
					t.Errorf("%s, %s, %v: failed %t\n%s", what, name, b, r.Failed(), r.Text())
				}
			}
		}
	}
}
