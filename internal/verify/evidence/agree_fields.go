package evidence

import (
	"slices"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

func kinds(list ...record.Kind) []record.Kind { return list }

// Kinds that have much in common.
func endKinds() []record.Kind {
	return kinds(record.KindDispatchFinished, record.KindDispatchNeedsInput, record.KindDispatchFailed, record.KindDispatchCancelled)
}

// lifeKinds are what the service says of the life of a dispatch.
func lifeKinds() []record.Kind {
	return append(endKinds(), record.KindDispatchStarted, record.KindDispatchRecovered, record.KindEgressRefused)
}

// requestKinds are what callers do to a dispatch that exists.
func requestKinds() []record.Kind {
	return kinds(record.KindCancelRequested, record.KindDispatchPinned, record.KindDispatchUnpinned)
}

// besideKinds are about a dispatch and do not name its run.
func besideKinds() []record.Kind {
	return append(requestKinds(), record.KindDispatchAttested, record.KindDispatchAborted)
}

// admitKinds admit an attempt.
func admitKinds() []record.Kind {
	return kinds(record.KindDispatchAccepted, record.KindDispatchAnswered, record.KindTaskReused)
}

func stepKinds() []record.Kind {
	return kinds(record.KindTaskWaiting, record.KindTaskDone, record.KindTaskFailed, record.KindTaskSkipped, record.KindTaskCancelled, record.KindTaskDenied)
}

func taskKinds() []record.Kind {
	return append(stepKinds(), record.KindTaskStarted, record.KindRunGrown)
}

func runFacts() []record.Kind {
	return kinds(record.KindScheduleFired, record.KindRunExpired, record.KindRunSettled)
}

// steerKinds are what callers do to a run.
func steerKinds() []record.Kind {
	return kinds(record.KindRunCancelled, record.KindRunPaused, record.KindRunResumed, record.KindTaskAnswered)
}

func ruleKinds() []record.Kind {
	return kinds(record.KindCatalogRevision, record.KindOperatorRecorded, record.KindStopEngaged)
}

// otherKinds are denials, and what has no effect: nothing follows from them.
func otherKinds() []record.Kind {
	return kinds(record.KindDispatchDenied, record.KindCancelDenied, record.KindAnswerDenied, record.KindRunDenied, record.KindAccessDenied, record.KindAccessAllowed)
}

// inBundles are the kinds whose entries are about a run or a dispatch, or rule.
func inBundles() []record.Kind { return append(besideTools(), toolKinds()...) }

// besideTools are those of them that are not about tools.
func besideTools() []record.Kind {
	return slices.Concat(lifeKinds(), besideKinds(), admitKinds(), taskKinds(), runFacts(), steerKinds(), ruleKinds(), otherKinds(), kinds(record.KindRunSubmitted, record.KindRunAppended))
}

func except(from []record.Kind, kinds ...record.Kind) []record.Kind {
	return slices.DeleteFunc(slices.Clone(from), func(k record.Kind) bool { return slices.Contains(kinds, k) })
}

// neededKinds are those without whose entries the others are no possible history.
func neededKinds() []record.Kind {
	return slices.Concat(admitKinds(), endKinds(), taskKinds(), runFacts(), kinds(record.KindDispatchAttested, record.KindRunSubmitted, record.KindRunAppended))
}

// notInBundles are the other kinds: the service writes none about a run or dispatch.
func notInBundles() []record.Kind { return except(record.Kinds(), inBundles()...) }

const (
	claimTime     = "times and durations: the service's clock"
	claimDenied   = "what was denied, to whom and why, and requests without an effect: nothing follows from them"
	claimOperator = "who the operator of the service is: policy operator decided, or might have"
	claimOption   = "the option of an answer outside a run, and of one that was never delivered"
	claimSpent    = "what dispatches that are not in the evidence had spent of a budget before; and what was in the budget of a run whose plan is not"
	claimSteps    = "the steps of a task whose dispatch is shown without its run"
	claimVain     = "that anything was requested or changed which had no effect here: without the entry the rest is as it is"
	claimUnread   = "a catalog revision by which nothing in the bundle was decided"
	claimCaller   = "callers: the service authenticated them, and no caller signs a request"
)

// serviceKinds are what the service does by itself.
func serviceKinds() []record.Kind {
	return slices.Concat(lifeKinds(), kinds(record.KindDispatchAttested, record.KindDispatchAborted), taskKinds(), runFacts())
}

// headAgreements are those of the fields of every entry.
func headAgreements() []agreement {
	caller := slices.Concat(requestKinds(), steerKinds(), kinds(record.KindDispatchAnswered))
	return []agreement{
		{kinds: notInBundles(), field: "*", truth: byKind, check: func(*scene) verdict { return differs }},

		{kinds: except(besideTools(), slices.Concat(otherKinds(), kinds(record.KindDispatchPinned, record.KindDispatchUnpinned, record.KindRunPaused, record.KindRunResumed, record.KindCancelRequested), taskKinds())...), field: "kind", truth: byChain, by: "history.step, replay.step and timeline.step"},
		{kinds: kinds(record.KindDispatchPinned, record.KindDispatchUnpinned), field: "kind", truth: byNothing, claim: "whether a dispatch was pinned or unpinned"},
		{kinds: kinds(record.KindRunPaused, record.KindRunResumed), field: "kind", truth: byNothing, claim: "whether a run was paused or resumed, where no task started in between"},
		{kinds: kinds(record.KindCancelRequested), field: "kind", truth: byNothing, claim: claimVain},
		{kinds: otherKinds(), field: "kind", truth: byNothing, claim: claimDenied},
		{kinds: taskKinds(), field: "kind", truth: byChain, check: checkOfRun, claim: claimSteps},
		{kinds: except(taskKinds(), record.KindTaskWaiting), field: "entry", truth: byChain, check: checkOfRun, claim: claimSteps},
		{kinds: kinds(record.KindTaskWaiting), field: "entry", truth: byChain, check: func(s *scene) verdict {
			if detail[record.TaskStep](s.e).Until == "" {
				return silent // a service that was down when its dispatch asked and gave up has none
			}
			return checkOfRun(s)
		}, claim: "that a task waited for an answer that was not given, and " + claimSteps},
		{kinds: except(neededKinds(), taskKinds()...), field: "entry", truth: byChain, by: "history.step, replay and timeline"},
		{kinds: except(besideTools(), append(neededKinds(), append(otherKinds(), record.KindEgressRefused)...)...), field: "entry", truth: byNothing, claim: claimVain},
		refusal("entry"),
		{kinds: otherKinds(), field: "entry", truth: byNothing, claim: claimDenied},
		{kinds: inBundles(), field: "at", truth: byNothing, claim: claimTime},
		{kinds: inBundles(), field: "decision", truth: byKind, by: "record.DecodeEntry"},
		{kinds: besideTools(), field: "tool", truth: byKind, check: func(s *scene) verdict { return is(s.e.Tool, "") }},

		{kinds: kinds(record.KindDispatchAccepted, record.KindTaskReused), field: "principal", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return is(s.e.Principal, s.m.Principal) })
		}},
		{kinds: kinds(record.KindRunSubmitted, record.KindRunAppended), field: "principal", truth: byRules, by: "decider.decide"},
		{kinds: caller, field: "principal", truth: byRules, check: checkCaller, claim: claimOperator},
		{kinds: kinds(record.KindOperatorRecorded, record.KindStopEngaged), field: "principal", truth: byNothing, claim: claimCaller},
		{kinds: kinds(record.KindCatalogRevision), field: "principal", truth: byKind, check: func(s *scene) verdict { return is(s.e.Principal, "") }},
		{kinds: serviceKinds(), field: "principal", truth: byManifest, check: checkService, claim: "whether the service names nobody for what it does by itself, or the owner, as earlier versions did"},
		{kinds: otherKinds(), field: "principal", truth: byNothing, claim: claimDenied},
		{kinds: slices.Concat(serviceKinds(), kinds(record.KindCatalogRevision)), field: "token", truth: byKind, check: func(s *scene) verdict { return is(s.e.Token, "") }},
		{kinds: except(besideTools(), slices.Concat(serviceKinds(), kinds(record.KindCatalogRevision))...), field: "token", truth: byKind, check: func(s *scene) verdict { return may(s.e.Token == "" || s.e.Principal != "") }, claim: "the token that authenticated a caller"},

		{kinds: except(besideTools(), otherKinds()...), field: "action", truth: byRules, check: func(s *scene) verdict { return is(s.e.Action, string(actionOf(s.e.Kind))) }},
		{kinds: otherKinds(), field: "action", truth: byNothing, claim: claimDenied},
		{kinds: except(besideTools(), otherKinds()...), field: "resource", truth: byManifest, check: checkResource},
		{kinds: otherKinds(), field: "resource", truth: byNothing, claim: claimDenied},

		{kinds: kinds(record.KindDispatchAccepted, record.KindTaskReused), field: "policies", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return sameList(s.e.Policies, s.m.Policies) })
		}},
		{kinds: kinds(record.KindRunSubmitted, record.KindRunAppended), field: "policies", truth: byRules, by: "decider.decide"},
		{kinds: caller, field: "policies", truth: byRules, check: checkRepeated, claim: claimOperator},
		{kinds: append(serviceKinds(), ruleKinds()...), field: "policies", truth: byKind, check: func(s *scene) verdict { return holds(len(s.e.Policies) == 0) }},
		{kinds: otherKinds(), field: "policies", truth: byNothing, claim: claimDenied},
	}
}

// known is silent where the bundle has nothing that could be read, which other rows
// report.
func known(ok bool, f func() verdict) verdict {
	if !ok {
		return agrees
	}
	return f()
}

// actionOf returns the action that an entry which admits or changes something was
// decided as.
func actionOf(k record.Kind) policy.Action {
	switch k { //nolint:exhaustive // nobody decides the others
	case record.KindDispatchAccepted, record.KindTaskReused:
		return policy.ActionDispatch
	case record.KindDispatchAnswered:
		return policy.ActionDispatchAnswer
	case record.KindCancelRequested:
		return policy.ActionDispatchCancel
	case record.KindDispatchPinned, record.KindDispatchUnpinned:
		return policy.ActionDispatchPin
	case record.KindRunSubmitted:
		return policy.ActionRunSubmit
	case record.KindRunAppended:
		return policy.ActionRunAppend
	case record.KindRunCancelled:
		return policy.ActionRunCancel
	case record.KindRunPaused, record.KindRunResumed:
		return policy.ActionRunPause
	case record.KindTaskAnswered:
		return policy.ActionRunAnswer
	}
	return ""
}

// checkCaller verifies who decided about a dispatch or a run: its owner, or by policy
// operator another principal. An answer to a task is the one that the run was given.
func checkCaller(s *scene) verdict {
	owner, ok := s.owner()
	switch {
	case !ok:
		return agrees // other rows report it
	case s.e.Kind == record.KindDispatchAnswered && s.r != nil:
		return agrees // replay.step compares it with the answer given to the task
	case slices.Contains(s.e.Policies, "owner"):
		return is(s.e.Principal, owner)
	}
	return may(s.e.Principal != owner && s.e.Principal != "")
}

// checkService checks that an entry about the service's own action names no principal, or the
// owner.
func checkService(s *scene) verdict {
	owner, ok := s.owner()
	return may(s.e.Principal == "" || !ok || s.e.Principal == owner)
}

// checkRepeated repeats the decision about an act on a dispatch or a run, which built-in
// policies decide.
func checkRepeated(s *scene) verdict {
	owner, ok := s.owner()
	if !ok {
		return agrees // other rows report it
	}
	operator := api.Principal("")
	if slices.Contains(s.e.Policies, "operator") {
		operator = s.e.Principal
	}
	engine, err := s.v.builtInRules(operator)
	if err != nil || s.v.work.spend(unitDecision) != nil {
		return differs
	}
	d := engine.Decide(policy.Request{Principal: s.e.Principal, Action: actionOf(s.e.Kind), Resource: s.e.Resource, Owner: owner})
	switch {
	case !d.Allowed() || !slices.Equal(d.Policies(), s.e.Policies):
		return differs
	case slices.Contains(s.e.Policies, "owner"):
		return silent // an owner may be the operator, too
	}
	return agrees
}

// builtInRules returns the rules of a catalog without grants, compiled once for
// each operator, so that the work does not depend on the order of goroutines.
func (v *verification) builtInRules(operator api.Principal) (*policy.Engine, error) {
	compile, _ := v.builtIn.LoadOrStore(operator, sync.OnceValues(func() (*policy.Engine, error) {
		if err := v.work.spend(unitEngine); err != nil {
			return nil, err
		}
		return policy.New(policy.Rules{Operator: operator})
	}))
	return compile.(func() (*policy.Engine, error))() //nolint:forcetypeassert // only these are stored
}

// checkResource verifies what an entry is about.
func checkResource(s *scene) verdict {
	e := s.e
	switch k := e.Kind; {
	case k == record.KindDispatchAnswered || slices.Contains(requestKinds(), k):
		return is(e.Resource, string(e.Dispatch))
	case slices.Contains(steerKinds(), k), k == record.KindRunAppended:
		return is(e.Resource, e.Run)
	case k == record.KindRunSubmitted:
		return is(e.Resource, string(e.Principal))
	case slices.Contains(taskKinds(), k) && s.task != nil:
		return is(e.Resource, string(s.task.Subagent))
	case slices.Contains(taskKinds(), k) && s.accepted() != nil:
		return is(e.Resource, s.accepted().Resource)
	case e.Dispatch == "":
		return is(e.Resource, "")
	case s.m == nil:
		return agrees // other rows report it
	}
	return is(e.Resource, string(s.m.Subagent))
}

// accepted returns the entry that accepted the dispatch of s.e, or nil.
func (s *scene) accepted() *entry {
	if s.h == nil || len(s.h.attempts) == 0 {
		return nil
	}
	return s.h.attempts[0].admitted
}

// checkOfRun is for what replay compares with the run: silent if that is not here.
func checkOfRun(s *scene) verdict {
	if s.r == nil {
		return silent
	}
	return agrees
}

// none verifies that a text of an entry is empty.
func none(get func(e *record.Entry) string) func(s *scene) verdict {
	return func(s *scene) verdict { return is(get(&s.e.Entry), "") }
}
