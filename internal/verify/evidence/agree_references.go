package evidence

import (
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// aboutDispatch are the kinds whose entries are about a dispatch, beside those that admit it.
func aboutDispatch() []record.Kind { return slices.Concat(lifeKinds(), besideKinds()) }

// aboutNone are those whose entries name no dispatch.
func aboutNone() []record.Kind {
	return slices.Concat(ruleKinds(), kinds(record.KindRunSubmitted, record.KindRunAppended, record.KindRunDenied), runFacts(), steerKinds())
}

// referenceAgreements are those of the fields that say what an entry is about.
func referenceAgreements() []agreement {
	return slices.Concat(runReferences(), dispatchReferences(), roleReferences(), chainReferences(), documentReferences())
}

// runReferences are about the run and the task.
func runReferences() []agreement {
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
	}
}

// dispatchReferences are about the dispatch and the attempt.
func dispatchReferences() []agreement {
	return []agreement{
		{kinds: slices.Concat(aboutDispatch(), admitKinds()), field: "dispatch", truth: byChain, by: "verification.chains"},
		{kinds: taskKinds(), field: "dispatch", truth: byChain, check: func(s *scene) verdict {
			if s.e.Dispatch != "" && s.accepted() == nil {
				return silent // replay.task compares the steps of a task with each other
			}
			return agrees
		}, claim: "the id of a dispatch that was never admitted"},
		{kinds: aboutNone(), field: "dispatch", truth: byKind, check: none(func(e *record.Entry) string { return string(e.Dispatch) })},
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
		{kinds: taskKinds(), field: "attempt", truth: byChain, check: checkOfRun, claim: claimSteps},
		{kinds: aboutNone(), field: "attempt", truth: byKind, check: func(s *scene) verdict { return is(s.e.Attempt, 0) }},
		{kinds: except(otherKinds(), record.KindRunDenied), field: "attempt", truth: byNothing, claim: claimDenied},
	}
}

// roleReferences are about the role and the tier.
func roleReferences() []agreement {
	return []agreement{
		{kinds: slices.Concat(aboutDispatch(), admitKinds()), field: "role", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return is(s.e.Role, s.m.Role) })
		}},
		{kinds: slices.Concat(aboutDispatch(), admitKinds()), field: "tier", truth: byManifest, check: func(s *scene) verdict {
			return known(s.m != nil, func() verdict { return holds(s.e.Tier != nil && *s.e.Tier == s.m.Tier) })
		}},
		{kinds: append(except(aboutNone(), record.KindRunDenied), taskKinds()...), field: "role", truth: byKind, check: none(func(e *record.Entry) string { return string(e.Role) })},
		{kinds: append(except(aboutNone(), record.KindRunDenied), taskKinds()...), field: "tier", truth: byKind, check: func(s *scene) verdict { return holds(s.e.Tier == nil) }},
		{kinds: otherKinds(), field: "role", truth: byNothing, claim: claimDenied},
		{kinds: otherKinds(), field: "tier", truth: byNothing, claim: claimDenied},
	}
}

// chainReferences are about the previous entries.
func chainReferences() []agreement {
	ofRun := slices.Concat(admitKinds(), lifeKinds(), otherKinds(), toolKinds())
	return []agreement{
		{kinds: inBundles(), field: "prev.dispatch", truth: byChain, check: func(s *scene) verdict {
			return holds(s.e.Dispatch != "" || s.e.Prev.Dispatch == 0) // verification.chains compares the others
		}},
		{kinds: except(inBundles(), ofRun...), field: "prev.run", truth: byChain, check: checkChained},
		{kinds: ofRun, field: "prev.run", truth: byChain, check: checkChained, claim: "the chain of the run, of a dispatch that is shown without its run"},
		{kinds: inBundles(), field: "prev.rule", truth: byChain, check: func(s *scene) verdict {
			return holds(s.e.Kind.Rules() || s.e.Kind.Admits() || s.e.Prev.Rule == 0) // timeline.step compares the others
		}},
		{kinds: slices.Concat(aboutDispatch(), kinds(record.KindDispatchAnswered)), field: "dispatch", truth: byChain, check: func(s *scene) verdict { return holds(s.a != nil) }},
	}
}

// documentReferences are about the documents that an entry names.
func documentReferences() []agreement {
	return []agreement{
		{kinds: slices.Concat(admitKinds(), endKinds(), kinds(record.KindDispatchStarted, record.KindDispatchAttested)), field: "refs", truth: byManifest, check: checkReferences},
		{kinds: append(endKinds(), record.KindDispatchAnswered, record.KindDispatchAttested), field: "refs", truth: byResult, check: checkProducts},
		{kinds: slices.Concat(requestKinds(), kinds(record.KindCancelDenied, record.KindDispatchAborted, record.KindDispatchRecovered, record.KindEgressRefused, record.KindStopEngaged), except(taskKinds(), record.KindRunGrown), steerKinds()), field: "refs", truth: byKind, check: func(s *scene) verdict { return holds(s.refs()) }},
		{kinds: kinds(record.KindScheduleFired), field: "refs", truth: byKind, check: func(s *scene) verdict { return holds(s.refs()) }},
		{kinds: append(except(runFacts(), record.KindScheduleFired), record.KindRunSubmitted), field: "refs", truth: byPlan, check: func(s *scene) verdict {
			named := s.refs(record.RefPlan)
			if _, ok := scheduleOf(s.e); ok {
				named = s.refs(record.RefPlan, record.RefSchedule) // slots.ofSchedule compares the artifact
			}
			return known(s.r != nil, func() verdict { return holds(named && s.e.Refs[record.RefPlan] == s.r.plan.Digest()) })
		}},
		{kinds: kinds(record.KindCatalogRevision), field: "refs", truth: byRevision, check: func(s *scene) verdict { return may(s.refs(record.RefRevision)) }, claim: claimUnread}, // decider.by needs those that decided
		{kinds: kinds(record.KindOperatorRecorded), field: "refs", truth: byRecord, check: func(s *scene) verdict { return holds(s.refs(record.RefRecord)) }},                      // timeline.applyRecord compares it
		{kinds: except(otherKinds(), record.KindCancelDenied), field: "refs", truth: byNothing, claim: claimDenied},
	}
}

// checkChained verifies that an entry outside any run is in the chain of none.
// verification.chains compares the others.
func checkChained(s *scene) verdict {
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

// checkReferences verifies the refs that an attempt's manifest has or is.
func checkReferences(s *scene) verdict {
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

// checkProducts verifies the refs that follow from the worker's result.
func checkProducts(s *scene) verdict {
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
