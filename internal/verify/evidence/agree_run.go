package evidence

import (
	"slices"
	"sort"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// runAgreements are those of the details of entries about runs and their tasks.
func runAgreements() []agreement {
	return slices.Concat(submitAgreements(), firedAgreements(), steerAgreements(), taskAgreements(), settleAgreements())
}

func submitAgreements() []agreement {
	const retried = "replay.reuseDone"
	of := kinds(record.KindRunSubmitted)
	rows := []agreement{
		{kinds: of, field: "detail.changed", truth: byChain, by: retried},
		{kinds: of, field: "detail.from", truth: byChain, check: func(s *scene) verdict {
			d := detail[record.RunRequest](s.e)
			return may(d.RetryOf != "" || len(d.From) == 0) // replay.reuseDone compares what follows from it
		}, claim: "which tasks a retry was asked to run again, where they run again anyway"},
		{kinds: of, field: "detail.noReuse", truth: byChain, claim: "whether a run that has no earlier result might have had one"}, // closure.reusePlanned
		{kinds: of, field: "detail.parameters", truth: byNothing, claim: "the parameters and the template that a plan was made from"},
		{kinds: of, field: "detail.queue", truth: byPlan, check: func(s *scene) verdict {
			return known(s.r != nil, func() verdict { return is(detail[record.RunRequest](s.e).Queue, string(s.r.plan.Queue)) })
		}},
		{kinds: of, field: "detail.reasons", truth: byKind, check: func(s *scene) verdict { return holds(len(detail[record.RunRequest](s.e).Reasons) == 0) }},
		{kinds: of, field: "detail.retryOf", truth: byChain, by: retried},
		{kinds: of, field: "detail.revision", truth: byManifest, check: func(s *scene) verdict {
			if s.r != nil && s.e == s.r.submitted && dispatched(s.r) {
				return agrees // world.planned
			}
			return silent
		}, claim: "the catalog revision of a run that dispatched nothing, among those then in force"},
		{kinds: of, field: "detail.rules", truth: byKind, check: func(s *scene) verdict {
			d := detail[record.RunRequest](s.e)
			return may(d.Rules >= plan.OldestRules && d.Rules <= plan.Rules)
		}, claim: "the version of the engine's rules that a run followed, where the operator keys had no principals"}, // else decider.decide compares it
		{kinds: of, field: "detail.schedule", truth: byChain, by: "replay.slot"},
		{kinds: of, field: "detail.slot", truth: byChain, by: "replay.slot"},
		{kinds: of, field: "detail.taken", truth: byChain, by: retried},
		{kinds: of, field: "detail.tasks", truth: byPlan, check: func(s *scene) verdict {
			return known(s.r != nil, func() verdict {
				return is(detail[record.RunRequest](s.e).Tasks, int64(s.r.began))
			})
		}},
		{kinds: of, field: "detail.template", truth: byNothing, check: func(s *scene) verdict {
			d := detail[record.RunRequest](s.e).Template
			_, err := api.ParseDigest(d)
			return may(d == "" || err == nil)
		}, claim: "the parameters and the template that a plan was made from"},
	}
	for _, f := range []string{"changed", "from", "noReuse", "parameters", "queue", "reasons", "retryOf", "revision", "rules", "schedule", "slot", "taken", "tasks", "template"} {
		rows = append(rows, agreement{kinds: kinds(record.KindRunDenied), field: "detail." + f, truth: byNothing, claim: claimDenied})
	}
	return rows
}

// dispatched reports whether a manifest names the catalog revision of the run.
func dispatched(r *replay) bool {
	for i := range r.tasks {
		for _, e := range r.tasks[i].starts {
			if h := r.histories[e.Dispatch]; h != nil && len(h.attempts) > 0 {
				return true
			}
		}
	}
	return false
}

func steerAgreements() []agreement {
	others := except(steerKinds(), record.KindTaskAnswered)
	return []agreement{
		{kinds: others, field: "detail.option", truth: byKind, check: func(s *scene) verdict { return is(detail[record.RunAction](s.e).Option, 0) }},
		{kinds: kinds(record.KindTaskAnswered), field: "detail.option", truth: byChain, check: checkOption, claim: claimOption},
		{kinds: steerKinds(), field: "detail.queue", truth: byKind, check: func(s *scene) verdict { return is(detail[record.RunAction](s.e).Queue, "") }},
		{kinds: steerKinds(), field: "detail.reasons", truth: byKind, check: func(s *scene) verdict { return holds(len(detail[record.RunAction](s.e).Reasons) == 0) }},
		{kinds: kinds(record.KindRunCancelled), field: "detail.why", truth: byNothing, claim: "why somebody cancelled, in their own words"},
		{kinds: except(steerKinds(), record.KindRunCancelled), field: "detail.why", truth: byKind, check: func(s *scene) verdict { return is(detail[record.RunAction](s.e).Why, "") }},
	}
}

// step is a row about a field of the detail of a task's step that only some kinds use.
func step(field string, get func(d record.TaskStep) string, kinds ...record.Kind) agreement {
	return agreement{kinds: except(stepKinds(), kinds...), field: "detail." + field, truth: byKind, check: func(s *scene) verdict { return is(get(detail[record.TaskStep](s.e)), "") }}
}

func taskAgreements() []agreement {
	started := kinds(record.KindTaskStarted)
	cut := func(s *scene) verdict {
		if s.task != nil && len(s.task.Locks) < uncut {
			return agrees // leases.take
		}
		return silent
	}
	return []agreement{
		{kinds: started, field: "detail.fence", truth: byManifest, check: func(s *scene) verdict {
			a := s.next()
			if a == nil || a.manifest == nil {
				return silent
			}
			fence := detail[record.TaskStart](s.e).Fence
			return holds(fence >= 0 && uint64(fence) == a.manifest.Fence)
		}, claim: "the fencing token of a start that dispatched nothing: it only grows"},
		{kinds: except(stepKinds(), record.KindTaskWaiting), field: "detail.approval", truth: byKind, check: func(s *scene) verdict { return holds(!detail[record.TaskStep](s.e).Approval) }},
		{kinds: kinds(record.KindTaskWaiting), field: "detail.approval", truth: byChain, by: "record.TaskChain and taskStep.writing", check: func(s *scene) verdict {
			return may(!detail[record.TaskStep](s.e).Approval || s.a == nil)
		}, claim: "whether a task waited for people before its dispatch began, where its run is not shown"},
		{kinds: started, field: "detail.locks", truth: byPlan, check: cut, claim: "the locks of a task with so many that its entry cuts them, or whose dispatch is shown without its run"},
		{kinds: started, field: "detail.shared", truth: byPlan, check: cut, claim: "the locks of a task with so many that its entry cuts them, or whose dispatch is shown without its run"},

		step("by", func(d record.TaskStep) string { return d.By }, record.KindTaskCancelled),
		{kinds: kinds(record.KindTaskCancelled), field: "detail.by", truth: byChain, check: checkCancelledBy, claim: claimSteps},
		step("cause", func(d record.TaskStep) string { return d.Cause }, record.KindTaskSkipped),
		{kinds: kinds(record.KindTaskSkipped), field: "detail.cause", truth: byPlan, claim: "which of several tasks that failed a skipped task is because of"},
		step("message", func(d record.TaskStep) string { return d.Message }, record.KindTaskWaiting, record.KindTaskFailed, record.KindTaskDenied, record.KindTaskCancelled, record.KindTaskSkipped),
		{kinds: kinds(record.KindTaskSkipped), field: "detail.message", truth: byPlan, check: func(s *scene) verdict {
			d := detail[record.TaskStep](s.e)
			return may(d.Message == "" || s.r == nil || s.task == nil || s.task.When != nil && string(s.task.When.Task) == d.Cause)
		}, claim: "which condition a skipped task names"},
		{kinds: kinds(record.KindTaskWaiting, record.KindTaskFailed, record.KindTaskDenied, record.KindTaskCancelled), field: "detail.message", truth: byChain, check: checkStepMessage, claim: "the message of a task that has no dispatch, or whose dispatch has none"},
		step("reason", func(d record.TaskStep) string { return d.Reason }, record.KindTaskWaiting, record.KindTaskFailed, record.KindTaskDenied),
		{kinds: kinds(record.KindTaskWaiting, record.KindTaskDenied), field: "detail.reason", truth: byChain, check: checkStepReason},
		{kinds: kinds(record.KindTaskFailed), field: "detail.reason", truth: byChain, check: checkStepReason, claim: "why a task failed that could not be dispatched or resumed, integrity or context, and why one failed that grew or could not, or that people could not be asked about"},
		step("until", func(d record.TaskStep) string { return d.Until }, record.KindTaskWaiting),
		{kinds: kinds(record.KindTaskWaiting), field: "detail.until", truth: byChain, claim: "when the next attempt is due"},
	}
}

// asksToWrite reports whether the task of a failed step waited for people to approve what
// it is to write.
func (s *scene) asksToWrite() bool {
	if s.h == nil {
		return false
	}
	k := sort.Search(len(s.h.entries), func(k int) bool { return s.h.entries[k].seq >= s.e.seq })
	if k == 0 {
		return false
	}
	d, _ := s.h.entries[k-1].Detail.(record.TaskStep)
	return d.Approval
}

// startAfter returns the number of the next start of the task of a dispatch after entry
// n; 0 without one.
func (h *history) startAfter(n uint64) uint64 {
	for k := sort.Search(len(h.entries), func(k int) bool { return h.entries[k].seq > n }); k < len(h.entries); k++ {
		if h.entries[k].Kind == record.KindTaskStarted {
			return h.entries[k].seq
		}
	}
	return 0
}

// next returns the attempt of the dispatch that was admitted after the entry, and
// before its task started again; nil if none was.
func (s *scene) next() *attempt {
	if s.h == nil {
		return nil
	}
	k := sort.Search(len(s.h.attempts), func(k int) bool { return s.h.attempts[k].admitted.seq > s.e.seq })
	if k == len(s.h.attempts) {
		return nil
	}
	if n := s.h.startAfter(s.e.seq); n > 0 && n < s.h.attempts[k].admitted.seq {
		return nil
	}
	return s.h.attempts[k]
}

// final returns the end of the dispatch of a task, before the entry.
func (s *scene) final() *entry {
	if s.h == nil || s.h.last() == nil {
		return nil
	}
	if e := s.h.last().final(); e != nil && e.seq < s.e.seq {
		return e
	}
	return nil
}

// checkCancelledBy verifies who cancelled a task: who cancelled its dispatch, or else who
// first requested to cancel it or its run, or the service at the run's limit.
func checkCancelledBy(s *scene) verdict {
	by := detail[record.TaskStep](s.e).By
	final := s.final()
	if final != nil && final.Kind == record.KindDispatchCancelled {
		return is(by, detail[record.DispatchEnd](final).By)
	}
	if s.r == nil || s.task == nil {
		return silent
	}
	i, _ := s.r.plan.Index(s.task.ID)
	return is(by, string(s.r.canceller(s.v.runs[s.r.id], i, s.e.seq)))
}

// checkStepMessage compares the message of a task with that of its dispatch.
func checkStepMessage(s *scene) verdict {
	d := detail[record.TaskStep](s.e)
	var of *entry
	switch {
	case s.h == nil || s.h.last() == nil:
	case s.e.Kind == record.KindTaskWaiting && d.Until == "":
		if a := s.h.at(s.e.seq); a != nil {
			of = a.end
		}
	default:
		of = s.final()
	}
	end := detail[record.DispatchEnd](of)
	switch {
	case of == nil, s.e.Kind == record.KindTaskFailed && of.Kind == record.KindDispatchFinished: // of a gate: see taskStep.endGate
		return silent
	case s.e.Kind == record.KindTaskCancelled || of.Kind == record.KindDispatchCancelled:
		return checkCancelMessage(s, of, d.Message)
	}
	return holds(record.SameText(d.Message, end.Message))
}

// checkCancelMessage compares the message of a cancelled task with the reason of who
// requested to cancel its dispatch.
func checkCancelMessage(s *scene, of *entry, message string) verdict {
	if s.e.Kind != record.KindTaskCancelled || of.Kind != record.KindDispatchCancelled || len(s.v.stops.number) > 0 {
		return silent
	}
	if e := s.h.cancelled(0); e != nil && e.seq < of.seq {
		d := detail[record.CancelRequest](e)
		return holds(record.SameText(message, d.Why))
	}
	return silent
}

// checkStepReason compares the reason of a task with that of its dispatch.
func checkStepReason(s *scene) verdict {
	d := detail[record.TaskStep](s.e)
	final := s.final()
	switch {
	case s.e.Kind == record.KindTaskDenied:
		return is(d.Reason, string(api.ReasonDenied))
	case s.e.Kind == record.KindTaskWaiting && d.Until == "":
		return is(d.Reason, "")
	case final != nil && final.Kind == record.KindDispatchFailed:
		end := detail[record.DispatchEnd](final)
		return is(d.Reason, end.Reason)
	case s.e.Kind == record.KindTaskWaiting:
		return agrees // taskStep.wait reports it
	case s.task != nil && (s.task.Approval != nil || s.h == nil || s.h.last() == nil) && d.Reason == string(api.ReasonTimeout):
		return agrees // taskStep.approval and taskStep.writing report it
	case s.task != nil && (s.h == nil || s.h.last() == nil) && d.Reason == string(api.ReasonOutput) && s.asksToWrite():
		return silent // what it is to write is too large to be shown
	case s.task != nil && (plan.Grows(s.task) || s.task.Gate != nil || s.task.When != nil):
		return silent
	case s.task != nil && s.task.Approval != nil && d.Reason == string(api.ReasonOutput):
		return silent // its products are too large to be shown
	}
	return may(d.Reason == string(api.ReasonIntegrity) || d.Reason == string(api.ReasonContext))
}

func settleAgreements() []agreement {
	settled := kinds(record.KindRunSettled)
	rows := []agreement{
		{kinds: kinds(record.KindRunExpired), field: "detail.limit", truth: byPlan, by: "replay.expire"},
		{kinds: kinds(record.KindRunExpired), field: "detail.millis", truth: byPlan, by: "replay.expire"},
		{kinds: settled, field: "detail.millis", truth: byNothing, check: func(s *scene) verdict { return may(detail[record.RunEnd](s.e).Millis >= 0) }, claim: claimTime},
		{kinds: settled, field: "detail.state", truth: byChain, by: "replay.balance"},
	}
	for f, get := range map[string]func(d record.RunEnd) (int64, api.TaskState){
		"cancelled": func(d record.RunEnd) (int64, api.TaskState) { return d.Cancelled, api.TaskCancelled },
		"denied":    func(d record.RunEnd) (int64, api.TaskState) { return d.Denied, api.TaskDenied },
		"done":      func(d record.RunEnd) (int64, api.TaskState) { return d.Done, api.TaskDone },
		"failed":    func(d record.RunEnd) (int64, api.TaskState) { return d.Failed, api.TaskFailed },
		"skipped":   func(d record.RunEnd) (int64, api.TaskState) { return d.Skipped, api.TaskSkipped },
	} {
		rows = append(rows, agreement{kinds: settled, field: "detail." + f, truth: byChain, check: func(s *scene) verdict {
			return known(s.r != nil && s.e == s.r.settled, func() verdict {
				got, state := get(detail[record.RunEnd](s.e))
				n := int64(0)
				for i := range s.r.tasks {
					if s.r.tasks[i].State == state {
						n++
					}
				}
				return is(got, n)
			})
		}})
	}
	return rows
}
