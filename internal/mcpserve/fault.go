package mcpserve

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// reportTime bounds telling the service of a refusal.
const reportTime = 2 * time.Second

// advice says, for each code, what a model may do about it. It goes in front of
// what the service says to people.
func advice() map[api.Code]string {
	return map[api.Code]string{
		api.CodeInvalid:          "mend the arguments and call again",
		api.CodeDenied:           "retrying is useless; use only what " + toolSubagents + " shows you, or ask a human to change the grants or your ceiling",
		api.CodeNotFound:         "retrying is useless; use only ids that " + toolDispatch + " or " + toolSubmit + " returned to you",
		api.CodeConflict:         "retrying the same call is useless; look at the present state with " + toolDescribe + ", of a run with " + toolStatus,
		api.CodeUnauthenticated:  "retrying is useless; ask a human for a token that is in force: bailiwick token create",
		api.CodeTooLarge:         "make the request smaller",
		api.CodeIntegrity:        "retrying is useless; tell a human to run: bailiwick doctor",
		api.CodeAuditUnavailable: "nothing was done; tell a human to run: bailiwick doctor",
		api.CodeUnavailable:      "run bailiwick up",
		api.CodeNotFinished:      "look again later with " + toolDescribe,
		api.CodeThrottled:        "wait before you call again",
		api.CodeNotConfigured:    "retrying is useless; this service runs without that part, use " + toolDispatch,
		api.CodeInternal:         "tell a human; the log of the service says more",
	}
}

// faultOf is an error in its one shape, with advice to a model. What concerns
// only this machine stays out of it.
func faultOf(err error) *api.Error {
	e := &api.Error{Code: api.CodeInternal, Message: "something went wrong inside Bailiwick"}
	if known, ok := errors.AsType[*api.Error](err); ok && known.Code != api.CodeInternal {
		c := *known
		e = &c
	}
	if e.Code == api.CodeUnavailable {
		e.Message, e.Hint = "the service of Bailiwick does not answer", ""
	}
	hint := advice()[e.Code]
	if more := strings.TrimPrefix(e.Hint, useless); more != "" {
		hint += "; " + more
	}
	if also, ok := errors.AsType[*advised](err); ok {
		hint += "; " + also.advice
	}
	e.Hint = hint
	return e
}

// useless is how the service begins what it says of refusals that are final, as
// the advice here does.
const useless = "retrying is useless; "

// advised is a failure of which there is more to say than of others.
type advised struct {
	error
	advice string
}

func (e *advised) Unwrap() error { return e.error }

// faultText is a failure in words.
func faultText(e *api.Error) string {
	if e.Code == api.CodeUnavailable {
		return string(e.Code) + ": " + e.Hint + " (" + e.Message + ")"
	}
	return string(e.Code) + ": " + strings.TrimSpace(e.Error())
}

// logged tells the service of input that was refused here, so that the log has
// it, and returns the refusal with the number of its entry.
func (s *Server) logged(ctx context.Context, c *call, operation string, refusal *api.Error) error {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	e := *refusal
	// It is refused whether or not the log could be told.
	if receipt, err := ask(ctx, c, func(rt client.Runtime) (api.RefusedReceipt, error) {
		return rt.Refused(ctx, api.Refused{Operation: operation, Message: Truncate(refusal.Message, 1000)})
	}); err == nil {
		e.AuditEntry = &receipt.AuditEntry
	}
	return &e
}

// report tells the service of a message that was none.
func (s *Server) report(ctx context.Context, who *caller, operation string, cause error) {
	message := cause.Error()
	if wire, ok := errors.AsType[*jsonrpc.Error](cause); ok {
		if wire.Code == jsonrpc.CodeMethodNotFound {
			return // clients ask for methods to find out whether they are there
		}
		message = wire.Message
	}
	_ = s.logged(ctx, &call{who: who, ceiling: who.below(nil)}, operation, api.Errorf(api.CodeInvalid, "%s", message))
}

// Truncate shortens text to about n bytes.
func Truncate(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
