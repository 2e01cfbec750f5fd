package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// maxName bounds a name that the role does not have, in the log and in answers.
const maxName = 128

// call is one call of an agent, from its message to its answer.
type call struct {
	key       string // of its message; empty: the worker sends none
	raw       []byte // the message, where it cannot be read
	malformed bool
	invalid   bool     // its arguments are not what the tool takes
	tool      *tool    // nil: the role has no such tool
	about     api.Tool // tool, or what policy decides about in its place
	arguments json.RawMessage
	question  *api.Question // of ask
	progress  *api.Progress // of report
	approval  api.ApprovalID
	approved  *api.ToolAction // what people approved; nil: nothing
	advice    string          // of a refusal, in place of the usual hint
	number    int64           // once it is durable
	seq       uint64
	stream    *stream
}

// call answers tools/call with a result. Everything that the agent can correct or has to
// know is a result that is an error; a name that it has not is a *jsonrpc.Error.
func (v *View) call(ctx context.Context, p *params, s *stream) (json.RawMessage, error) {
	if p.again {
		if result, err := v.before(ctx, p.key); result != nil || err != nil {
			return result, err
		}
	}
	c := &call{key: p.key, arguments: p.arguments, stream: s}
	if p.name == nil {
		return nil, mcpwire.Refuse(jsonrpc.CodeInvalidParams, "tools/call needs the name of a tool")
	}
	if c.tool = v.set.tools[*p.name]; c.tool == nil {
		return nil, v.unknownTool(ctx, c, *p.name)
	}
	c.about = c.tool.Tool
	if err := c.check(v); err != nil {
		c.invalid = true
		refusal := v.refuse(ctx, c, err.Error())
		if undecided(ctx, refusal) {
			return nil, errUndecided
		}
		return refusal.result()
	}
	for try := 0; ; try++ {
		adm, refusal := v.decide(ctx, c)
		switch {
		case refusal == nil:
			return v.run(ctx, c, adm)
		case undecided(ctx, refusal):
			return nil, errUndecided
		case refusal.err == nil || !errors.Is(refusal.err, ErrOvertaken):
			return refusal.result()
		case try == maxOvertaken:
			return v.refuse(ctx, c, ErrOvertaken.Error()).result()
		}
	}
}

// maxOvertaken bounds how often a call is decided again because something changed before
// the decision was durable.
const maxOvertaken = 3

// unknownTool refuses a name that is not in the view. Two such names get answers that
// differ in the name and the entry, whether or not either exists, and take the same path.
func (v *View) unknownTool(ctx context.Context, c *call, name string) error {
	c.about = api.Tool{ID: cuttext.Text(name, maxName)}
	if above, ok := v.set.above[name]; ok {
		c.about = above
	}
	a := v.refuse(ctx, c, "")
	if undecided(ctx, a) {
		return errUndecided
	}
	a.message = fmt.Sprintf("unknown tool %q", cuttext.Text(name, maxName))
	if a.code == api.CodeDenied {
		a.hint = "do not retry; tools/list has the tools of your role"
	}
	data, err := json.Marshal(a.error())
	if err != nil {
		return err
	}
	return &loggedError{&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: a.message, Data: data}}
}

// check refuses arguments that the tool does not take.
func (c *call) check(v *View) error {
	if len(c.arguments) == 0 || string(c.arguments) == "null" {
		c.arguments = json.RawMessage("{}")
	}
	switch {
	case c.arguments[0] != '{':
		return errors.New("arguments: want a JSON object")
	case len(c.arguments) > api.MaxToolArguments:
		return fmt.Errorf("arguments of %d bytes: at most %d", len(c.arguments), api.MaxToolArguments)
	}
	if c.tool.input != nil {
		var value any
		if err := json.Unmarshal(c.arguments, &value); err != nil {
			return err
		}
		if err := c.tool.input.Validate(value); err != nil {
			return fmt.Errorf("arguments: %s", cuttext.Text(canon.SchemaText(err), 500))
		}
	}
	return c.readOwn(v)
}

// request is what policy decides about.
func (v *View) request(c *call) policy.ToolRequest {
	m, taint := v.a.Manifest, v.taint.Load()
	r := policy.NewToolRequest(m.Principal, m.Role, m.Target, m.Ceiling, c.about)
	r.Consent, r.Stops = v.g.cfg.Registry.Consent(m.Principal), v.g.cfg.Registry.StopsFor(m.StopSubject())
	r.Tainted = taint != nil
	// Text from outside that came after people looked is not what they approved.
	r.Approved = c.approved != nil && (taint == nil || c.approved.Taint != nil)
	return r
}

// decide decides a call by what is in force now, and makes the decision durable. A call
// that people have to approve waits for them first, and is decided again after that: the
// rules and the taint may have changed.
func (v *View) decide(ctx context.Context, c *call) (audit.Admission, *refusal) {
	for {
		engine, err := v.g.cfg.InForce.Engine(ctx)
		if err != nil {
			return audit.Admission{}, failed(err)
		}
		r := v.request(c)
		d := engine.DecideTool(r)
		switch {
		case d.NeedsApproval():
			if refused := v.approve(ctx, c, r, d); refused != nil {
				return audit.Admission{}, refused
			}
		case !d.Allowed():
			return audit.Admission{}, v.deny(ctx, c, r, d)
		default:
			return v.admit(ctx, c, r, d)
		}
	}
}

const adviceUsed = "call again with the same arguments to request another approval"

// admit makes an allowed decision durable.
func (v *View) admit(ctx context.Context, c *call, r policy.ToolRequest, d policy.Decision) (audit.Admission, *refusal) {
	adm, err := v.commit(ctx, c, r, d)
	switch {
	case errors.Is(err, errSpent):
		return adm, v.deny(ctx, c, r, policy.DenyTool(r, v.limitText()))
	case api.CodeOf(err) == api.CodeConflict && c.approved != nil: // it was used or has expired meanwhile
		c.advice = adviceUsed
		return adm, v.deny(ctx, c, r, policy.DenyTool(r, reasonOf(err), c.approved.Policies...))
	case err != nil:
		return adm, failed(err)
	}
	return adm, nil
}

// refuse denies a call for a reason that policy does not know, or, without one, because
// the role has no such tool.
func (v *View) refuse(ctx context.Context, c *call, reason string) *refusal {
	r := v.request(c)
	if reason != "" {
		return v.deny(ctx, c, r, policy.DenyTool(r, reason))
	}
	engine, err := v.g.cfg.InForce.Engine(ctx)
	if err != nil {
		return failed(err)
	}
	return v.deny(ctx, c, r, engine.DecideTool(r))
}

// deny makes a denial durable, and returns the answer.
func (v *View) deny(ctx context.Context, c *call, r policy.ToolRequest, d policy.Decision) *refusal {
	if v.isSpent() {
		return &refusal{code: api.CodeDenied, message: v.limitText(), hint: "do not retry; the attempt ends"}
	}
	adm, err := v.commit(ctx, c, r, d)
	if err != nil {
		return failed(err)
	}
	v.g.cfg.Observe(Observed{Manifest: v.a.Manifest, Number: c.number, At: v.g.cfg.Now(), Server: c.about.Server, Tool: c.known(), Failed: true})
	if c.number > v.limit {
		v.spend()
	}
	seq, code := adm.Seq(), api.CodeDenied
	if c.invalid {
		code = api.CodeInvalid
	}
	return &refusal{code: code, message: reasonsText(d.Reasons()), hint: c.hint(), seq: &seq}
}

// known returns the id of a tool that the role has; empty for any other name, which an
// agent chose.
func (c *call) known() string {
	if c.tool == nil {
		return ""
	}
	return c.about.ID
}

var errSpent = errors.New("the calls are spent")

func (v *View) limitText() string { return fmt.Sprintf("the limit of %d calls is reached", v.limit) }

func (v *View) isSpent() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.spent
}

// spend ends the attempt, once.
func (v *View) spend() {
	v.mu.Lock()
	before := v.spent
	v.spent = true
	v.mu.Unlock()
	if !before {
		v.a.Running.Spent(v.limitText())
	}
}

// commit makes a decision durable, with the row of the call and what it changes about the
// dispatch. It fails with ErrOvertaken where the decision no longer holds.
func (v *View) commit(ctx context.Context, c *call, r policy.ToolRequest, d policy.Decision) (audit.Admission, error) {
	m := v.a.Manifest
	detail := record.ToolCall{Approval: string(c.approval), Subagent: string(m.Subagent), Target: string(m.Target), Tainted: r.Tainted, Taints: d.Allowed() && !c.about.Trusted}
	var tier *api.Tier
	if c.about.Role != "" {
		tier = &c.about.Tier
	}
	e := record.CallEntry(record.KindToolCalled, m, c.about.ID, tier, detail)
	line := api.ToolCallLine{Attempt: m.Attempt, At: v.g.cfg.Now().UTC(), Tool: c.about.ID, Tier: c.about.Tier, Decision: string(record.Allow), State: stateRunning, Policies: d.Policies(), Approval: c.approval}
	if !d.Allowed() {
		line.Decision, line.State, line.Reasons = string(record.Deny), stateDenied, d.Reasons()
	}
	if !c.malformed && len(c.arguments) > 0 {
		e.Refs = map[string]api.Digest{record.RefArguments: api.DigestOf(c.arguments)}
	}
	kept, size, release, err := v.keep(ctx, v.contentOf(c, d))
	defer release()
	if err != nil {
		return audit.Admission{}, storeError(err)
	}
	failpoint.Hit(failpoint.ToolCommit, string(m.ID))
	adm, err := v.g.cfg.Ledger.Decide(ctx, d, e, func(tx *store.Tx, seq uint64, e *record.Entry) error {
		if err := c.checkKey(tx, m); err != nil {
			return err
		}
		n, err := nextNumber(tx, m)
		if err != nil {
			return err
		}
		changes, err := v.check(tx, c, r, d, n)
		if err == nil {
			err = v.a.Running.Mark(tx, changes)
		}
		if err == nil && d.Allowed() && c.approval != "" {
			err = v.g.cfg.Approvals.Use(tx, c.approval)
		}
		if err != nil {
			return err
		}
		c.number, c.seq, line.Number, line.Entry = n, seq, n, seq
		made, _ := e.Detail.(record.ToolCall)
		made.Number = n
		e.Detail = made
		return insertCall(tx, m, &line, c.key, detail.Taints, kept, size)
	})
	failpoint.Hit(failpoint.ToolCommitted, string(m.ID))
	if err == nil && detail.Taints && !r.Tainted {
		v.taint.CompareAndSwap(nil, &api.Taint{Dispatch: m.ID, Attempt: m.Attempt, Call: c.number, Tool: c.about.ID})
	}
	return adm, err
}

// checkKey refuses a message that another connection brought as well, and that was decided
// there.
func (c *call) checkKey(tx *store.Tx, m *record.Manifest) error {
	if c.key == "" {
		return nil
	}
	n, err := decidedAs(tx, m, c.key)
	if n > 0 {
		return errDecided
	}
	return err
}

// check refuses, in the transaction of call n, an allowed decision that no longer holds,
// and returns what the call changes.
func (v *View) check(tx *store.Tx, c *call, r policy.ToolRequest, d policy.Decision, n int64) (Mark, error) {
	k := Mark{Allowed: d.Allowed(), Tier: c.about.Tier, Progress: c.progress, Question: c.question}
	if !k.Allowed {
		k.Progress, k.Question = nil, nil
		if n > v.limit {
			k.Spent = v.limitText()
		}
		return k, nil
	}
	if n > v.limit {
		return k, errSpent
	}
	if r.Tainted {
		return k, nil
	}
	before, err := firstTaint(tx, v.a.Manifest)
	if err == nil && before != nil {
		v.taint.CompareAndSwap(nil, before) // it is in a transaction before this one, or in its group
		err = ErrOvertaken
	}
	if !c.about.Trusted {
		k.Taint = &api.Taint{Dispatch: v.a.Manifest.ID, Attempt: v.a.Manifest.Attempt, Call: n, Tool: c.about.ID}
	}
	return k, err
}

// contentOf is what is kept of a call besides its entry: its arguments, or the start of
// a message that cannot be read. Larger arguments of a denied call are not kept.
func (v *View) contentOf(c *call, d policy.Decision) []byte {
	if c.malformed {
		text, err := json.Marshal(cuttext.Text(string(c.raw), 1<<10))
		if err != nil {
			return nil
		}
		return text
	}
	if !d.Allowed() && len(c.arguments) > maxInline {
		return nil
	}
	return c.arguments
}
