package record

import "testing"

// Whose act each kind of entry records, written out by hand: a new kind has to be
// added here, and the log refuses an entry that names a principal for an act of the
// service (internal/state/audit: TestTheLogNamesOnlyWhoDidIt).
//
// proves R-A3
func TestEachKindHasAnActor(t *testing.T) {
	want := map[Actor][]Kind{
		ActorService: {
			KindServiceStarted, KindServiceStopped, KindKeyRotated, KindCatalogRevision, KindCatalogKeys, KindCatalogRefused,
			KindAuthRefused,                                                                                              // the caller is unknown
			KindDispatchStarted, KindDispatchFinished, KindDispatchNeedsInput, KindDispatchFailed, KindDispatchCancelled, // detail.by: who cancelled it
			KindDispatchRecovered, KindDispatchAttested, KindEgressRefused, KindDispatchAborted, KindToolReturned, KindToolUnknown, KindToolChanged, KindApprovalRequest, KindApprovalExpired,
			KindRunExpired, KindRunGrown, KindRunSettled, KindTaskStarted, KindTaskWaiting, KindTaskDone, KindTaskFailed, KindTaskSkipped, KindTaskCancelled, KindTaskDenied,
			KindEvidenceRefused, KindScheduleFired, KindScheduleSkipped,
		},
		ActorCaller: {
			KindRequestInvalid, KindHTTPRequested, KindSessionOpened, KindOperatorRecorded, KindStopEngaged,
			KindToolCalled, KindToolDenied, // whose dispatch it is
			KindDispatchAccepted, KindTaskReused, KindDispatchDenied, // for a task: whose run it is, by whose rights it is decided
			KindCancelRequested, KindCancelDenied, KindDispatchAnswered, KindAnswerDenied, KindDispatchPinned, KindDispatchUnpinned,
			KindRunSubmitted, KindRunDenied, KindRunCancelled, KindRunPaused, KindRunResumed, KindQueuePaused, KindQueueResumed, KindScheduleRun, KindSchedulePaused, KindScheduleResumed, KindTaskAnswered, KindRunAppended,
			KindAuditRead, KindStopRequested, KindAccessAllowed, KindAccessDenied,
		},
		ActorEither: {KindRetentionRemoved, KindSessionEnded},
	}
	listed := map[Kind]bool{}
	for actor, kinds := range want {
		for _, k := range kinds {
			if listed[k] = true; k.Actor() != actor {
				t.Errorf("%s: actor %d, want %d", k, k.Actor(), actor)
			}
		}
	}
	for _, k := range Kinds() {
		if !listed[k] {
			t.Errorf("%s: say here whose act it records", k)
		}
	}
}
