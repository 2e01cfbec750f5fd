package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// withTools gives role transform tools of two servers; web is not trusted. It also
// lets bob, eve and kim approve its calls.
func withTools(docs map[api.Ref]any) {
	definition := func(name string) api.ToolDefinition {
		return api.ToolDefinition{Name: name, Description: "does " + name, InputSchema: json.RawMessage(`{"type":"object"}`)}
	}
	both, one := []api.Name{"quality", "transform"}, []api.Name{"transform"}
	docs["tool/warehouse"] = api.ToolServer{
		Name: "warehouse", Stdio: &api.StdioServer{Command: api.Command{"mcp-warehouse"}}, Trusted: true,
		Allow: []api.ToolAllow{
			{Tool: "apply", Roles: one, Tier: api.Stateful, Approval: &api.ToolApproval{}},
			{Tool: "drop", Roles: one, Tier: api.Irreversible, Approval: &api.ToolApproval{}},
			{Tool: "query", Roles: both, Tier: api.Observe},
			{Tool: "secrets", Roles: []api.Name{"quality"}, Tier: api.Observe},
			{Tool: "write", Roles: one, Tier: api.Stateful},
			{Tool: "wipe", Roles: one, Tier: api.Stateful, Tainted: api.TaintedForbid},
		},
		Definitions: []api.ToolDefinition{definition("apply"), definition("drop"), definition("query"), definition("secrets"), definition("wipe"), definition("write")},
	}
	docs["tool/web"] = api.ToolServer{
		Name: "web", HTTP: &api.HTTPServer{URL: "https://web.example/mcp"}, Allow: []api.ToolAllow{{Tool: "get", Roles: one, Tier: api.Observe}}, Definitions: []api.ToolDefinition{definition("get")},
	}
	docs["target/local"] = api.Target{Name: "local", Mode: api.Open, Level: "direct"}
	docs["grant/g0"] = api.Grant{Name: "g0", Principal: "local:ann", Subagents: []api.Name{"code"}, Targets: []api.Name{"local"}, Envs: []api.Name{"plain"}, Sources: []api.Name{"app"}, Capabilities: []api.Name{"tools"}, Ceiling: api.Irreversible}
	for _, who := range []api.Name{"bob", "eve"} {
		docs[api.RefTo(api.KindGrant, who)] = api.Grant{Name: who, Principal: api.Principal("local:" + who), Approve: one}
	}
	docs["grant/kim"] = api.Grant{Name: "kim", Principal: "human:kim", Approve: one}
}

// tooled is a story whose dispatches have tools.
func tooled(s *story) *story {
	s.editCatalog = withTools
	s.reach = func(m *record.Manifest) { m.Tools, m.Ceiling = []api.Name{"warehouse", "web"}, api.Irreversible }
	s.publish("local:ann")
	s.consent("local:ann", api.Irreversible)
	return s
}

// toolOf returns a tool of withTools in the hands of role transform.
func (s *story) toolOf(id string) api.Tool {
	v := newVerification(&bundle.Bundle{Documents: s.documents}, Trust{}, Options{}, newMeter(1<<20))
	v.revisions = map[api.Digest]*revision{"r": {doc: s.revision, docs: v.docs, shared: &v.artifacts}}
	of, err := v.tools(&record.Manifest{RevisionDigest: "r", Role: "transform", Tools: []api.Name{"warehouse", "web"}})
	s.must(err)
	if t, ok := of.tools[id]; ok {
		return t
	}
	return api.Tool{ID: id}
}

// calls follows the calls of an attempt, as the service does.
type calls struct {
	s     *story
	w     *work
	last  int64
	taint *api.Taint
}

func (s *story) calls(w *work) *calls {
	return &calls{s: s, w: w, taint: s.manifests[w.key()].Taint}
}

func (c *calls) entry(k record.Kind, t api.Tool, d record.Detail) record.Entry {
	var tier *api.Tier
	if t.Role != "" {
		tier = &t.Tier
	}
	return record.CallEntry(k, c.s.manifests[c.w.key()], t.ID, tier, d)
}

func argumentsOf(id string, n int64) []byte { return fmt.Appendf(nil, `{"n":%d,"tool":%q}`, n, id) }

// out calls a tool, allowed or not, and returns the number of the call.
func (c *calls) out(id string, approval api.ApprovalID, arguments []byte) int64 {
	c.s.t.Helper()
	t, m := c.s.toolOf(id), c.s.manifests[c.w.key()]
	engine, err := policy.New(policy.Rules{Targets: []api.Target{{Name: "local", Mode: api.Open}}})
	c.s.must(err)
	decision := engine.DecideTool(policy.ToolRequest{
		Principal: m.Principal, Role: m.Role, Target: m.Target, Tool: t, Ceiling: m.Ceiling, Consent: api.Irreversible, Tainted: c.taint != nil, Approved: approval != "",
	})
	c.last++
	d := record.ToolCall{Approval: string(approval), Number: c.last, Subagent: "code", Target: "local", Tainted: c.taint != nil}
	kind := record.KindToolCalled
	if decision.Allowed() {
		d.Taints = !t.Trusted
	} else {
		kind, d.Reasons = record.KindToolDenied, decision.Reasons()
	}
	e := c.entry(kind, t, d)
	e.Principal, e.Action, e.Resource, e.Policies = m.Principal, "tool.call", id, decision.Policies()
	e.Refs = map[string]api.Digest{record.RefArguments: api.DigestOf(arguments)}
	if c.s.write(e); d.Taints && c.taint == nil {
		c.taint = &api.Taint{Dispatch: m.ID, Attempt: m.Attempt, Call: d.Number, Tool: id}
	}
	return c.last
}

// back returns a call.
func (c *calls) back(id string, n int64) {
	e := c.entry(record.KindToolReturned, c.s.toolOf(id), record.ToolReturn{Bytes: 2, Millis: 1, Number: n})
	e.Refs = map[string]api.Digest{record.RefReturned: api.DigestOf([]byte(`{}`))}
	c.s.write(e)
}

// call calls a tool and returns.
func (c *calls) call(id string, approval api.ApprovalID) {
	n := c.out(id, approval, argumentsOf(id, 0))
	c.back(id, n)
}

// unknown says that the outcome of a call is not known.
func (c *calls) unknown(id string, n int64) {
	c.s.write(c.entry(record.KindToolUnknown, c.s.toolOf(id), record.ToolReturn{Number: n}))
}

// request requests an approval of a call, and returns the digest of its action.
func (c *calls) request(id string, approval api.ApprovalID, change ...func(a *api.ToolAction)) api.Digest {
	t, m := c.s.toolOf(id), c.s.manifests[c.w.key()]
	definition, err := canon.Marshal(t.Definition)
	c.s.must(err)
	a := api.ToolAction{
		V: api.ToolActionVersion, ID: approval, Tool: id, Arguments: argumentsOf(id, 0), Definition: api.DigestOf(definition), Tier: t.Tier, Dispatch: m.ID, Run: m.Run, Task: m.Task,
		Subagent: m.Subagent, Role: m.Role, Target: m.Target, Principal: m.Principal, Revision: m.RevisionDigest, Policies: []string{"approval"}, Taint: c.taint,
		Needs: policy.ToolApprovers(t.Tier), Expires: c.s.at.Add(time.Hour),
	}
	for _, f := range change {
		f(&a)
	}
	doc, err := canon.Marshal(a)
	c.s.must(err)
	d := c.s.put(doc)
	e := c.entry(record.KindApprovalRequest, t, record.ApprovalRequest{Approval: string(approval), Needs: int64(a.Needs), Policies: a.Policies})
	e.Refs = map[string]api.Digest{record.RefAction: d}
	c.s.write(e)
	return d
}

// vote records the signed vote of a person.
func (s *story) vote(verb api.OperatorVerb, who api.Principal, approval api.ApprovalID, action api.Digest, key seal.Signer) {
	rec := api.OperatorRecord{
		V: 1, Service: string(s.first.KeyID()), Number: uint64(len(s.records) + 1), Previous: s.recordHead, At: s.at, //nolint:gosec // G115: small
		Verb: verb, Principal: who, Approval: approval, Content: action,
	}
	doc, err := canon.Marshal(rec)
	s.must(err)
	envelope, err := seal.Sign(context.Background(), seal.Operator, doc, key)
	s.must(err)
	s.records, s.recordHead = append(s.records, s.put(envelope)), api.DigestOf(doc)
	s.write(record.Entry{
		Kind: record.KindOperatorRecorded, Principal: "local:op", Refs: map[string]api.Digest{record.RefRecord: s.recordHead},
		Detail: record.DecisionOf(&rec, []string{string(key.KeyID())}),
	})
}

// toolCalls is dispatches that call tools: refused, with approvals of one and of two
// people, tainted, resumed, and taking over what a tainted one made.
func toolCalls(s *story) []bundle.Case {
	tooled(s)
	s.second = s.newKey()
	w := &work{id: "d-01"}
	s.admit(w)
	s.start(w)
	c := s.calls(w)
	c.call("warehouse/query", "")
	c.call("report", "")
	c.out("warehouse/secrets", "", argumentsOf("", 0))
	c.out("warehouse/Query", "", argumentsOf("", 0))
	c.out("warehouse/apply", "", argumentsOf("", 0))
	s.vote(api.VerbApprove, "local:bob", "a-aaaaaaaaaaaa", c.request("warehouse/apply", "a-aaaaaaaaaaaa"), s.operator)
	c.call("warehouse/apply", "a-aaaaaaaaaaaa")
	drop := c.request("warehouse/drop", "a-bbbbbbbbbbbb")
	s.vote(api.VerbApprove, "local:bob", "a-bbbbbbbbbbbb", drop, s.operator)
	s.vote(api.VerbApprove, "local:eve", "a-bbbbbbbbbbbb", drop, s.second)
	one, two := c.out("warehouse/drop", "a-bbbbbbbbbbbb", argumentsOf("warehouse/drop", 0)), c.out("warehouse/write", "", argumentsOf("", 0))
	c.back("warehouse/write", two)
	c.unknown("warehouse/drop", one)
	denied := c.request("warehouse/apply", "a-cccccccccccc")
	s.vote(api.VerbDeny, "local:bob", "a-cccccccccccc", denied, s.operator)
	c.out("web/get", "", argumentsOf("", 0))
	c.back("web/get", c.last)
	c.out("warehouse/write", "", argumentsOf("", 0)) // needs an approval now
	c.out("warehouse/wipe", "", argumentsOf("", 0))
	tainted := c.request("warehouse/write", "a-dddddddddddd")
	s.finish(w, api.EventNeedsInput, "")
	s.vote(api.VerbApprove, "local:bob", "a-dddddddddddd", tainted, s.operator)
	next := &work{id: w.id, attempt: 2, answer: "yes"}
	s.editManifest = func(m *record.Manifest) { m.Taint = c.taint }
	s.admit(next)
	s.editManifest = nil
	s.start(next)
	c = s.calls(next)
	c.call("warehouse/write", "a-dddddddddddd")
	e := c.entry(record.KindApprovalExpired, s.toolOf("warehouse/apply"), record.ApprovalRequest{Approval: "a-cccccccccccc", Needs: 1, Policies: []string{"approval"}})
	e.Refs = map[string]api.Digest{record.RefAction: denied}
	s.write(e)
	s.finish(next, api.EventFinished, "")
	return []bundle.Case{{Dispatch: w.id}}
}

// taintedRun is a run whose second task takes over what a tainted one made, and whose
// third one does not.
func taintedRun(s *story) []bundle.Case {
	tooled(s)
	s.submit(plannedAs("", "a", `b ,"needs":{"in":{"from":"a","patch":true}}`, `c ,"depends_on":["a"]`), "", 0)
	a := of("a", 1)
	s.fire(a, 1)
	from := s.calls(a)
	from.call("web/get", "")
	s.done(a, 1)
	patch := s.results[a.key()].Summary.Patch
	b := of("b", 2)
	b.needs = []record.Need{{Name: "in", Task: "a", Dispatch: a.id, Kind: record.NeedPatch, Digest: patch.Digest, Size: patch.Size}}
	s.editManifest = func(m *record.Manifest) {
		if m.Taint = from.taint; s.changeTaint != nil {
			s.changeTaint(m)
		}
	}
	s.fire(b, 1)
	s.editManifest = nil
	c := s.calls(b)
	c.out("warehouse/write", "", argumentsOf("", 0))
	s.done(b, 1)
	last := of("c", 3)
	s.fire(last, 1)
	s.calls(last).call("warehouse/write", "")
	s.done(last, 1)
	s.settle("r1", record.RunEnd{State: "done", Done: 3})
	return []bundle.Case{{Run: "r1"}}
}

// taintedList is a run that grows by the list of a tainted task, which gives its tasks
// nothing else.
func taintedList(s *story) []bundle.Case {
	tooled(s)
	s.submit(plannedAs("", "a", `part ,"for_each":{"from":"a","items":"$.files[*]"}`), "", 0)
	a := of("a", 1)
	s.fire(a, 1)
	from := s.calls(a)
	from.call("web/get", "")
	s.editResult = func(r *record.Result) { s.valued(r, `{"files":["x"]}`) }
	s.done(a, 1)
	s.editResult = nil
	s.sprout(control("part"), 0, plan.Growth{Cause: plan.CauseForEach, Task: "part", Items: itemsOf(s.t, `["x"]`)}, 1, 3)
	s.editManifest = func(m *record.Manifest) {
		if m.Taint = from.taint; s.changeTaint != nil {
			s.changeTaint(m)
		}
	}
	s.carry(child("part[x]", 2, ""), "")
	s.editManifest = nil
	s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
	s.settle("r1", record.RunEnd{State: "done", Done: 3})
	return []bundle.Case{{Run: "r1"}}
}

// decidedRun is a run in which a tainted task decides that another runs, which takes
// nothing of it: by a condition, and one task later.
func decidedRun(s *story) []bundle.Case {
	tooled(s)
	s.submit(plannedAs("", "a", conditional, `c ,"depends_on":["b"]`), "", 0)
	a := of("a", 1)
	s.editResult = func(r *record.Result) { s.valued(r, `{"risk":"high"}`) }
	s.fire(a, 1)
	from := s.calls(a)
	from.call("web/get", "")
	s.done(a, 1)
	s.editResult = nil
	s.decided(from, a)
	s.carry(of("b", 2), "")
	s.carry(of("c", 3), "")
	s.editManifest = nil
	s.settle("r1", record.RunEnd{State: "done", Done: 3})
	return []bundle.Case{{Run: "r1"}}
}

// decidedByVote is a run in which a tainted voter decides that a task runs.
func decidedByVote(s *story) []bundle.Case {
	tooled(s)
	s.submit(strings.TrimSuffix(voting, "]}")+`,{"id":"c","subagent":"code","env":["plain"],"capabilities":["tools"],"depends_on":["q"]}]}`, "", 0)
	q := control("q")
	s.carry(of("a", 1), "")
	s.sprout(q, 0, plan.Growth{Cause: plan.CauseQuorum, Task: "q"}, 3, 6)
	s.carry(child("q.vote1", 2, ""), `{"verdict":"approve"}`)
	voter := child("q.vote2", 3, "")
	s.editResult = func(r *record.Result) { s.valued(r, `{"verdict":"approve"}`) }
	s.fire(voter, 1)
	from := s.calls(voter)
	from.call("web/get", "")
	s.done(voter, 1)
	s.editResult = nil
	s.step0(record.KindTaskDone, q, record.TaskStep{})
	s.step(record.KindTaskCancelled, control("q.vote3"), 0, record.TaskStep{By: string(api.Service)})
	s.decided(from, voter)
	s.carry(of("c", 4), "")
	s.editManifest = nil
	s.settle("r1", record.RunEnd{State: "done", Done: 5, Cancelled: 1})
	return []bundle.Case{{Run: "r1"}}
}

// decided has the manifests that follow begin with the taint of a dispatch that decided
// that they run, and then what changeTaint makes of them.
func (s *story) decided(from *calls, by *work) {
	s.editManifest = func(m *record.Manifest) {
		if m.Taint, m.DecidedBy = from.taint, by.id; s.changeTaint != nil {
			s.changeTaint(m)
		}
	}
}

// callsOf is the record of the tool calls of an attempt; nil without one.
func (s *story) callsOf(w *work) *api.ToolCalls {
	for i := range s.entries {
		if e := &s.entries[i]; e.Dispatch == w.id && e.Attempt == w.attempt && (e.Kind == record.KindToolCalled || e.Kind == record.KindToolDenied) {
			return &api.ToolCalls{Record: &api.Artifact{Size: 1, Digest: api.DigestOf([]byte("calls of " + w.key()))}}
		}
	}
	return nil
}
