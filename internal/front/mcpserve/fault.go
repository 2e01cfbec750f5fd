package mcpserve

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

// reportTime bounds reporting a refusal to the service.
const reportTime = 2 * time.Second

// advice says, for each code, what a model can do. It precedes the hint of the
// service, which is for people.
func advice() map[api.Code]string {
	return map[api.Code]string{
		api.CodeInvalid:          "fix the arguments and call again",
		api.CodeDenied:           "do not retry; use only what " + toolSubagents + " lists, or ask a human to change the grants or your ceiling",
		api.CodeNotFound:         "do not retry; use only ids that " + toolDispatch + " or " + toolSubmit + " returned to you",
		api.CodeConflict:         "do not retry the same call; check the current state with " + toolDescribe + ", or of a run with " + toolStatus,
		api.CodeUnauthenticated:  "do not retry; ask a human for a valid token: bailiwick token create",
		api.CodeTooLarge:         "make the request smaller",
		api.CodeIntegrity:        "do not retry; tell a human to run: bailiwick doctor",
		api.CodeAuditUnavailable: "nothing was done; tell a human to run: bailiwick doctor",
		api.CodeUnavailable:      "run " + client.HowToStart(nil),
		api.CodeNotFinished:      "check again later with " + toolDescribe,
		api.CodeThrottled:        "wait before you call again",
		api.CodeNotConfigured:    "do not retry; this service has that part disabled, use " + toolDispatch,
		api.CodeInternal:         "tell a human; the log of the service has details",
	}
}

// toolError returns err as an api.Error with advice for a model. It withholds
// details of this machine.
func toolError(err error) *api.Error {
	e := &api.Error{Code: api.CodeInternal, Message: "internal error"}
	if known, ok := errors.AsType[*api.Error](err); ok && known.Code != api.CodeInternal {
		c := *known
		e = &c
	}
	hint := advice()[e.Code]
	if e.Code == api.CodeUnavailable {
		hint = "run " + client.HowToStart(e)
		e.Message, e.Hint = "the Bailiwick service does not answer", ""
	}
	if more := strings.TrimPrefix(e.Hint, doNotRetry); more != "" {
		hint += "; " + more
	}
	if also, ok := errors.AsType[*adviceError](err); ok {
		hint += "; " + also.advice
	}
	e.Hint = hint
	return e
}

// doNotRetry begins the service's hints on final refusals, as it does the advice.
const doNotRetry = "do not retry; "

// adviceError adds advice to an error.
type adviceError struct {
	error
	advice string
}

func (e *adviceError) Unwrap() error { return e.error }

// errorText returns an error as one text.
func errorText(e *api.Error) string {
	if e.Code == api.CodeUnavailable {
		return string(e.Code) + ": " + e.Hint + " (" + e.Message + ")"
	}
	return string(e.Code) + ": " + strings.TrimSpace(e.Error())
}

// logRefusal has the service log input that was refused here, and returns the
// refusal with the number of its entry.
func (s *Server) logRefusal(ctx context.Context, c *call, operation string, refusal *api.Error) error {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	e := *refusal
	// The refusal stands even if it cannot be logged.
	if receipt, err := withRuntime(ctx, c, func(rt client.Runtime) (api.RefusedReceipt, error) {
		return rt.Refused(ctx, api.Refused{Operation: operation, Message: cuttext.Text(refusal.Message, 1000)})
	}); err == nil {
		e.AuditEntry = &receipt.AuditEntry
	}
	return &e
}

// report has the service log an invalid message.
func (s *Server) report(ctx context.Context, who *caller, operation string, cause error) {
	message := cause.Error()
	if wire, ok := errors.AsType[*jsonrpc.Error](cause); ok {
		if wire.Code == jsonrpc.CodeMethodNotFound {
			return // clients probe for methods
		}
		message = wire.Message
	}
	_ = s.logRefusal(ctx, &call{caller: who, ceiling: who.ceiling(nil)}, operation, api.Errorf(api.CodeInvalid, "%s", message))
}
