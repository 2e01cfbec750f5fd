package evidence

import (
	"maps"
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
		{kinds: taskKinds(), field: "kind", truth: byChain, check: (*scene).ofRun, claim: claimSteps},
		{kinds: except(taskKinds(), record.KindTaskWaiting), field: "entry", truth: byChain, check: (*scene).ofRun, claim: claimSteps},
		{kinds: kinds(record.KindTaskWaiting), field: "entry", truth: byChain, check: func(s *scene) verdict {
			if detail[record.TaskStep](s.e).Until == "" {
				return silent // a service that was down when its dispatch asked and gave up has none
			}
			return s.ofRun()
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
		{kinds: caller, field: "principal", truth: byRules, check: (*scene).caller, claim: claimOperator},
		{kinds: kinds(record.KindOperatorRecorded, record.KindStopEngaged), field: "principal", truth: byNothing, claim: claimCaller},
		{kinds: kinds(record.KindCatalogRevision), field: "principal", truth: byKind, check: func(s *scene) verdict { return is(s.e.Principal, "") }},
		{kinds: serviceKinds(), field: "principal", truth: byManifest, check: (*scene).service, claim: "whether the service names nobody for what it does by itself, or the owner, as earlier versions did"},
		{kinds: otherKinds(), field: "principal", truth: byNothing, claim: claimDenied},
		{kinds: slices.Concat(serviceKinds(), kinds(record.KindCatalogRevision)), field: "token", truth: byKind, check: func(s *scene) verdict { return is(s.e.Token, "") }},
		{kinds: except(besideTools(), slices.Concat(serviceKinds(), kinds(record.KindCatalogRevision))...), field: "token", truth: byKind, check: func(s *scene) verdict { return may(s.e.Token == "" || s.e.Principal != "") }, claim: "the token that authenticated a caller"},

		{kinds: except(besideTools(), otherKinds()...), field: "action", truth: byRules, check: func(s *scene) verdict { return is(s.e.Action, string(actionOf(s.e.Kind))) }},
		{kinds: otherKinds(), field: "action", truth: byNothing, claim: claimDenied},
		{kinds: except(besideTools(), otherKinds()...), field: "resource", truth: byManifest, check: (*scene).resource},
		{kinds: otherKinds(), field: "resource", truth: byNothing, claim: claimDenied},

		{kinds: kinds(record.KindDispatchAccepted, record.KindTaskReused), field: "policies", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return sameList(s.e.Policies, s.m.Policies) })
		}},
		{kinds: kinds(record.KindRunSubmitted, record.KindRunAppended), field: "policies", truth: byRules, by: "decider.decide"},
		{kinds: caller, field: "policies", truth: byRules, check: (*scene).repeated, claim: claimOperator},
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

// caller verifies who decided about a dispatch or a run: its owner, or by policy
// operator another principal. An answer to a task is the one that the run was given.
func (s *scene) caller() verdict {
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

// service verifies whose act an entry about what the service did is.
func (s *scene) service() verdict {
	owner, ok := s.owner()
	return may(s.e.Principal == "" || !ok || s.e.Principal == owner)
}

// repeated repeats the decision about an act on a dispatch or a run, which built-in
// policies decide.
func (s *scene) repeated() verdict {
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

// resource verifies what an entry is about.
func (s *scene) resource() verdict {
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

// ofRun is for what replay compares with the run: silent if that is not here.
func (s *scene) ofRun() verdict {
	if s.r == nil {
		return silent
	}
	return agrees
}

// none verifies that a text of an entry is empty.
func none(get func(e *record.Entry) string) func(s *scene) verdict {
	return func(s *scene) verdict { return is(get(&s.e.Entry), "") }
}

// referenceAgreements are those of the fields that say what an entry is about.
func referenceAgreements() []agreement {
	dispatchKinds := slices.Concat(lifeKinds(), besideKinds())
	ofRun := slices.Concat(admitKinds(), lifeKinds(), otherKinds(), toolKinds())
	ofNone := slices.Concat(ruleKinds(), kinds(record.KindRunSubmitted, record.KindRunAppended, record.KindRunDenied), runFacts(), steerKinds())
	return []agreement{
		{kinds: admitKinds(), field: "run", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return is(api.RunID(s.e.Run), s.m.Run) })
		}},
		{kinds: admitKinds(), field: "task", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return is(api.TaskID(s.e.Task), s.m.Task) })
		}},
		{kinds: lifeKinds(), field: "run", truth: byChain, check: func(s *scene) verdict {
			return known(s.a != nil, func() verdict { return is(s.e.Run, s.a.admitted.Run) })
		}},
		{kinds: lifeKinds(), field: "task", truth: byChain, check: func(s *scene) verdict {
			return known(s.a != nil, func() verdict { return is(s.e.Task, s.a.admitted.Task) })
		}},
		{kinds: append(besideKinds(), ruleKinds()...), field: "run", truth: byKind, check: none(func(e *record.Entry) string { return e.Run })},
		{kinds: slices.Concat(besideKinds(), ruleKinds(), runFacts(), kinds(record.KindRunSubmitted, record.KindRunAppended, record.KindRunPaused, record.KindRunResumed)), field: "task", truth: byKind, check: none(func(e *record.Entry) string { return e.Task })},
		{kinds: taskKinds(), field: "run", truth: byChain, check: func(s *scene) verdict {
			if e := s.accepted(); e != nil {
				return is(s.e.Run, e.Run)
			}
			return holds(s.r != nil)
		}},
		{kinds: slices.Concat(runFacts(), steerKinds(), kinds(record.KindRunSubmitted, record.KindRunAppended)), field: "run", truth: byChain, by: "verification.chains"},
		{kinds: taskKinds(), field: "task", truth: byPlan, check: func(s *scene) verdict {
			if e := s.accepted(); e != nil {
				return is(s.e.Task, e.Task)
			}
			return agrees // replay.step
		}},
		{kinds: kinds(record.KindTaskAnswered), field: "task", truth: byPlan, by: "replay.step"},
		{kinds: kinds(record.KindRunCancelled), field: "task", truth: byPlan, check: func(s *scene) verdict { return may(s.e.Task == "" || s.r == nil || s.task != nil) }, claim: "whether a cancel was for the run or for a task, and for which one, where the tasks ended as each makes them"},
		{kinds: otherKinds(), field: "run", truth: byNothing, claim: claimDenied},
		{kinds: otherKinds(), field: "task", truth: byNothing, claim: claimDenied},

		{kinds: slices.Concat(dispatchKinds, admitKinds()), field: "dispatch", truth: byChain, by: "verification.chains"},
		{kinds: taskKinds(), field: "dispatch", truth: byChain, check: func(s *scene) verdict {
			if s.e.Dispatch != "" && s.accepted() == nil {
				return silent // replay.task compares the steps of a task with each other
			}
			return agrees
		}, claim: "the id of a dispatch that was never admitted"},
		{kinds: ofNone, field: "dispatch", truth: byKind, check: none(func(e *record.Entry) string { return string(e.Dispatch) })},
		{kinds: except(otherKinds(), record.KindRunDenied), field: "dispatch", truth: byNothing, claim: claimDenied},

		{kinds: slices.Concat(admitKinds(), endKinds(), kinds(record.KindDispatchStarted, record.KindEgressRefused)), field: "attempt", truth: byChain, by: "history.step"},
		{kinds: kinds(record.KindDispatchRecovered, record.KindDispatchAttested), field: "attempt", truth: byChain, check: func(s *scene) verdict {
			return known(s.a != nil, func() verdict { return is(s.e.Attempt, s.a.number) })
		}},
		{kinds: append(requestKinds(), record.KindDispatchAborted), field: "attempt", truth: byChain, check: func(s *scene) verdict {
			if s.a != nil && s.a.number == 1 {
				return is(s.e.Attempt, 1)
			}
			return may(s.a == nil || s.e.Attempt >= 1 && s.e.Attempt < s.a.number+1)
		}, claim: "which earlier attempt was seen when something was requested"},
		{kinds: taskKinds(), field: "attempt", truth: byChain, check: (*scene).ofRun, claim: claimSteps},
		{kinds: ofNone, field: "attempt", truth: byKind, check: func(s *scene) verdict { return is(s.e.Attempt, 0) }},
		{kinds: except(otherKinds(), record.KindRunDenied), field: "attempt", truth: byNothing, claim: claimDenied},

		{kinds: slices.Concat(dispatchKinds, admitKinds()), field: "role", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return is(s.e.Role, s.m.Role) })
		}},
		{kinds: slices.Concat(dispatchKinds, admitKinds()), field: "tier", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return holds(s.e.Tier != nil && *s.e.Tier == s.m.Tier) })
		}},
		{kinds: append(except(ofNone, record.KindRunDenied), taskKinds()...), field: "role", truth: byKind, check: none(func(e *record.Entry) string { return string(e.Role) })},
		{kinds: append(except(ofNone, record.KindRunDenied), taskKinds()...), field: "tier", truth: byKind, check: func(s *scene) verdict { return holds(s.e.Tier == nil) }},
		{kinds: otherKinds(), field: "role", truth: byNothing, claim: claimDenied},
		{kinds: otherKinds(), field: "tier", truth: byNothing, claim: claimDenied},

		{kinds: inBundles(), field: "prev.dispatch", truth: byChain, check: func(s *scene) verdict {
			return holds(s.e.Dispatch != "" || s.e.Prev.Dispatch == 0) // verification.chains compares the others
		}},
		{kinds: except(inBundles(), ofRun...), field: "prev.run", truth: byChain, check: (*scene).chained},
		{kinds: ofRun, field: "prev.run", truth: byChain, check: (*scene).chained, claim: "the chain of the run, of a dispatch that is shown without its run"},
		{kinds: inBundles(), field: "prev.rule", truth: byChain, check: func(s *scene) verdict {
			return holds(s.e.Kind.Rules() || s.e.Kind.Admits() || s.e.Prev.Rule == 0) // timeline.step compares the others
		}},
		{kinds: slices.Concat(dispatchKinds, kinds(record.KindDispatchAnswered)), field: "dispatch", truth: byChain, check: func(s *scene) verdict { return holds(s.a != nil) }},

		{kinds: slices.Concat(admitKinds(), endKinds(), kinds(record.KindDispatchStarted, record.KindDispatchAttested)), field: "refs", truth: byManifest, check: (*scene).references},
		{kinds: append(endKinds(), record.KindDispatchAnswered, record.KindDispatchAttested), field: "refs", truth: byResult, check: (*scene).products},
		{kinds: slices.Concat(requestKinds(), kinds(record.KindCancelDenied, record.KindDispatchAborted, record.KindDispatchRecovered, record.KindEgressRefused, record.KindStopEngaged), except(taskKinds(), record.KindRunGrown), steerKinds()), field: "refs", truth: byKind, check: func(s *scene) verdict { return holds(s.refs()) }},
		{kinds: kinds(record.KindScheduleFired), field: "refs", truth: byKind, check: func(s *scene) verdict { return holds(s.refs()) }},
		{kinds: append(except(runFacts(), record.KindScheduleFired), record.KindRunSubmitted), field: "refs", truth: byPlan, check: func(s *scene) verdict {
			named := s.refs(record.RefPlan)
			if _, ok := scheduleOf(s.e); ok {
				named = s.refs(record.RefPlan, record.RefSchedule) // verification.ofSchedule compares the artifact
			}
			return known(s.r != nil, func() verdict { return holds(named && s.e.Refs[record.RefPlan] == s.r.plan.Digest()) })
		}},
		{kinds: kinds(record.KindCatalogRevision), field: "refs", truth: byRevision, check: func(s *scene) verdict { return may(s.refs(record.RefRevision)) }, claim: claimUnread}, // decider.by needs those that decided
		{kinds: kinds(record.KindOperatorRecorded), field: "refs", truth: byRecord, check: func(s *scene) verdict { return holds(s.refs(record.RefRecord)) }},                      // timeline.applyRecord compares it
		{kinds: except(otherKinds(), record.KindCancelDenied), field: "refs", truth: byNothing, claim: claimDenied},
	}
}

// chained verifies that an entry outside any run is in the chain of none.
// verification.chains compares the others.
func (s *scene) chained() verdict {
	switch {
	case s.e.Run == "":
		return is(s.e.Prev.Run, 0)
	case s.v.replayed[api.RunID(s.e.Run)] != nil:
		return agrees
	}
	return silent
}

// refs reports whether the entry has exactly these refs.
func (s *scene) refs(names ...string) bool {
	if len(s.e.Refs) != len(names) {
		return false
	}
	for _, n := range names {
		if s.e.Refs[n] == "" {
			return false
		}
	}
	return true
}

// references verifies the refs that an attempt's manifest has or is.
func (s *scene) references() verdict {
	if s.a == nil || s.m == nil {
		return agrees // other rows report it
	}
	refs := s.e.Refs
	switch s.e.Kind { //nolint:exhaustive // of the kinds in its row
	case record.KindDispatchAccepted, record.KindTaskReused:
		return holds(s.refs(record.RefManifest, record.RefInput) && refs[record.RefInput] == s.m.Input)
	case record.KindDispatchAnswered:
		return holds(s.refs(record.RefManifest, record.RefAnswer, record.RefQuestion) && s.m.Resume != nil && refs[record.RefAnswer] == s.m.Resume.Answer)
	case record.KindDispatchStarted:
		if !s.refs(record.RefManifest) {
			return differs
		}
	}
	return is(refs[record.RefManifest], s.a.admitted.Refs[record.RefManifest])
}

// products verifies the refs that follow from the worker's result.
func (s *scene) products() verdict {
	if s.a == nil {
		return agrees // other rows report it
	}
	switch s.e.Kind { //nolint:exhaustive // of the kinds in its row
	case record.KindDispatchAnswered:
		if s.a.number < 2 || s.h.attempts[s.a.number-2].result == nil {
			return agrees // closure.resume reports it
		}
		_, want := record.EndOf(&s.h.attempts[s.a.number-2].result.Summary)
		return is(s.e.Refs[record.RefQuestion], want[record.RefQuestion])
	case record.KindDispatchAttested:
		final := s.a.final()
		if final == nil || final.Refs[record.RefResult] == "" {
			return holds(s.refs(record.RefManifest, record.RefStatement))
		}
		return holds(s.refs(record.RefManifest, record.RefStatement, record.RefResult) && s.e.Refs[record.RefResult] == final.Refs[record.RefResult])
	}
	end := s.a.end // the one that has the worker's result, also for the end of a question without an answer
	if end == nil {
		return agrees
	}
	want := map[string]api.Digest{}
	if s.a.result != nil {
		_, want = record.EndOf(&s.a.result.Summary)
		want[record.RefResult] = end.Refs[record.RefResult]
	} else if end.Refs[record.RefResult] != "" {
		return agrees // it cannot be read, which dispatchCheck.bindResult reports
	} else if k := end.Kind; k == record.KindDispatchFinished || k == record.KindDispatchNeedsInput {
		return differs
	}
	want[record.RefManifest] = s.e.Refs[record.RefManifest]
	if s.a.called() { // Binds compares it with the statement
		want[record.RefCalls] = end.Refs[record.RefCalls]
	}
	return holds(maps.Equal(s.e.Refs, want))
}
