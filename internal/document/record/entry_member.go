package record

import "fmt"

// member is one of the members of an entry that say what it is about. Entries of some
// kinds have no such member, so none is required by the encoding. DispatchChain requires
// the attempt.
type member uint8

const (
	memberRun member = 1 << iota
	memberTask
	memberDispatch
	memberTool
)

// members returns the members that every entry of kind k has. Denials have none: they
// record a request as it came, which may name nothing.
func (k Kind) members() member {
	switch k {
	case KindDispatchAccepted, KindDispatchStarted, KindDispatchFinished, KindDispatchNeedsInput, KindDispatchFailed, KindDispatchCancelled,
		KindDispatchAnswered, KindEgressRefused, KindToolDenied:
		return memberDispatch
	case KindToolCalled, KindToolReturned, KindToolUnknown:
		return memberDispatch | memberTool
	case KindDispatchRecovered, KindDispatchAttested, KindCancelRequested, KindDispatchAborted, KindDispatchPinned, KindDispatchUnpinned:
		return memberDispatch
	case KindTaskReused:
		return memberDispatch | memberRun | memberTask
	case KindTaskStarted:
		return memberRun | memberTask | memberDispatch
	case KindTaskAnswered, KindTaskWaiting, KindTaskDone, KindTaskFailed, KindTaskSkipped, KindTaskCancelled, KindTaskDenied, KindRunGrown:
		return memberRun | memberTask
	case KindRunSubmitted, KindRunCancelled, KindRunPaused, KindRunResumed, KindRunExpired, KindRunAppended, KindRunSettled, KindScheduleFired:
		return memberRun
	case KindServiceStarted, KindServiceStopped, KindKeyRotated, KindCatalogRevision, KindCatalogKeys, KindCatalogRefused, KindAuthRefused, KindRequestInvalid, KindHTTPRequested, KindSessionOpened, KindSessionEnded,
		KindDispatchDenied, KindCancelDenied, KindAnswerDenied, KindRunDenied, KindAccessAllowed, KindAccessDenied, KindAuditRead, KindStopRequested,
		KindToolChanged, KindRetentionRemoved, KindQueuePaused, KindQueueResumed, KindScheduleSkipped, KindScheduleRun, KindSchedulePaused, KindScheduleResumed,
		KindOperatorRecorded, KindStopEngaged, KindEvidenceRefused:
	case KindApprovalRequest, KindApprovalExpired: // about a call, or about a task
	}
	return 0
}

// complete refuses an entry without a member that its kind requires: what it is about
// would be unknown.
func (e *Entry) complete() error {
	want := e.Kind.members()
	if _, ok := e.Detail.(ApprovalRequest); ok {
		if want = memberRun | memberTask; e.Dispatch != "" {
			want = memberDispatch | memberTool
		}
	}
	for _, m := range []struct {
		member
		name    string
		present bool
	}{
		{memberRun, "run", e.Run != ""},
		{memberTask, "task", e.Task != ""},
		{memberDispatch, "dispatch", e.Dispatch != ""},
		{memberTool, "tool", e.Tool != ""},
	} {
		if want&m.member != 0 && !m.present {
			return fmt.Errorf("entry %q: without its member %q", e.Kind, m.name)
		}
	}
	return nil
}
