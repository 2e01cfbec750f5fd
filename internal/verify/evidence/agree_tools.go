package evidence

import (
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// callKinds are the calls of tools by an agent, and those that it may not make.
func callKinds() []record.Kind { return kinds(record.KindToolCalled, record.KindToolDenied) }

// toolFacts are what the service says about calls.
func toolFacts() []record.Kind {
	return kinds(record.KindToolReturned, record.KindToolUnknown, record.KindApprovalRequest, record.KindApprovalExpired)
}

// toolKinds are all about the tools of an attempt.
func toolKinds() []record.Kind { return append(callKinds(), toolFacts()...) }

const (
	claimRefusal  = "why a call was denied: nothing follows from it"
	claimReturned = "what a server answered, and how long it took: no server signs an answer"
	claimOpened   = "that a human was requested to approve, which rules wanted that, and that a request expired, where no call used it"
)

// toolAgreements are those of entries about tools.
func toolAgreements() []agreement {
	called, denied := kinds(record.KindToolCalled), kinds(record.KindToolDenied)
	ofManifest := func(of []record.Kind, field string, check func(s *scene) verdict) agreement {
		return agreement{kinds: of, field: field, truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return check(s) })
		}}
	}
	return append([]agreement{
		{kinds: except(toolKinds(), record.KindApprovalRequest, record.KindApprovalExpired), field: "kind", truth: byChain, by: "record.CallChain"},
		{kinds: except(toolKinds(), record.KindToolDenied, record.KindApprovalRequest, record.KindApprovalExpired), field: "entry", truth: byChain, by: "record.CallChain"},
		{kinds: denied, field: "entry", truth: byChain, check: checkIsLastCall, claim: "that no call was denied after the last one of an attempt"},
		{kinds: kinds(record.KindApprovalRequest, record.KindApprovalExpired), field: "kind", truth: byChain, by: "record.CallChain", claim: claimOpened},
		{kinds: kinds(record.KindApprovalRequest, record.KindApprovalExpired), field: "entry", truth: byNothing, claim: claimOpened},

		ofManifest(callKinds(), "principal", func(s *scene) verdict { return is(s.e.Principal, s.m.Principal) }),
		{kinds: toolFacts(), field: "principal", truth: byKind, check: none(func(e *record.Entry) string { return string(e.Principal) })},
		{kinds: toolKinds(), field: "token", truth: byKind, check: none(func(e *record.Entry) string { return string(e.Token) })},
		{kinds: callKinds(), field: "action", truth: byKind, check: func(s *scene) verdict { return is(s.e.Action, string(policy.ActionToolCall)) }},
		{kinds: toolFacts(), field: "action", truth: byKind, check: none(func(e *record.Entry) string { return e.Action })},
		{kinds: callKinds(), field: "resource", truth: byChain, check: func(s *scene) verdict { return is(s.e.Resource, s.e.Tool) }},
		{kinds: toolFacts(), field: "resource", truth: byKind, check: none(func(e *record.Entry) string { return e.Resource })},
		{kinds: called, field: "policies", truth: byRules, by: "decider.call"},
		{kinds: denied, field: "policies", truth: byNothing, claim: claimRefusal},
		{kinds: toolFacts(), field: "policies", truth: byKind, check: func(s *scene) verdict { return holds(len(s.e.Policies) == 0) }},

		ofManifest(toolKinds(), "run", func(s *scene) verdict { return is(api.RunID(s.e.Run), s.m.Run) }),
		ofManifest(toolKinds(), "task", func(s *scene) verdict { return is(api.TaskID(s.e.Task), s.m.Task) }),
		{kinds: toolKinds(), field: "dispatch", truth: byChain, check: func(s *scene) verdict { return holds(s.a != nil || s.aboutTask()) }},
		{kinds: except(toolKinds(), record.KindApprovalExpired), field: "attempt", truth: byChain, by: "record.DispatchChain"},
		{kinds: kinds(record.KindApprovalExpired), field: "attempt", truth: byChain, check: func(s *scene) verdict {
			return known(s.a != nil, func() verdict { return may(s.e.Attempt >= 1 && s.e.Attempt <= s.a.number) })
		}, claim: claimOpened},
		ofManifest(toolKinds(), "role", func(s *scene) verdict { return is(s.e.Role, s.m.Role) }),
		{kinds: called, field: "tool", truth: byRules, by: "decider.call"},
		{kinds: denied, field: "tool", truth: byNothing, claim: claimRefusal},
		{kinds: kinds(record.KindToolReturned, record.KindToolUnknown), field: "tool", truth: byChain, by: "record.CallChain"},
		{kinds: kinds(record.KindApprovalRequest, record.KindApprovalExpired), field: "tool", truth: byChain, by: "closure.request and record.CallChain"},
		ofManifest(toolKinds(), "tier", checkToolTier),

		{kinds: called, field: "refs", truth: byKind, check: func(s *scene) verdict { return may(s.refs(record.RefArguments)) }, claim: "the arguments of a call without an approval, by digest: no agent signs them"},
		{kinds: denied, field: "refs", truth: byKind, check: func(s *scene) verdict { return may(s.refs() || s.refs(record.RefArguments)) }, claim: claimRefusal},
		{kinds: kinds(record.KindToolReturned), field: "refs", truth: byKind, check: func(s *scene) verdict { return may(s.refs(record.RefReturned)) }, claim: claimReturned},
		{kinds: kinds(record.KindToolUnknown), field: "refs", truth: byKind, check: func(s *scene) verdict { return holds(s.refs()) }},
		{kinds: kinds(record.KindApprovalRequest), field: "refs", truth: byManifest, check: func(s *scene) verdict { return holds(s.refs(record.RefAction)) }}, // closure.request compares the action
		{kinds: kinds(record.KindApprovalExpired), field: "refs", truth: byChain, check: checkExpired},
	}, toolDetails()...)
}

// toolDetails are those of the details of these entries.
func toolDetails() []agreement {
	called, denied := kinds(record.KindToolCalled), kinds(record.KindToolDenied)
	returned, unknown := kinds(record.KindToolReturned), kinds(record.KindToolUnknown)
	requested, expired := kinds(record.KindApprovalRequest), kinds(record.KindApprovalExpired)
	return []agreement{
		{kinds: called, field: "detail.approval", truth: byRecord, by: "decider.approved"},
		{kinds: denied, field: "detail.approval", truth: byNothing, claim: claimRefusal},
		{kinds: callKinds(), field: "detail.number", truth: byChain, by: "record.CallChain"},
		{kinds: called, field: "detail.reasons", truth: byKind, check: func(s *scene) verdict { return holds(len(detail[record.ToolCall](s.e).Reasons) == 0) }},
		{kinds: denied, field: "detail.reasons", truth: byNothing, claim: claimRefusal},
		{kinds: callKinds(), field: "detail.subagent", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return is(detail[record.ToolCall](s.e).Subagent, string(s.m.Subagent)) })
		}},
		{kinds: callKinds(), field: "detail.target", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return is(detail[record.ToolCall](s.e).Target, string(s.m.Target)) })
		}},
		{kinds: called, field: "detail.tainted", truth: byChain, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return is(detail[record.ToolCall](s.e).Tainted, s.e.taint != nil) })
		}},
		{kinds: denied, field: "detail.tainted", truth: byChain, check: func(s *scene) verdict { // another call may have tainted it meanwhile
			return known(s.m != nil, func() verdict { return may(s.e.taint != nil || !detail[record.ToolCall](s.e).Tainted) })
		}, claim: claimRefusal},
		{kinds: called, field: "detail.taints", truth: byRevision, check: func(s *scene) verdict {
			t, ok := s.tool()
			return known(ok, func() verdict { return is(detail[record.ToolCall](s.e).Taints, !t.Trusted) })
		}},
		{kinds: denied, field: "detail.taints", truth: byKind, check: func(s *scene) verdict { return is(detail[record.ToolCall](s.e).Taints, false) }},

		{kinds: append(returned, unknown...), field: "detail.number", truth: byChain, by: "record.CallChain"},
		{kinds: returned, field: "detail.bytes", truth: byNothing, claim: claimReturned},
		{kinds: returned, field: "detail.error", truth: byNothing, claim: claimReturned},
		{kinds: append(returned, unknown...), field: "detail.millis", truth: byNothing, claim: claimTime},
		{kinds: unknown, field: "detail.bytes", truth: byKind, check: func(s *scene) verdict { return is(detail[record.ToolReturn](s.e).Bytes, 0) }},
		{kinds: unknown, field: "detail.error", truth: byNothing, claim: claimReturned},

		{kinds: requested, field: "detail.approval", truth: byManifest, by: "closure.request"},
		{kinds: requested, field: "detail.needs", truth: byManifest, by: "closure.request"},
		{kinds: requested, field: "detail.policies", truth: byManifest, by: "closure.request"},
		{kinds: expired, field: "detail.approval", truth: byChain, check: checkExpired},
		{kinds: expired, field: "detail.needs", truth: byChain, check: checkExpired},
		{kinds: expired, field: "detail.policies", truth: byChain, check: checkExpired},
	}
}

// checkToolTier verifies the tier of an entry about a tool: that of the tool; none for a tool
// that the role does not have.
func checkToolTier(s *scene) verdict {
	t, ok := s.tool()
	if !ok {
		return holds(s.e.Tier == nil)
	}
	return holds(s.e.Tier != nil && *s.e.Tier == t.Tier)
}

// aboutTask reports whether an entry is about the approval of a task, or of what one is to
// write: it has no dispatch, and replay.people verifies all of it.
func (s *scene) aboutTask() bool {
	_, ok := s.e.Detail.(record.ApprovalRequest)
	return ok && s.e.Dispatch == "" && s.task != nil
}

// checkExpired compares the end of a request for an approval with the request.
func checkExpired(s *scene) verdict {
	d := detail[record.ApprovalRequest](s.e)
	if s.h == nil || s.h.approvals[d.Approval] == nil {
		return agrees // record.CallChain refuses it
	}
	request := s.h.approvals[d.Approval]
	was := detail[record.ApprovalRequest](request)
	return holds(d.Needs == was.Needs && slices.Equal(d.Policies, was.Policies) && maps.Equal(s.e.Refs, request.Refs))
}

// checkIsLastCall is silent about the last call of an attempt: record.CallChain finds any
// other that is left out.
func checkIsLastCall(s *scene) verdict {
	if s.a == nil {
		return agrees // other rows report it
	}
	last := slices.IndexFunc(s.a.calls, func(e *entry) bool {
		d, ok := e.Detail.(record.ToolCall)
		return ok && d.Number > detail[record.ToolCall](s.e).Number
	})
	if last < 0 {
		return silent
	}
	return agrees
}
