package evidence

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// toolset is the tools in the hands of a role. Attempts with the same role, servers and
// revision share it.
type toolset struct {
	once       sync.Once
	tools      map[string]api.Tool   // by id
	definition map[string]api.Digest // likewise
	err        error
}

// toolServer is a registered server with the digests of its definitions.
type toolServer struct {
	api.ToolServer
	digests map[string]api.Digest // by tool
}

// toolServer returns a registered server of the revision.
func (r *revision) toolServer(name api.Name) (*toolServer, error) {
	v, err := r.decoded(api.RefTo(api.KindTool, name), func(doc []byte) (any, api.Name, error) {
		s := &toolServer{digests: map[string]api.Digest{}}
		err := r.docs.exact(doc, &s.ToolServer)
		if err == nil {
			err = r.docs.work.decode(doc) // the definitions are encoded again
		}
		for i := range s.Definitions {
			var definition []byte
			if err == nil {
				definition, err = canon.Marshal(s.Definitions[i])
			}
			s.digests[s.Definitions[i].Name] = api.DigestOf(definition)
		}
		return s, s.Name, err
	})
	if err != nil {
		return nil, err
	}
	return v.(*toolServer), nil //nolint:forcetypeassert // as decoded for this kind
}

// tools returns what the agent of an attempt may call: what the servers that its
// manifest pins let its role call.
func (w *world) tools(m *record.Manifest) (*toolset, error) {
	key := fmt.Sprintf("%s %s %q", m.RevisionDigest, m.Role, m.Tools)
	one, _ := w.toolsets.LoadOrStore(key, &toolset{})
	t := one.(*toolset) //nolint:forcetypeassert // only these are stored
	t.once.Do(func() { t.err = t.load(w, m) })
	return t, t.err
}

func (t *toolset) load(w *world, m *record.Manifest) error {
	r := w.revisions[m.RevisionDigest]
	if r == nil {
		return fmt.Errorf("catalog revision %s is not in the bundle", m.RevisionDigest.Short())
	}
	t.tools, t.definition = map[string]api.Tool{}, map[string]api.Digest{}
	var servers []api.ToolServer
	of := map[api.Name]*toolServer{}
	for _, n := range m.Tools {
		s, err := r.toolServer(n)
		if err != nil {
			return err
		}
		roles := 0
		for i := range s.Allow {
			roles += len(s.Allow[i].Roles)
		}
		if err := r.docs.work.hold(unitCompare*(roles+len(s.Allow)*len(s.Definitions)), toolMemory*len(s.Allow)); err != nil {
			return err
		}
		servers, of[n] = append(servers, s.ToolServer), s
	}
	for _, tool := range catalog.ToolsOf(m.Role, servers...) {
		t.tools[tool.ID] = tool
		if s := of[tool.Server]; s != nil {
			t.definition[tool.ID] = s.digests[tool.Definition.Name]
		}
	}
	return nil
}

// rulesOf returns the rules under which a run was submitted; 0 if the bundle does not say.
func (w *world) rulesOf(id api.RunID) int64 {
	if r := w.replayed[id]; id != "" && r != nil && r.submitted != nil {
		return detail[record.RunRequest](r.submitted).Rules
	}
	return 0
}

// tool returns the tool of an entry, and false if its role has no such tool or the
// bundle does not say.
func (s *scene) tool() (api.Tool, bool) {
	if s.m == nil {
		return api.Tool{}, false
	}
	of, err := s.v.tools(s.m)
	t, ok := of.tools[s.e.Tool]
	return t, ok && err == nil
}

// taint compares the taint that an attempt begins with to that of the attempt
// before it, or of what it uses: the first tainted one counts.
func (c *closure) taint(m *record.Manifest, before *attempt) error {
	var want *api.Taint
	if before != nil {
		want = before.tainted()
	} else {
		for _, id := range m.Uses() {
			h := c.v.dispatches[id]
			switch missing := h == nil || h.last() == nil; {
			case missing && id == m.ItemFrom:
				return fmt.Errorf("its item is from dispatch %s, which is not in the bundle", id)
			case missing && id == m.DecidedBy:
				return fmt.Errorf("dispatch %s, which decided that it runs, is not in the bundle", id)
			case id == m.DecidedBy && want != nil:
				return fmt.Errorf("it names dispatch %s, which decided that it runs, beside the taint of what it takes over", id)
			}
			if want == nil && h != nil && h.last() != nil { // need reports it
				want = h.last().tainted()
			}
		}
	}
	if !sameTaint(want, m.Taint) {
		return fmt.Errorf("it begins with %s, but what it takes over has %s", taintWords(m.Taint), taintWords(want))
	}
	if before == nil {
		return c.influenced(m)
	}
	return nil
}

// influenced compares what decided that a task runs, by the plan of its run, with the
// taint that its dispatch begins with. Where a need or its item gives it one, no other is
// named. Services older than principals of operator keys left it out.
func (c *closure) influenced(m *record.Manifest) error {
	r := c.v.replayed[m.Run]
	if m.Run == "" || r == nil || r.plan == nil {
		return nil // the bundle is about the dispatch alone
	}
	i, ok := r.plan.Index(m.Task)
	if !ok {
		return nil // the manifest row reports it
	}
	taken := m.Taint != nil && m.DecidedBy == ""
	admitted := c.h.attempts[0].admitted
	if taken || m.DecidedBy == "" && !c.owned(m, admitted) {
		return nil
	}
	influences := r.plan.Influences(i)
	if err := c.v.work.spend(unitCompare * (len(r.plan.Tasks) + len(influences))); err != nil {
		return err
	}
	named := m.DecidedBy == ""
	for _, n := range influences {
		t := &r.tasks[n]
		h := c.v.dispatches[t.Dispatch]
		switch {
		case t.State != api.TaskDone || t.Dispatch == "" || h == nil || h.last() == nil || t.settledAt > admitted.seq:
		case t.Dispatch == m.DecidedBy:
			named = true
		case m.DecidedBy == "" && r.counted(n) && h.last().tainted() != nil:
			return fmt.Errorf("it begins without text from outside, but task %s, which decided that it runs, has %s", r.plan.Tasks[n].ID, taintWords(h.last().tainted()))
		}
	}
	if !named {
		return fmt.Errorf("dispatch %s did not decide that it runs", m.DecidedBy)
	}
	return nil
}

// counted reports whether a task was done before what it decided was: a voter can finish
// after its quorum is known.
func (r *replay) counted(n int32) bool {
	up := r.plan.Parent(int(n))
	return up < 0 || r.plan.Tasks[up].Quorum == nil || r.tasks[n].settledAt < r.tasks[up].settledAt
}

func taintWords(t *api.Taint) string {
	if t == nil {
		return "no text from outside"
	}
	return fmt.Sprintf("text from outside by call %d of %s in dispatch %s attempt %d", t.Call, record.Word(t.Tool), t.Dispatch, t.Attempt)
}

// tainted returns the taint of a dispatch as of the end of an attempt.
func (a *attempt) tainted() *api.Taint {
	a.traceTaint()
	return a.taintAfter
}

// called reports whether the agent of an attempt called a tool, allowed or not.
func (a *attempt) called() bool {
	return slices.ContainsFunc(a.calls, func(e *entry) bool { return slices.Contains(callKinds(), e.Kind) })
}

// traceTaint finds the taint before each entry about tools of an attempt.
func (a *attempt) traceTaint() {
	a.taintOnce.Do(func() {
		if a.manifest == nil {
			return // the manifest row reports it
		}
		now := a.manifest.Taint
		for _, e := range a.calls {
			e.taint = now
			if d, ok := e.Detail.(record.ToolCall); ok && d.Taints && now == nil {
				now = &api.Taint{Dispatch: e.Dispatch, Attempt: e.Attempt, Call: d.Number, Tool: e.Tool}
			}
		}
		a.taintAfter = now
	})
}

// cast is a vote about an approval.
type cast struct {
	seq       uint64
	at        time.Time // when the service recorded it
	record    *signedRecord
	withdrawn uint64 // the entry that removed its principal; 0: none
}

// withdraw ends the approving votes of some voters, as the service does.
func (s *timeline) withdraw(e *entry, of func(voter api.Principal) bool) error {
	for _, votes := range s.votes {
		if err := s.v.work.spend(unitCompare * len(votes)); err != nil {
			return err
		}
		for i := range votes {
			if c := &votes[i]; c.withdrawn == 0 && c.record.Verb == api.VerbApprove && of(c.record.Principal) {
				c.withdrawn = e.seq
			}
		}
	}
	return nil
}

// call repeats the decision about a tool call: by the role and pins of its manifest, the
// mode, ceilings, stops and taint at that moment, and the votes before it.
func (d *decider) call(a *admission) error {
	e, v := a.e, d.v
	s := v.scene(e)
	if s.m == nil || e.refused {
		return nil // the manifest or the completeness row reports it
	}
	of, err := v.tools(s.m)
	if err != nil {
		return err
	}
	t, ok := of.tools[e.Tool]
	if !ok {
		t = api.Tool{ID: e.Tool}
	}
	logged := detail[record.ToolCall](e)
	if limit := s.m.Limits.Or(api.Limits{Calls: api.MaxToolCalls}).Calls; logged.Number > int64(limit) {
		return fmt.Errorf("call %d, but its manifest allows %d", logged.Number, limit)
	}
	q := policy.NewToolRequest(s.m.Principal, s.m.Role, s.m.Target, s.m.Ceiling, t)
	q.Consent, q.Tainted, q.Approved = d.line.ceilings.at(e.seq, s.m.Principal), e.taint != nil, logged.Approval != ""
	if id, stopped := d.line.stops.covering(e.seq, s.m.StopSubject()); stopped {
		q.Stops = []string{id}
	}
	if q.Approved {
		if err := d.approved(a, &s, logged.Approval); err != nil {
			return fmt.Errorf("approval %s: %w", logged.Approval, err)
		}
	}
	return d.inForce(a, func(r *revision, engine *policy.Engine) error {
		if err := v.work.spend(unitTool); err != nil {
			return err
		}
		switch decision := engine.DecideTool(q); {
		case !decision.Allowed():
			return fmt.Errorf("call of %s by role %s is denied by catalog revision %d and what was in force then: %s", record.Word(e.Tool), s.m.Role, r.doc.Number, some(decision.Reasons()))
		case len(e.Policies) < uncut && !decision.AllowedBy(e.Policies):
			return fmt.Errorf("allowed by %s, but the log names %s", some(decision.Policies()), some(e.Policies))
		}
		return nil
	})
}

// approved verifies that enough people approved exactly this call before it was made.
func (d *decider) approved(a *admission, s *scene, id string) error {
	v, e := d.v, s.e
	request := s.h.approvals[id]
	if request == nil || request.seq >= e.seq {
		return errors.New("no entry before the call requests it")
	}
	action := request.action
	switch {
	case action == nil:
		return nil // closure.request reports it
	case action.Tool != e.Tool || api.DigestOf(action.Arguments) != e.Refs[record.RefArguments]:
		return errors.New("it is for another call")
	case !sameTaint(action.Taint, e.taint):
		return fmt.Errorf("it is for a dispatch with %s, which has %s now", taintWords(action.Taint), taintWords(e.taint))
	case !e.At.Before(action.Expires):
		return fmt.Errorf("it expired at %s, before the call", action.Expires)
	}
	if err := d.undenied(request, s); err != nil {
		return err
	}
	if err := v.work.spend(unitCompare * len(d.line.votes[action.ID])); err != nil {
		return err
	}
	votes := d.votes(request, e, v.ownKeys(s.m.Run))
	return d.inForce(a, func(_ *revision, engine *policy.Engine) error {
		work := 0
		for i := range votes {
			work += unitTool + unitPolicy*engine.Cost(policy.Request{Principal: votes[i].Principal, Action: policy.ActionDispatch})
		}
		if err := v.work.spend(work); err != nil {
			return err
		}
		if of := action.Action(); !engine.Approved(&of, votes) {
			return fmt.Errorf("not approved before the call by %s who may do so", record.Plural(action.Needs, "human"))
		}
		return nil
	})
}

// undenied refuses an approval of a call that was denied before in its dispatch, whatever
// that has read since. Requests of version 1 keep the older rule: closure.request refuses
// them where keys have principals, and after one of version 2.
func (d *decider) undenied(request *entry, s *scene) error {
	if request.action.V < api.ToolActionVersion {
		return nil
	}
	if err := d.v.work.spend(unitCompare * len(s.h.approvals)); err != nil {
		return err
	}
	for id, other := range s.h.approvals {
		if other.action == nil || other.seq >= s.e.seq || !policy.SameCall(other.action, request.action) {
			continue
		}
		for _, v := range d.votes(other, s.e, false) {
			if !v.Approve {
				return fmt.Errorf("%s denied the same call in approval %s", v.Principal, id)
			}
		}
	}
	return nil
}

// votes returns the votes about an action between its request and the call; own leaves out
// those whose keys have no principal.
func (d *decider) votes(request, call *entry, own bool) (votes []api.Vote) {
	for i := range d.line.votes[request.action.ID] {
		c := &d.line.votes[request.action.ID][i]
		if c.seq < request.seq || c.seq > call.seq || c.withdrawn != 0 && c.withdrawn < call.seq || c.record.Content != request.Refs[record.RefAction] || own && !c.record.assigned {
			continue
		}
		votes = append(votes, c.vote())
	}
	return votes
}

// request verifies what people are requested to approve: all but the arguments and the
// time follows from the manifest, the pinned tool and the entries before.
func (c *closure) request(a *attempt, e *entry) error {
	doc, err := c.v.docs.load(e.Refs[record.RefAction], "action", e.reader())
	if err != nil {
		return err
	}
	got := &api.ToolAction{}
	if err := c.v.docs.exact(doc, got); err != nil {
		return fmt.Errorf("action: %w", err)
	}
	m, d := a.manifest, detail[record.ApprovalRequest](e)
	of, err := c.v.tools(m)
	if err != nil {
		return err
	}
	t, ok := of.tools[e.Tool]
	if !ok {
		return fmt.Errorf("entry #%d requests an approval of %s, which role %s does not have", e.seq, record.Word(e.Tool), m.Role)
	}
	want := record.ToolAction(m, &t, of.definition[t.ID], got.Arguments, policy.ToolApprovers(t.Tier))
	want.V, want.ID, want.Policies, want.Taint, want.Expires = got.V, api.ApprovalID(d.Approval), got.Policies, got.Taint, got.Expires
	switch {
	case got.V != api.ToolActionVersion && (got.V != 1 || c.owned(m, e)):
		return fmt.Errorf("entry #%d requests an approval of version %d, but services whose operator keys have principals write version %d", e.seq, got.V, api.ToolActionVersion)
	case got.V < c.version:
		return fmt.Errorf("entry #%d requests an approval of version %d, after one of version %d in the same dispatch", e.seq, got.V, c.version)
	}
	c.version = got.V
	if got.Taint != nil && !sameTaint(got.Taint, e.taint) { // another call may taint it meanwhile, which d.approved finds
		return fmt.Errorf("entry #%d requests an approval for a dispatch with %s, which has %s", e.seq, taintWords(got.Taint), taintWords(e.taint))
	}
	if !sameJSON(want, got) || int64(got.Needs) != d.Needs || sameList(d.Policies, got.Policies) == differs {
		return fmt.Errorf("entry #%d requests an approval of another call than its dispatch can make: tool, definition, tier, dispatch, role, target, revision, taint or number of people differ", e.seq)
	}
	e.action = got
	return nil
}

func sameTaint(a, b *api.Taint) bool { return a == b || a != nil && b != nil && *a == *b }

func sameJSON(a, b any) bool {
	x, errX := canon.Marshal(a)
	y, errY := canon.Marshal(b)
	return errX == nil && errY == nil && slices.Equal(x, y)
}

// countCalls sums up the calls of what is verified.
func countCalls(dispatches []*history, records *CallRecords, row *report.Finding) {
	var called, returned, unknown, denied, approved int
	for _, h := range dispatches {
		for _, a := range h.attempts {
			for _, e := range a.calls {
				switch e.Kind { //nolint:exhaustive // the others are no calls
				case record.KindToolCalled:
					called++
					if d := detail[record.ToolCall](e); d.Approval != "" {
						approved++
					}
				case record.KindToolReturned:
					returned++
				case record.KindToolUnknown:
					unknown++
				case record.KindToolDenied:
					denied++
				}
			}
		}
	}
	if row.Checked += denied; called+denied == 0 {
		row.Absent = "no tool was called"
	}
	compared := compareCalls(dispatches, records, row)
	row.Right = fmt.Sprintf("%s allowed, each by the role, pins and rules then in force and logged before its effect; %d approved by people before, %d returned, %d of unknown outcome; %d refused",
		record.Plural(called, "call"), approved, returned, unknown, denied)
	if compared > 0 {
		row.Right += fmt.Sprintf("; arguments and answers of %s are those in the log", record.Plural(compared, "call"))
	}
}
