package record

import "time"

// Kind says what an entry records. The set is closed; adding to it is a
// decision that readers of old logs have to be able to follow.
type Kind string

// The kinds. What their entries have in common is in the table below.
const (
	KindServiceStarted Kind = "service.started"
	KindServiceStopped Kind = "service.stopped"
	KindKeyRotated     Kind = "service.key_rotated" // another signing key is in force

	KindCatalogRevision Kind = "catalog.revision" // a revision was verified and is in force
	KindCatalogKeys     Kind = "catalog.keys"     // another set of deploy keys is in force
	KindCatalogRefused  Kind = "catalog.refused"  // a revision was refused: unsigned, foreign, replayed, corrupt

	KindAuthRefused    Kind = "auth.refused"    // the caller could not be authenticated
	KindRequestInvalid Kind = "request.invalid" // a request was malformed or contradicted what is stored
	KindHTTPRequested  Kind = "http.requested"  // a program requested to serve the tools over HTTP

	KindSessionOpened Kind = "session.opened" // a person logged in; the session is valid once this is durable
	KindSessionEnded  Kind = "session.ended"

	KindDispatchAccepted   Kind = "dispatch.accepted"
	KindDispatchDenied     Kind = "dispatch.denied"
	KindDispatchStarted    Kind = "dispatch.started" // binds the worker's key
	KindDispatchFinished   Kind = "dispatch.finished"
	KindDispatchNeedsInput Kind = "dispatch.needs_input"
	KindDispatchFailed     Kind = "dispatch.failed"
	KindDispatchCancelled  Kind = "dispatch.cancelled"
	KindDispatchRecovered  Kind = "dispatch.recovered" // a restarted service adopted the dispatch
	KindDispatchAttested   Kind = "dispatch.attested"  // the signed statement of its outcome

	KindEgressRefused Kind = "egress.refused" // the broker refused a request of the agent

	KindToolCalled      Kind = "tool.called"   // admits the call to the upstream
	KindToolDenied      Kind = "tool.denied"   // also malformed calls, and those of unknown tools
	KindToolReturned    Kind = "tool.returned" // it answered, or failed
	KindToolUnknown     Kind = "tool.unknown"  // its attempt or the service ended while it was out
	KindToolChanged     Kind = "tool.changed"  // its definition differs from its pin: it is disabled
	KindApprovalRequest Kind = "approval.requested"
	KindApprovalExpired Kind = "approval.expired"

	KindCancelRequested Kind = "dispatch.cancel_requested"
	KindDispatchAborted Kind = "dispatch.aborted" // the service itself cancels it
	KindCancelDenied    Kind = "dispatch.cancel_denied"

	KindDispatchAnswered Kind = "dispatch.answered" // admits the next attempt
	KindAnswerDenied     Kind = "dispatch.answer_denied"

	KindDispatchPinned   Kind = "dispatch.pinned"
	KindDispatchUnpinned Kind = "dispatch.unpinned"
	KindRetentionRemoved Kind = "retention.removed" // logged before content or evidence of dispatches is removed

	KindRunSubmitted Kind = "run.submitted"
	KindRunDenied    Kind = "run.denied"           // the plan requests what its caller is not granted
	KindRunCancelled Kind = "run.cancel_requested" // the run, or one task of it
	KindRunPaused    Kind = "run.paused"
	KindRunResumed   Kind = "run.resumed"
	KindRunExpired   Kind = "run.expired"  // it reached a limit: what is open is cancelled
	KindRunGrown     Kind = "run.grown"    // tasks were added because of a product of another
	KindRunAppended  Kind = "run.appended" // a caller added tasks
	KindRunSettled   Kind = "run.settled"  // the last entry of the run
	KindQueuePaused  Kind = "queue.paused"
	KindQueueResumed Kind = "queue.resumed"

	KindScheduleFired   Kind = "schedule.fired"   // the run of a slot is submitted once this is durable
	KindScheduleSkipped Kind = "schedule.skipped" // a slot, or several, have no run
	KindScheduleRun     Kind = "schedule.run"     // a caller requested a slot for now
	KindSchedulePaused  Kind = "schedule.paused"
	KindScheduleResumed Kind = "schedule.resumed"

	KindTaskStarted   Kind = "task.started"  // its dispatch is requested once this is durable
	KindTaskWaiting   Kind = "task.waiting"  // for an answer, or for its next attempt
	KindTaskAnswered  Kind = "task.answered" // the attempt resumes as soon as it can
	KindTaskDone      Kind = "task.done"
	KindTaskFailed    Kind = "task.failed"
	KindTaskSkipped   Kind = "task.skipped"
	KindTaskCancelled Kind = "task.cancelled"
	KindTaskDenied    Kind = "task.denied"
	KindTaskReused    Kind = "task.reused" // admits the result of an earlier dispatch as its own

	KindOperatorRecorded Kind = "operator.recorded" // a decision signed by an operator is in force
	KindStopEngaged      Kind = "stop.engaged"      // an emergency stop is in force

	KindEvidenceRefused Kind = "evidence.refused" // the service's own evidence did not verify

	KindAuditRead     Kind = "audit.read"
	KindStopRequested Kind = "service.stop_requested"
	KindAccessAllowed Kind = "access.allowed" // any other verb
	KindAccessDenied  Kind = "access.denied"  // a verb without a denial of its own
)

// current returns the word of today for a kind. Entries are signed, so that a log keeps
// the words that they were written with; these two were renamed before 0.1.0.
func (k Kind) current() Kind {
	switch k { //nolint:exhaustive // the others have one word
	case "http.asked":
		return KindHTTPRequested
	case "dispatch.found":
		return KindDispatchRecovered
	}
	return k
}

// kindRow is what the entries of one kind have in common.
type kindRow struct {
	kind     Kind
	decision Decided
	detail   Detail // a zero value of the detail's type
	denial   Kind   // of an allowing kind: the kind that records the denial of the same request
	effect   effect
}

// effect says what an entry changes for those after it.
type effect int

const (
	noEffect effect = iota
	rules           // it changes what is allowed
	admits          // something is started because of it
)

// kinds is the table of all kinds, in the order in which Kinds lists them.
var kinds = [...]kindRow{ //nolint:gochecknoglobals // a table that nothing writes, too large to build for each entry
	{KindServiceStarted, NoDecided, ServiceStart{}, "", noEffect},
	{KindServiceStopped, NoDecided, ServiceStop{}, "", noEffect},
	{KindKeyRotated, NoDecided, KeyRotation{}, "", noEffect},
	{KindCatalogRevision, NoDecided, RevisionSeen{}, "", rules},
	{KindCatalogKeys, NoDecided, DeployKeysSeen{}, "", noEffect},
	{KindCatalogRefused, NoDecided, RevisionRefused{}, "", noEffect},
	{KindAuthRefused, NoDecided, AuthRefused{}, "", noEffect},
	{KindRequestInvalid, NoDecided, InvalidRequest{}, "", noEffect},
	{KindHTTPRequested, NoDecided, HTTPRequest{}, "", noEffect},
	{KindSessionOpened, NoDecided, SessionOpened{}, "", noEffect},
	{KindSessionEnded, NoDecided, SessionEnded{}, "", noEffect},

	{KindDispatchAccepted, Allow, DispatchRequest{}, KindDispatchDenied, admits},
	{KindDispatchDenied, Deny, DispatchRequest{}, "", noEffect},
	{KindDispatchStarted, NoDecided, DispatchStart{}, "", noEffect},
	{KindDispatchFinished, NoDecided, DispatchEnd{}, "", noEffect},
	{KindDispatchNeedsInput, NoDecided, DispatchEnd{}, "", noEffect},
	{KindDispatchFailed, NoDecided, DispatchEnd{}, "", noEffect},
	{KindDispatchCancelled, NoDecided, DispatchEnd{}, "", noEffect},
	{KindDispatchRecovered, NoDecided, DispatchRecovery{}, "", noEffect},
	{KindDispatchAttested, NoDecided, DispatchAttested{}, "", noEffect},
	{KindEgressRefused, NoDecided, EgressRefusal{}, "", noEffect},
	{KindToolCalled, Allow, ToolCall{}, KindToolDenied, admits},
	{KindToolDenied, Deny, ToolCall{}, "", noEffect},
	{KindToolReturned, NoDecided, ToolReturn{}, "", noEffect},
	{KindToolUnknown, NoDecided, ToolReturn{}, "", noEffect},
	{KindToolChanged, NoDecided, ToolChange{}, "", noEffect},
	{KindApprovalRequest, NoDecided, ApprovalRequest{}, "", noEffect},
	{KindApprovalExpired, NoDecided, ApprovalRequest{}, "", noEffect},
	{KindCancelRequested, Allow, CancelRequest{}, KindCancelDenied, noEffect},
	{KindCancelDenied, Deny, CancelRequest{}, "", noEffect},
	{KindDispatchAborted, NoDecided, CancelRequest{}, "", noEffect},
	{KindDispatchAnswered, Allow, AnswerRequest{}, KindAnswerDenied, admits},
	{KindAnswerDenied, Deny, AnswerRequest{}, "", noEffect},
	{KindDispatchPinned, Allow, Access{}, KindAccessDenied, noEffect},
	{KindDispatchUnpinned, Allow, Access{}, KindAccessDenied, noEffect},
	{KindRetentionRemoved, NoDecided, Removal{}, "", noEffect},

	{KindRunSubmitted, Allow, RunRequest{}, KindRunDenied, admits},
	{KindRunDenied, Deny, RunRequest{}, "", noEffect},
	{KindRunCancelled, Allow, RunAction{}, KindAccessDenied, noEffect},
	{KindRunPaused, Allow, RunAction{}, KindAccessDenied, noEffect},
	{KindRunResumed, Allow, RunAction{}, KindAccessDenied, noEffect},
	{KindRunExpired, NoDecided, RunExpiry{}, "", noEffect},
	{KindRunGrown, NoDecided, RunGrowth{}, "", noEffect},
	{KindRunAppended, Allow, RunGrowth{}, KindAccessDenied, admits},
	{KindRunSettled, NoDecided, RunEnd{}, "", noEffect},
	{KindQueuePaused, Allow, RunAction{}, KindAccessDenied, noEffect},
	{KindQueueResumed, Allow, RunAction{}, KindAccessDenied, noEffect},
	{KindScheduleFired, NoDecided, ScheduleSlot{}, "", noEffect},
	{KindScheduleSkipped, NoDecided, ScheduleSlot{}, "", noEffect},
	{KindScheduleRun, Allow, ScheduleAction{}, KindAccessDenied, noEffect},
	{KindSchedulePaused, Allow, ScheduleAction{}, KindAccessDenied, noEffect},
	{KindScheduleResumed, Allow, ScheduleAction{}, KindAccessDenied, noEffect},
	{KindTaskStarted, NoDecided, TaskStart{}, "", noEffect},
	{KindTaskWaiting, NoDecided, TaskStep{}, "", noEffect},
	{KindTaskAnswered, Allow, RunAction{}, KindAccessDenied, noEffect},
	{KindTaskDone, NoDecided, TaskStep{}, "", noEffect},
	{KindTaskFailed, NoDecided, TaskStep{}, "", noEffect},
	{KindTaskSkipped, NoDecided, TaskStep{}, "", noEffect},
	{KindTaskCancelled, NoDecided, TaskStep{}, "", noEffect},
	{KindTaskDenied, NoDecided, TaskStep{}, "", noEffect},
	{KindTaskReused, Allow, TaskReuse{}, KindDispatchDenied, admits},

	{KindOperatorRecorded, NoDecided, OperatorDecision{}, "", rules},
	{KindStopEngaged, NoDecided, StopEngaged{}, "", rules},
	{KindEvidenceRefused, NoDecided, EvidenceRefused{}, "", noEffect},
	{KindAuditRead, Allow, Access{}, KindAccessDenied, noEffect},
	{KindStopRequested, Allow, Access{}, KindAccessDenied, noEffect},
	{KindAccessAllowed, Allow, Access{}, KindAccessDenied, noEffect},
	{KindAccessDenied, Deny, Access{}, "", noEffect},
}

// Kinds lists them all.
func Kinds() []Kind {
	list := make([]Kind, len(kinds))
	for i := range kinds {
		list[i] = kinds[i].kind
	}
	return list
}

// row returns the row of k in the table, and false for an unknown kind.
func (k Kind) row() (kindRow, bool) {
	for i := range kinds {
		if kinds[i].kind == k {
			return kinds[i], true
		}
	}
	return kindRow{decision: NoDecided}, false
}

// Decided returns what entries of kind k decide; NoDecided for an unknown kind.
func (k Kind) Decided() Decided {
	r, _ := k.row()
	return r.decision
}

// Detail returns an empty detail of the type that belongs to k; nil for an
// unknown kind.
func (k Kind) Detail() Detail {
	r, _ := k.row()
	return r.detail
}

// Actor says whose act an entry records.
type Actor int

const (
	ActorService Actor = iota // the service or a worker: the entry has no principal
	ActorCaller               // a caller, whose principal it has, unless that is unknown
	ActorEither               // the service by itself, or a caller
)

// Actor returns whose act entries of kind k record. A decision is about a caller,
// also where the service requests it for the tasks of the caller's run. Logs of
// earlier versions name the owner of a dispatch or run also where the service acted.
func (k Kind) Actor() Actor {
	switch k { //nolint:exhaustive // the facts that a caller brings about; all others are the service's
	case KindRequestInvalid, KindHTTPRequested, KindOperatorRecorded, KindStopEngaged, KindSessionOpened:
		return ActorCaller
	case KindRetentionRemoved, KindSessionEnded:
		return ActorEither
	}
	if k.Decided() != NoDecided {
		return ActorCaller
	}
	return ActorService
}

// Rules reports whether an entry of kind k changes what is allowed: another
// catalog revision, a decision of an operator, a stop. These entries form a
// chain of their own, and every entry that Admits names its end.
func (k Kind) Rules() bool {
	r, _ := k.row()
	return r.effect == rules
}

// SignedRef names the document, signed by people or with the service's key before, that
// puts in force what the entry says. It is empty for all other entries.
func (e *Entry) SignedRef() string {
	ref := map[Kind]string{KindKeyRotated: RefRotation, KindCatalogRevision: RefRevision, KindOperatorRecorded: RefRecord}[e.Kind]
	if e.Refs[ref] == "" { // a key for statements follows no other
		return ""
	}
	return ref
}

// Admits reports whether something is started because of an entry of kind k.
func (k Kind) Admits() bool {
	r, _ := k.row()
	return r.effect == admits
}

// UnderRules reports whether an entry of kind k is the effect of rules, so that
// evidence with it has all rules before it: those that admitted something, and the
// stop that may have cancelled a dispatch.
func (k Kind) UnderRules() bool { return k.Admits() || k == KindDispatchCancelled }

// UnderRules reports whether an entry is the effect of rules: as its kind says, or as the
// end of a task that people decided, or did not decide in time: their votes come before
// it.
func (e *Entry) UnderRules() bool {
	return e.Kind.UnderRules() || e.Kind == KindTaskDenied || e.Dispatch == "" && (e.Kind == KindTaskDone || e.Kind == KindApprovalExpired)
}

// RevisionGrace is how long after a newer catalog revision entered the log a
// decision by the revision before it may still become durable.
const RevisionGrace = time.Minute
