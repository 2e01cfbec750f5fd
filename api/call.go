package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Call names one call of the service: its method and path pattern, in the
// syntax of net/http.ServeMux. The server registers its handlers by these names
// and the client builds its requests from them; CallTable says the rest.
type Call string

// The runtime calls, which an AI may make.
const (
	CallDispatchSubmit    Call = "POST /v1/runtime/dispatches"
	CallDispatchList      Call = "GET /v1/runtime/dispatches"
	CallDispatchDescribe  Call = "GET /v1/runtime/dispatches/{id}"
	CallDispatchCancel    Call = "POST /v1/runtime/dispatches/{id}/cancel"
	CallDispatchAnswer    Call = "POST /v1/runtime/dispatches/{id}/answer"
	CallDispatchPin       Call = "POST /v1/runtime/dispatches/{id}/pin"
	CallDispatchUnpin     Call = "POST /v1/runtime/dispatches/{id}/unpin"
	CallDispatchLog       Call = "GET /v1/runtime/dispatches/{id}/log"
	CallDispatchPatch     Call = "GET /v1/runtime/dispatches/{id}/patch"
	CallDispatchOutput    Call = "GET /v1/runtime/dispatches/{id}/output"
	CallDispatchStatement Call = "GET /v1/runtime/dispatches/{id}/statement"

	CallDispatchTranscript Call = "GET /v1/runtime/dispatches/{id}/transcript"
	CallDispatchNetwork    Call = "GET /v1/runtime/dispatches/{id}/network"
	CallDispatchTools      Call = "GET /v1/runtime/dispatches/{id}/tools"

	CallRunSubmit   Call = "POST /v1/runtime/runs"
	CallRunList     Call = "GET /v1/runtime/runs"
	CallRunDescribe Call = "GET /v1/runtime/runs/{id}"
	CallRunEvents   Call = "GET /v1/runtime/runs/{id}/events"
	CallRunPlan     Call = "GET /v1/runtime/runs/{id}/plan"
	CallRunAppend   Call = "POST /v1/runtime/runs/{id}/append" // only by a grant with append
	CallWaiting     Call = "GET /v1/runtime/waiting"
	CallBudgetList  Call = "GET /v1/runtime/budgets"

	// People make these; an AI that does is refused by policy.
	CallApprovalList Call = "GET /v1/runtime/approvals"
	CallApproval     Call = "GET /v1/runtime/approvals/{id}"
	CallApprovalVote Call = "POST /v1/runtime/approvals/{id}/votes"

	CallCapabilities Call = "GET /v1/runtime/catalog/capabilities"
	CallSubagents    Call = "GET /v1/runtime/catalog/subagents"
	CallEnvs         Call = "GET /v1/runtime/catalog/envs"
	CallArtifacts    Call = "GET /v1/runtime/catalog/artifacts/{kind}"
	CallRoleTools    Call = "GET /v1/runtime/catalog/roles/{role}/tools"
	CallCan          Call = "POST /v1/runtime/can"
	CallCanCall      Call = "POST /v1/runtime/can/call"
	CallWho          Call = "GET /v1/runtime/who"
	CallRefused      Call = "POST /v1/runtime/refused"
	CallHTTPReady    Call = "POST /v1/runtime/http-ready"
)

// CallSession exchanges a token for a handle.
const CallSession Call = "POST /v1/session"

// The calls that people log in by. They open a session, or say how one is opened.
const (
	CallLoginMethods  Call = "GET /v1/login"
	CallLoginOIDC     Call = "POST /v1/login/oidc"
	CallPasskeyBegin  Call = "POST /v1/login/passkey/begin"  //nolint:gosec // G101: a path
	CallPasskeyFinish Call = "POST /v1/login/passkey/finish" //nolint:gosec // G101: a path
	// CallEnrol tells what an invitation is for, or enrols a passkey with it. The code of the
	// invitation authorizes it, not the account of the page that makes it.
	CallEnrol Call = "POST /v1/login/enrol"
)

// The calls about people's sessions: a person's own, for an operator all.
const (
	CallSessionList Call = "GET /v1/sessions"
	CallSessionEnd  Call = "DELETE /v1/sessions/{id}"
)

// The operator calls, which are for people and never for a caller by token.
const (
	CallRunCancel   Call = "POST /v1/operator/runs/{id}/cancel"
	CallRunPause    Call = "POST /v1/operator/runs/{id}/pause"
	CallRunResume   Call = "POST /v1/operator/runs/{id}/resume"
	CallRunRetry    Call = "POST /v1/operator/runs/{id}/retry"
	CallRunAnswer   Call = "POST /v1/operator/runs/{id}/answer"
	CallRunAppendTo Call = "POST /v1/operator/runs/{id}/append" // by the owner of the run
	CallRunSeen     Call = "POST /v1/operator/runs/{id}/seen"
	CallQueueList   Call = "GET /v1/operator/queues"
	CallQueuePause  Call = "POST /v1/operator/queues/{name}/pause"
	CallQueueResume Call = "POST /v1/operator/queues/{name}/resume"

	CallScheduleList   Call = "GET /v1/operator/schedules"
	CallSchedule       Call = "GET /v1/operator/schedules/{name}"
	CallScheduleSlots  Call = "GET /v1/operator/schedules/{name}/slots"
	CallScheduleRun    Call = "POST /v1/operator/schedules/{name}/run"
	CallSchedulePause  Call = "POST /v1/operator/schedules/{name}/pause"
	CallScheduleResume Call = "POST /v1/operator/schedules/{name}/resume"

	CallStatus       Call = "GET /v1/operator/status"
	CallStop         Call = "POST /v1/operator/stop"
	CallStay         Call = "POST /v1/operator/stay"
	CallGCPlan       Call = "GET /v1/operator/gc"
	CallGC           Call = "POST /v1/operator/gc"
	CallTrust        Call = "GET /v1/operator/trust"
	CallRecordHead   Call = "GET /v1/operator/records/head"
	CallRecord       Call = "GET /v1/operator/records/{number}"
	CallRecordAdd    Call = "POST /v1/operator/records"
	CallOperatorKeys Call = "GET /v1/operator/keys"
	CallPendingAdd   Call = "POST /v1/operator/pending"
	CallPendingList  Call = "GET /v1/operator/pending"
	CallPending      Call = "GET /v1/operator/pending/{id}"
	CallPendingSign  Call = "POST /v1/operator/pending/{id}/sign"

	CallInvitationAdd  Call = "POST /v1/operator/invitations"
	CallInvitationList Call = "GET /v1/operator/invitations"

	CallPrincipalList Call = "GET /v1/operator/principals"
	CallPrincipal     Call = "GET /v1/operator/principals/{principal}"
	CallTokenList     Call = "GET /v1/operator/tokens"
	CallGrantList     Call = "GET /v1/operator/grants"
	CallRevisionList  Call = "GET /v1/operator/revisions"
	CallRevision      Call = "GET /v1/operator/revisions/{number}"
	CallSecretList    Call = "GET /v1/operator/secrets"
	CallSecretCheck   Call = "POST /v1/operator/secrets/check" //nolint:gosec // G101: a path
	CallStopList      Call = "GET /v1/operator/stops"
	CallStopEngage    Call = "POST /v1/operator/stops"

	CallLog           Call = "GET /v1/operator/log"
	CallLogCheckpoint Call = "GET /v1/operator/log/checkpoint"
	CallLogTile       Call = "GET /v1/operator/log/tiles/{path...}"
	CallLogProof      Call = "GET /v1/operator/log/proof"
	CallLogCheck      Call = "POST /v1/operator/log/check"
	CallEvidence      Call = "GET /v1/operator/evidence"
)

// CallClass is the authorization that a call needs.
type CallClass string

// The classes, which follow from the first segments of the path.
const (
	ClassSession  CallClass = "session"  // anybody: what it is given opens a session, or does not
	ClassLogin    CallClass = "login"    // likewise
	ClassSessions CallClass = "sessions" // any established caller, about its own sessions; an operator, about all
	ClassRuntime  CallClass = "runtime"  // any established caller; policy decides about what the call names
	ClassOperator CallClass = "operator" // the service's operator; of runs, their owner too
)

// CallSpec is what the server and the client need to know about a call beyond
// its name.
type CallSpec struct {
	// Action is the policy action that an operator call needs.
	Action string
	// Operation is the name of the call in the log where it differs from Action.
	Operation string
	// Steers marks the calls that steer a run. Its owner may make them too, so the
	// orchestrator decides; a caller by token is refused before.
	Steers bool
	// Logged calls get a log entry before they run even though they are allowed.
	// The others log their effect themselves, or have none.
	Logged bool
	// Accepted calls succeed with status 202: the effect follows later.
	Accepted bool
	// Repeatable calls have the same effect twice as once, so the client sends
	// them again when it cannot tell whether the first request arrived.
	Repeatable bool
	// MaxBody bounds the request's body in bytes.
	MaxBody int64
}

// maxBody is the bound of most requests; that of a run leaves room around a plan.
const (
	maxBody = 1 << 20
	// maxLoginBody bounds what is read of a caller without a session.
	maxLoginBody = 64 << 10
	maxRunBody   = MaxPlan + 64<<10
)

// CallTable returns every call of the service.
func CallTable() map[Call]CallSpec {
	table := map[Call]CallSpec{
		CallDispatchSubmit: {Accepted: true},
		CallDispatchCancel: {Repeatable: true},
		CallDispatchAnswer: {Accepted: true},
		CallDispatchPin:    {Repeatable: true},
		CallDispatchUnpin:  {Repeatable: true},
		CallRunSubmit:      {Accepted: true, MaxBody: maxRunBody},
		CallRunAppend:      {Accepted: true, MaxBody: maxRunBody},
		CallCan:            {Repeatable: true},
		CallCanCall:        {Repeatable: true},
		CallRefused:        {},
		CallApprovalVote:   {},
		CallHTTPReady:      {Repeatable: true},
		CallSession:        {Repeatable: true, MaxBody: maxLoginBody},
		CallEnrol:          {MaxBody: 2 * maxLoginBody},
		CallLoginOIDC:      {MaxBody: maxLoginBody},
		CallPasskeyBegin:   {Repeatable: true, MaxBody: maxLoginBody},
		CallPasskeyFinish:  {MaxBody: maxLoginBody},
		CallSessionEnd:     {Repeatable: true},

		CallRunCancel:   {Action: "run.cancel", Operation: "run.cancel", Steers: true, Repeatable: true},
		CallRunPause:    {Action: "run.pause", Operation: "run.pause", Steers: true, Repeatable: true},
		CallRunResume:   {Action: "run.pause", Operation: "run.resume", Steers: true, Repeatable: true},
		CallRunRetry:    {Action: "run.cancel", Operation: "run.retry", Steers: true, Accepted: true},
		CallRunAnswer:   {Action: "run.answer", Operation: "run.answer", Steers: true, Accepted: true},
		CallRunAppendTo: {Action: "run.cancel", Operation: "run.append", Steers: true, Accepted: true, MaxBody: maxRunBody},
		CallRunSeen:     {Action: "run.answer", Operation: "run.seen", Steers: true, Repeatable: true},
		CallQueuePause:  {Action: "queue.pause", Repeatable: true},
		CallQueueResume: {Action: "queue.pause", Repeatable: true},

		CallScheduleRun:    {Action: "schedule.run", Accepted: true},
		CallSchedulePause:  {Action: "schedule.pause", Repeatable: true},
		CallScheduleResume: {Action: "schedule.pause", Operation: "schedule.resume", Repeatable: true},

		CallStop:        {Action: "service.stop", Logged: true, Accepted: true},
		CallStay:        {Action: "service.stay", Logged: true, Repeatable: true},
		CallGCPlan:      {Action: "service.gc"},
		CallGC:          {Action: "service.gc", Logged: true, Repeatable: true},
		CallTrust:       {Action: "audit.read"},
		CallRecordAdd:   {Action: "operator.record"},
		CallPendingAdd:  {Action: "operator.record", Operation: "operator.submit"},
		CallPendingSign: {Action: "operator.record"},

		CallInvitationAdd: {Action: "operator.record", Operation: "operator.invite", Logged: true},

		CallSecretCheck: {Action: "operator.read", Repeatable: true},
		CallStopEngage:  {Action: "stop.engage"},
		CallLogCheck:    {Action: "audit.read", Repeatable: true},
	}
	for action, reads := range map[string][]Call{
		"status.read":   {CallQueueList, CallScheduleList, CallSchedule, CallScheduleSlots, CallStatus},
		"operator.read": {CallRecordHead, CallRecord, CallOperatorKeys, CallPendingList, CallPending, CallInvitationList, CallPrincipalList, CallPrincipal, CallTokenList, CallGrantList, CallRevisionList, CallRevision, CallSecretList, CallStopList},
		"audit.read":    {CallLog, CallLogCheckpoint, CallLogTile, CallLogProof, CallEvidence},
		"": {
			CallDispatchList, CallDispatchDescribe, CallDispatchLog, CallDispatchPatch, CallDispatchOutput, CallDispatchStatement, CallDispatchTranscript, CallDispatchNetwork, CallDispatchTools,
			CallRunList, CallRunDescribe, CallRunEvents, CallRunPlan, CallWaiting, CallBudgetList, CallApprovalList, CallApproval, CallCapabilities, CallSubagents, CallEnvs, CallArtifacts, CallRoleTools, CallWho, CallLoginMethods, CallSessionList,
		},
	} {
		for _, c := range reads {
			table[c] = CallSpec{Action: action}
		}
	}
	for c, spec := range table {
		spec.Repeatable = spec.Repeatable || c.Method() == http.MethodGet
		if spec.MaxBody == 0 {
			spec.MaxBody = maxBody
		}
		if spec.Operation == "" {
			spec.Operation = spec.Action
		}
		table[c] = spec
	}
	return table
}

// Calls lists every call, sorted.
func Calls() []Call { return slices.Sorted(maps.Keys(CallTable())) }

// Spec returns what the table says about c. An unknown call has the usual bound
// and nothing else.
func (c Call) Spec() CallSpec {
	if spec, ok := CallTable()[c]; ok {
		return spec
	}
	return CallSpec{MaxBody: maxBody}
}

// Method returns the HTTP method of c.
func (c Call) Method() string {
	method, _, _ := strings.Cut(string(c), " ")
	return method
}

// Class returns the authorization that c needs.
func (c Call) Class() CallClass {
	class, _, _ := strings.Cut(strings.TrimPrefix(c.pattern(), "/v1/"), "/")
	return CallClass(class)
}

func (c Call) pattern() string {
	_, pattern, _ := strings.Cut(string(c), " ")
	return pattern
}

// Path returns the path of c with its wildcards replaced, in order, by args,
// escaped. A last wildcard {name...} takes an argument of several segments.
func (c Call) Path(args ...string) string {
	segments := strings.Split(c.pattern(), "/")
	for i, s := range segments {
		if !strings.HasPrefix(s, "{") || len(args) == 0 {
			continue
		}
		parts := []string{args[0]}
		if strings.HasSuffix(s, "...}") {
			parts = strings.Split(args[0], "/")
		}
		for j := range parts {
			parts[j] = url.PathEscape(parts[j])
		}
		segments[i], args = strings.Join(parts, "/"), args[1:]
	}
	return strings.Join(segments, "/")
}
