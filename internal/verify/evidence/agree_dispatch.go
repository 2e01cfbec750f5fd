package evidence

import (
	"math"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// dispatchAgreements are those of the details of entries about dispatches.
func dispatchAgreements() []agreement {
	return slices.Concat(requestAgreements(), endAgreements(), besideAgreements())
}

func requestAgreements() []agreement {
	rows := append(like(kinds(record.KindDispatchAccepted), byManifest, admitting, "detail.commit", "detail.source", "detail.envs", "detail.revision", "detail.subagent", "detail.target", "detail.reasons"), []agreement{
		{kinds: kinds(record.KindDispatchAccepted, record.KindDispatchAnswered), field: "detail.budgets", truth: byRules, by: "decider.budgeted and accounts", claim: claimSpent},
		{kinds: kinds(record.KindDispatchAccepted), field: "detail.capabilities", truth: byManifest, check: checkCapabilities, claim: "whether a dispatch outside a run requested capabilities that its subagent has of its own"},
		{kinds: kinds(record.KindDispatchAnswered), field: "detail.attempt", truth: byChain, check: func(s *scene) verdict {
			return is(detail[record.AnswerRequest](s.e).Attempt, int64(s.e.Attempt)-1)
		}},
		{kinds: kinds(record.KindDispatchAnswered), field: "detail.option", truth: byChain, check: checkOption, claim: claimOption},
		{kinds: kinds(record.KindDispatchAnswered), field: "detail.reasons", truth: byKind, check: func(s *scene) verdict { return holds(len(detail[record.AnswerRequest](s.e).Reasons) == 0) }},
	}...)
	for _, f := range []string{"budgets", "capabilities", "commit", "envs", "reasons", "revision", "source", "subagent", "target"} {
		rows = append(rows, agreement{kinds: kinds(record.KindDispatchDenied), field: "detail." + f, truth: byNothing, claim: claimDenied})
	}
	for _, f := range []string{"attempt", "budgets", "option", "reasons"} {
		rows = append(rows, agreement{kinds: kinds(record.KindAnswerDenied), field: "detail." + f, truth: byNothing, claim: claimDenied})
	}
	return rows
}

// checkCapabilities compares the capabilities that were requested with the manifest's,
// which has those of the subagent before them, and with the plan's.
func checkCapabilities(s *scene) verdict {
	if s.m == nil {
		return agrees
	}
	d := detail[record.DispatchRequest](s.e)
	if s.task != nil && sameList(d.Capabilities, s.task.Capabilities) == differs {
		return differs
	}
	rev := s.v.revisions[s.m.RevisionDigest]
	if rev == nil || len(d.Capabilities) >= uncut {
		return silent
	}
	sub, err := rev.subagent(s.m.Subagent)
	if err != nil {
		return silent
	}
	if len(s.m.Capabilities) < len(sub.Capabilities) {
		return differs
	}
	want := slices.Clone(sub.Capabilities)
	for _, n := range d.Capabilities {
		if !slices.Contains(sub.Capabilities, api.Name(n)) {
			want = append(want, api.Name(n))
		}
	}
	switch {
	case !slices.Equal(want, s.m.Capabilities):
		return differs
	case s.task != nil || len(sub.Capabilities) == 0:
		return agrees
	}
	return silent
}

// checkOption compares the option of an answer to a task with the one that its dispatch
// resumes with.
func checkOption(s *scene) verdict {
	if s.r == nil || s.r.answers[s.e.seq] == nil {
		return silent
	}
	given, resumed := s.e, s.r.answers[s.e.seq]
	if s.e.Kind == record.KindDispatchAnswered {
		given, resumed = resumed, given
	}
	g := detail[record.RunAction](given)
	d := detail[record.AnswerRequest](resumed)
	return is(d.Option, g.Option)
}

// admitting returns the entry that admits the dispatch of a manifest.
func admitting(s *scene) *record.Entry {
	if s.m == nil {
		return nil
	}
	e := record.Accepted(s.m, s.e.Refs[record.RefManifest], nil)
	return &e
}

// ended returns the part of the end of an attempt that follows from the worker's result.
// Without one the service asserts it.
func ended(s *scene) *record.Entry {
	if s.a == nil || s.a.end == nil || s.a.result == nil && s.a.end.Refs[record.RefResult] != "" {
		return nil // a result that cannot be read, dispatchCheck.bindResult reports
	}
	want := record.DispatchEnd{Partial: detail[record.DispatchEnd](s.e).Partial}
	if s.a.result != nil {
		want, _ = record.EndOf(&s.a.result.Summary)
	}
	return &record.Entry{Detail: want}
}

func endAgreements() []agreement {
	return append(like(endKinds(), byResult, ended, "detail.exitCode", "detail.files", "detail.verify", "detail.changed", "detail.partial"), []agreement{
		{kinds: endKinds(), field: "detail.budgets", truth: byResult, check: checkSettled},
		{kinds: endKinds(), field: "detail.partial", truth: byStatement, check: func(s *scene) verdict {
			if s.a == nil || s.a.result != nil || s.h.statement == nil {
				return agrees // the row above compares it, or other rows report it
			}
			return is(detail[record.DispatchEnd](s.e).Partial, s.h.statement.Predicate.Dispatch.Partial)
		}},
		{kinds: endKinds(), field: "detail.reason", truth: byResult, check: checkReason},
		{kinds: endKinds(), field: "detail.message", truth: byResult, check: checkMessage, claim: "the message of an end without a worker's result"},
		{kinds: endKinds(), field: "detail.by", truth: byChain, check: checkBy},
		{kinds: endKinds(), field: "detail.millis", truth: byNothing, claim: claimTime},
	}...)
}

// checkReason compares why an attempt ended with its result, and its statement with both.
func checkReason(s *scene) verdict {
	d := detail[record.DispatchEnd](s.e)
	if s.a == nil || s.a.end == nil {
		return agrees
	}
	switch {
	case s.e.Kind != record.KindDispatchFailed:
		return is(d.Reason, "")
	case s.e == s.a.closing:
		return is(d.Reason, string(api.ReasonTimeout))
	case s.a.result != nil:
		return is(d.Reason, string(s.a.result.Reason))
	case s.h.statement != nil:
		return is(d.Reason, string(s.h.statement.Predicate.Dispatch.Reason))
	}
	return agrees // other rows report it
}

func checkMessage(s *scene) verdict {
	if s.a == nil || s.a.result == nil || s.e != s.a.end {
		return silent
	}
	return holds(record.SameText(detail[record.DispatchEnd](s.e).Message, s.a.result.Message))
}

// checkBy verifies who cancelled a dispatch: who requested it first, the service, or who
// engaged a stop that covers it.
func checkBy(s *scene) verdict {
	by := detail[record.DispatchEnd](s.e).By
	if s.e.Kind != record.KindDispatchCancelled {
		return is(by, "")
	}
	if s.a == nil || s.m == nil {
		return agrees // other rows report it
	}
	from, first, who := s.h.attempts[0].admitted.seq, uint64(math.MaxUint64), api.Actor("")
	if e := s.h.cancelled(from); e != nil {
		first, who = e.seq, api.Actor(e.Principal)
		if e.Kind == record.KindDispatchAborted {
			who = api.Service
		}
	}
	if e := s.v.stops.after(from, s.m.StopSubject()); e != nil && e.seq < first {
		first, who = e.seq, api.Actor(e.Principal)
	}
	return holds(first < s.e.seq && by == string(who) && (s.e != s.a.end || s.a.result == nil || tells(s.a.result.Message, by)))
}

// tells reports whether the message of a cancelled worker, if it names who cancelled
// it, names this one.
func tells(message, by string) bool {
	rest, ok := strings.CutPrefix(message, "cancelled: by ")
	who, _, _ := strings.Cut(rest, ": ")
	return !ok || who == by || strings.Contains(who, "...[") // cut
}

func besideAgreements() []agreement {
	cancels := kinds(record.KindCancelRequested, record.KindDispatchAborted)
	access := kinds(record.KindDispatchPinned, record.KindDispatchUnpinned)
	denied := kinds(record.KindAccessDenied, record.KindAccessAllowed)
	return []agreement{
		refusal("detail.form"), refusal("detail.host"), refusal("detail.number"), refusal("detail.reason"),

		{kinds: kinds(record.KindDispatchStarted), field: "detail.isolation", truth: byResult, check: func(s *scene) verdict {
			d := detail[record.DispatchStart](s.e)
			if s.a == nil || s.a.result == nil || len(d.Isolation) == 0 {
				return holds(len(d.Isolation) == 0)
			}
			return sameList(d.Isolation, s.a.result.Summary.Isolation.Layers)
		}},
		{kinds: kinds(record.KindDispatchStarted), field: "detail.pid", truth: byNothing, claim: "process numbers"},
		{kinds: kinds(record.KindDispatchStarted), field: "detail.workerKey", truth: byResult, check: func(s *scene) verdict {
			if s.a == nil || s.a.end == nil || s.a.end.Refs[record.RefResult] == "" {
				return silent
			}
			return agrees // openResult
		}, claim: "the key of a worker that left no result"},

		{kinds: kinds(record.KindDispatchRecovered), field: "detail.state", truth: byChain, check: func(s *scene) verdict {
			return known(s.a != nil, func() verdict { return is(detail[record.DispatchRecovery](s.e).State, string(s.a.stateAt(s.e.seq))) })
		}},
		{kinds: kinds(record.KindDispatchRecovered), field: "detail.worker", truth: byNothing, claim: "how a restarted service found a worker"},
		{kinds: kinds(record.KindDispatchRecovered), field: "detail.message", truth: byKind, check: func(s *scene) verdict { return is(detail[record.DispatchRecovery](s.e).Message, "") }},

		{kinds: kinds(record.KindDispatchAttested), field: "detail.key", truth: byStatement, check: func(s *scene) verdict {
			return known(s.h.statement != nil, func() verdict { return is(detail[record.DispatchAttested](s.e).Key, string(s.h.statementKey)) })
		}},
		{kinds: kinds(record.KindDispatchAttested), field: "detail.subjects", truth: byStatement, check: func(s *scene) verdict {
			return known(s.h.statement != nil, func() verdict {
				return is(detail[record.DispatchAttested](s.e).Subjects, int64(len(s.h.statement.Subject)))
			})
		}},

		{kinds: cancels, field: "detail.state", truth: byChain, check: checkSeenState, claim: "which earlier state of the dispatch was seen when a cancel was requested"},
		{kinds: cancels, field: "detail.reasons", truth: byKind, check: func(s *scene) verdict { return holds(len(detail[record.CancelRequest](s.e).Reasons) == 0) }},
		{kinds: cancels, field: "detail.why", truth: byNothing, claim: "why somebody cancelled, in their own words"},
		{kinds: kinds(record.KindCancelDenied), field: "detail.state", truth: byNothing, claim: claimDenied},
		{kinds: kinds(record.KindCancelDenied), field: "detail.reasons", truth: byNothing, claim: claimDenied},
		{kinds: kinds(record.KindCancelDenied), field: "detail.why", truth: byNothing, claim: claimDenied},

		{kinds: access, field: "detail.operation", truth: byRules, check: func(s *scene) verdict {
			return is(detail[record.Access](s.e).Operation, string(policy.ActionDispatchPin))
		}},
		{kinds: access, field: "detail.reasons", truth: byKind, check: func(s *scene) verdict { return holds(len(detail[record.Access](s.e).Reasons) == 0) }},
		{kinds: denied, field: "detail.operation", truth: byNothing, claim: claimDenied},
		{kinds: denied, field: "detail.reasons", truth: byNothing, claim: claimDenied},
	}
}

// refusal is a row about a refused request. dispatchCheck compares all of an attempt
// with the worker's result at once.
func refusal(field string) agreement {
	return agreement{kinds: kinds(record.KindEgressRefused), field: field, truth: byResult, by: "dispatchCheck.bindResult", check: func(s *scene) verdict {
		if s.a == nil || s.a.result == nil {
			return silent
		}
		return agrees
	}, claim: "requests that were refused in an attempt whose worker left no result"}
}

// checkSeenState verifies that a dispatch had been in the state that a request saw.
func checkSeenState(s *scene) verdict {
	if s.a == nil {
		return agrees
	}
	state := api.Event(detail[record.CancelRequest](s.e).State)
	if s.e.Attempt < 1 || s.e.Attempt > s.a.number {
		return differs
	}
	switch a := s.h.attempts[s.e.Attempt-1]; state { //nolint:exhaustive // an ended dispatch is not cancelled
	case api.EventAccepted:
		return silent
	case api.EventStarted:
		return may(a.started != nil && a.started.seq < s.e.seq)
	case api.EventNeedsInput:
		return may(a.end != nil && a.end.seq < s.e.seq && a.end.Kind == record.KindDispatchNeedsInput)
	}
	return differs
}

// stateAt returns the state of an open attempt before entry n.
func (a *attempt) stateAt(n uint64) api.Event {
	switch {
	case a.end != nil && a.end.seq < n:
		return record.EventOf(a.end.Kind)
	case a.started != nil && a.started.seq < n:
		return api.EventStarted
	}
	return api.EventAccepted
}
