package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// refusal is the answer to a call that is not made. The agent reads what it may do
// instead, and whether a retry is useless.
type refusal struct {
	code    api.Code
	message string
	hint    string
	seq     *uint64 // of its entry; nil: none
	err     error   // that it comes from, where there is no entry
}

func (r *refusal) error() *api.Error {
	return &api.Error{Code: r.code, Message: r.message, Hint: r.hint, AuditEntry: r.seq}
}

// result returns the refusal as a result of tools/call, so that the model sees it.
func (r *refusal) result() (json.RawMessage, error) {
	text := string(r.code) + ": " + r.message
	if r.code == api.CodeNotFinished {
		text = r.message
	}
	if r.hint != "" {
		text += "; " + r.hint
	}
	if r.seq != nil {
		text += fmt.Sprintf(" (audit entry %d)", *r.seq)
	}
	return errorResult(text, r.error())
}

// errorResult returns a result that is an error; e is nil for a call that was made.
// Structured content would have to fit the tool's output schema.
func errorResult(text string, e *api.Error) (json.RawMessage, error) {
	result := map[string]any{"content": []any{textContent(text)}, "isError": true}
	if e != nil {
		result["_meta"] = map[string]any{"io.bailiwick/error": e}
	}
	return canon.Marshal(result)
}

func textContent(text string) map[string]string {
	return map[string]string{"type": "text", "text": text}
}

// failed is the answer where nothing could be decided or stored: nothing was done.
func failed(err error) *refusal {
	r := &refusal{code: api.CodeInternal, message: "the call failed before it was made", hint: "nothing was done; tell a human", err: err}
	known, ok := errors.AsType[*api.Error](err)
	switch {
	case errors.Is(err, ErrAsked):
		r.code, r.message, r.hint = api.CodeConflict, "your question was passed on already", "do not retry; the attempt ends"
	case errors.Is(err, errDecided):
		r.code, r.message, r.hint = api.CodeConflict, "the same message is decided already, and its answer was lost", "it is not known whether the call took effect; find out before you call again"
	case errors.Is(err, ErrEnded), errors.Is(err, errClosed):
		r.code, r.message, r.hint = api.CodeConflict, "the attempt has ended", "nothing was done; do not retry"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		r.code, r.message, r.hint = api.CodeConflict, "the call was cancelled before it was made", "nothing was done"
	case ok && known.Code == api.CodeAuditUnavailable:
		r.code, r.message, r.hint = known.Code, "the call cannot be logged, so it was not made", "nothing was done; tell a human to run: bailiwick doctor"
	}
	return r
}

// storeError is the error of content that could not be stored before the decision.
func storeError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return api.Errorf(api.CodeAuditUnavailable, "storing a call failed, so it is not made: %w", err).WithHint("%s", store.Advice(err))
}

func reasonsText(reasons []string) string {
	if len(reasons) == 0 {
		return "policy does not allow the call"
	}
	return strings.Join(reasons, "; ")
}

// reasonOf is the text of an error of an approval.
func reasonOf(err error) string {
	if known, ok := errors.AsType[*api.Error](err); ok {
		return known.Message
	}
	return err.Error()
}

// hint says what an agent can do about a denial.
func (c *call) hint() string {
	switch {
	case c.advice != "":
		return c.advice
	case c.malformed:
		return "send one JSON-RPC request of MCP"
	case c.invalid:
		return "fix the arguments and call again; tools/list has the schema"
	}
	return "do not retry; do the work without it, or ask a human with the tool " + api.ToolAsk
}
