package record

import "time"

// Kind says what an entry records. The set is closed; adding to it is a
// decision that readers of old logs have to be able to follow.
type Kind string

// The kinds. Those that carry a decision say which.
const (
	KindServiceStarted Kind = "service.started"
	KindServiceStopped Kind = "service.stopped"
	KindKeyRotated     Kind = "service.key_rotated" // another key is in force

	KindCatalogRevision Kind = "catalog.revision" // a revision was seen, verified and taken
	KindCatalogRefused  Kind = "catalog.refused"  // a revision was not: unsigned, foreign, replayed, corrupt

	KindAuthRefused    Kind = "auth.refused"    // who is calling could not be established
	KindRequestInvalid Kind = "request.invalid" // a request was malformed or contradicted what is stored
	KindHTTPAsked      Kind = "http.asked"      // a program asked whether it may serve the tools over HTTP

	KindDispatchAccepted   Kind = "dispatch.accepted" // allow
	KindDispatchDenied     Kind = "dispatch.denied"   // deny
	KindDispatchStarted    Kind = "dispatch.started"  // the worker's key is bound here
	KindDispatchFinished   Kind = "dispatch.finished"
	KindDispatchNeedsInput Kind = "dispatch.needs_input"
	KindDispatchFailed     Kind = "dispatch.failed"
	KindDispatchCancelled  Kind = "dispatch.cancelled"
	KindDispatchFound      Kind = "dispatch.found"    // what a restarted service found of a dispatch
	KindDispatchAttested   Kind = "dispatch.attested" // what it came to was stated and signed

	KindCancelRequested Kind = "dispatch.cancel_requested" // allow
	KindCancelDenied    Kind = "dispatch.cancel_denied"    // deny

	KindDispatchAnswered Kind = "dispatch.answered"      // allow; the next attempt is admitted by it
	KindAnswerDenied     Kind = "dispatch.answer_denied" // deny

	KindDispatchPinned   Kind = "dispatch.pinned"   // allow
	KindDispatchUnpinned Kind = "dispatch.unpinned" // allow
	KindRetentionRemoved Kind = "retention.removed" // content or evidence of dispatches goes; logged before it does

	KindRunSubmitted Kind = "run.submitted"        // allow
	KindRunDenied    Kind = "run.denied"           // deny: a plan that asks for what its caller may not have
	KindRunCancelled Kind = "run.cancel_requested" // allow: the run, or one task of it
	KindRunPaused    Kind = "run.paused"           // allow
	KindRunResumed   Kind = "run.resumed"          // allow
	KindRunSettled   Kind = "run.settled"          // nothing of the run follows
	KindQueuePaused  Kind = "queue.paused"         // allow
	KindQueueResumed Kind = "queue.resumed"        // allow

	KindTaskStarted   Kind = "task.started"  // its dispatch is asked for once this is durable
	KindTaskWaiting   Kind = "task.waiting"  // for an answer, or for the time of the next attempt
	KindTaskAnswered  Kind = "task.answered" // allow; the attempt goes on with it as soon as it can
	KindTaskDone      Kind = "task.done"
	KindTaskFailed    Kind = "task.failed"
	KindTaskSkipped   Kind = "task.skipped"
	KindTaskCancelled Kind = "task.cancelled"
	KindTaskDenied    Kind = "task.denied"

	KindOperatorRecorded Kind = "operator.recorded" // a decision that an operator signed is in force
	KindStopEngaged      Kind = "stop.engaged"      // an emergency stop holds from here on

	KindEvidenceRefused Kind = "evidence.refused" // the service's own evidence did not verify

	KindAuditRead     Kind = "audit.read"             // allow
	KindStopRequested Kind = "service.stop_requested" // allow
	KindAccessAllowed Kind = "access.allowed"         // allow: any other verb
	KindAccessDenied  Kind = "access.denied"          // deny: any of these three
)

// Kinds lists them all.
func Kinds() []Kind {
	return []Kind{
		KindServiceStarted, KindServiceStopped, KindKeyRotated, KindCatalogRevision, KindCatalogRefused, KindAuthRefused, KindRequestInvalid, KindHTTPAsked,
		KindDispatchAccepted, KindDispatchDenied, KindDispatchStarted, KindDispatchFinished, KindDispatchNeedsInput,
		KindDispatchFailed, KindDispatchCancelled, KindDispatchFound, KindDispatchAttested, KindCancelRequested, KindCancelDenied,
		KindDispatchAnswered, KindAnswerDenied,
		KindDispatchPinned, KindDispatchUnpinned, KindRetentionRemoved,
		KindRunSubmitted, KindRunDenied, KindRunCancelled, KindRunPaused, KindRunResumed, KindRunSettled, KindQueuePaused, KindQueueResumed,
		KindTaskStarted, KindTaskWaiting, KindTaskAnswered, KindTaskDone, KindTaskFailed, KindTaskSkipped, KindTaskCancelled, KindTaskDenied,
		KindOperatorRecorded, KindStopEngaged, KindEvidenceRefused,
		KindAuditRead, KindStopRequested, KindAccessAllowed, KindAccessDenied,
	}
}

// shape is what a kind's entries have in common.
type shape struct {
	decided Decided
	detail  Detail // a zero value of the detail's type
	denial  Kind   // for a kind that allows: the one that records a denial of the same
}

func (k Kind) shape() (shape, bool) {
	switch k {
	case KindServiceStarted:
		return shape{NoDecided, ServiceStart{}, ""}, true
	case KindServiceStopped:
		return shape{NoDecided, ServiceStop{}, ""}, true
	case KindKeyRotated:
		return shape{NoDecided, KeyRotation{}, ""}, true
	case KindCatalogRevision:
		return shape{NoDecided, RevisionSeen{}, ""}, true
	case KindCatalogRefused:
		return shape{NoDecided, RevisionRefused{}, ""}, true
	case KindAuthRefused:
		return shape{NoDecided, AuthRefused{}, ""}, true
	case KindRequestInvalid:
		return shape{NoDecided, InvalidRequest{}, ""}, true
	case KindHTTPAsked:
		return shape{NoDecided, HTTPAsked{}, ""}, true
	case KindDispatchAccepted:
		return shape{Allow, DispatchAsk{}, KindDispatchDenied}, true
	case KindDispatchDenied:
		return shape{Deny, DispatchAsk{}, ""}, true
	case KindDispatchStarted:
		return shape{NoDecided, DispatchStart{}, ""}, true
	case KindDispatchFinished, KindDispatchNeedsInput, KindDispatchFailed, KindDispatchCancelled:
		return shape{NoDecided, DispatchEnd{}, ""}, true
	case KindDispatchFound:
		return shape{NoDecided, DispatchFound{}, ""}, true
	case KindDispatchAttested:
		return shape{NoDecided, DispatchAttested{}, ""}, true
	case KindCancelRequested:
		return shape{Allow, CancelAsk{}, KindCancelDenied}, true
	case KindCancelDenied:
		return shape{Deny, CancelAsk{}, ""}, true
	case KindDispatchAnswered:
		return shape{Allow, AnswerAsk{}, KindAnswerDenied}, true
	case KindAnswerDenied:
		return shape{Deny, AnswerAsk{}, ""}, true
	case KindRetentionRemoved:
		return shape{NoDecided, Removal{}, ""}, true
	case KindRunSubmitted:
		return shape{Allow, RunAsk{}, KindRunDenied}, true
	case KindRunDenied:
		return shape{Deny, RunAsk{}, ""}, true
	case KindRunCancelled, KindRunPaused, KindRunResumed, KindQueuePaused, KindQueueResumed, KindTaskAnswered:
		return shape{Allow, RunAct{}, KindAccessDenied}, true
	case KindRunSettled:
		return shape{NoDecided, RunEnd{}, ""}, true
	case KindTaskStarted:
		return shape{NoDecided, TaskStart{}, ""}, true
	case KindTaskWaiting, KindTaskDone, KindTaskFailed, KindTaskSkipped, KindTaskCancelled, KindTaskDenied:
		return shape{NoDecided, TaskStep{}, ""}, true
	case KindOperatorRecorded:
		return shape{NoDecided, OperatorDecision{}, ""}, true
	case KindStopEngaged:
		return shape{NoDecided, StopEngaged{}, ""}, true
	case KindEvidenceRefused:
		return shape{NoDecided, EvidenceRefused{}, ""}, true
	case KindAuditRead, KindStopRequested, KindAccessAllowed, KindDispatchPinned, KindDispatchUnpinned:
		return shape{Allow, Access{}, KindAccessDenied}, true
	case KindAccessDenied:
		return shape{Deny, Access{}, ""}, true
	}
	return shape{}, false
}

// Decided returns what entries of kind k decide; NoDecided for an unknown one.
func (k Kind) Decided() Decided {
	if s, ok := k.shape(); ok {
		return s.decided
	}
	return NoDecided
}

// Rules reports whether an entry of kind k changes what is allowed: another
// catalog, a decision of an operator, a stop. They are a chain of their own, of
// which every entry that Admits names the end.
func (k Kind) Rules() bool {
	return k == KindCatalogRevision || k == KindOperatorRecorded || k == KindStopEngaged
}

// RevisionGrace is how long after a newer catalog revision entered the log a
// decision by the revision before it may still become durable.
const RevisionGrace = time.Minute

// Admits reports whether something is started because of an entry of kind k.
func (k Kind) Admits() bool {
	return k == KindDispatchAccepted || k == KindDispatchAnswered || k == KindRunSubmitted
}
