package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Code classifies a failure. The set is closed.
type Code string

// The codes. Table says what each means to HTTP and to a shell.
const (
	CodeInvalid          Code = "invalid"             // the request is malformed; fix it
	CodeDenied           Code = "denied"              // policy denied it; do not retry
	CodeNotFound         Code = "not_found"           // no such object that the caller may see
	CodeConflict         Code = "conflict"            // the request contradicts what is stored
	CodeUnauthenticated  Code = "unauthenticated"     // the caller could not be established
	CodeTooLarge         Code = "too_large"           // the request exceeds a bound
	CodeIntegrity        Code = "integrity"           // a signature, digest or revision is wrong
	CodeAuditUnavailable Code = "audit_unavailable"   // the decision could not be logged, so nothing was done
	CodeUnavailable      Code = "service_unavailable" // the service is not running or is shutting down
	CodeNotFinished      Code = "not_finished"        // the caller's wait ended first; the work continues
	CodeThrottled        Code = "throttled"           // too many requests; wait
	CodeNotConfigured    Code = "not_configured"      // this service runs without that component
	CodeInternal         Code = "internal"            // a bug or a fault of the service
)

// Status is the external status of a code.
type Status struct {
	HTTP int // HTTP response status
	Exit int // exit status of a command
}

// Table maps every code to its status.
func Table() map[Code]Status {
	return map[Code]Status{
		CodeInvalid:          {http.StatusBadRequest, 1},
		CodeDenied:           {http.StatusForbidden, 3},
		CodeNotFound:         {http.StatusNotFound, 1},
		CodeConflict:         {http.StatusConflict, 1},
		CodeUnauthenticated:  {http.StatusUnauthorized, 4},
		CodeTooLarge:         {http.StatusRequestEntityTooLarge, 1},
		CodeIntegrity:        {http.StatusUnprocessableEntity, 1},
		CodeAuditUnavailable: {http.StatusServiceUnavailable, 1},
		CodeUnavailable:      {http.StatusServiceUnavailable, 1},
		CodeNotFinished:      {http.StatusGatewayTimeout, 8},
		CodeThrottled:        {http.StatusTooManyRequests, 1},
		CodeNotConfigured:    {http.StatusNotImplemented, 1},
		CodeInternal:         {http.StatusInternalServerError, 1},
	}
}

// Error is the one shape in which a failure reaches a caller.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`        // names the object and what is wrong
	Hint    string `json:"hint,omitempty"` // what to do about it
	// AuditEntry is the sequence number of the refusal's log entry, if any.
	AuditEntry *uint64 `json:"auditEntry,omitempty"`
	// Problems lists everything wrong with a document.
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is one error in a document.
type Problem struct {
	Path    string `json:"path"`           // where, as a JSONPath (RFC 9535): $.tasks[3].needs.a
	Task    TaskID `json:"task,omitempty"` // of a plan: the task that Path leads to, as its author named it
	Message string `json:"message"`
}

// MaxProblems bounds Error.Problems; the message says how many there are in all.
const MaxProblems = 100

func (p Problem) String() string {
	if p.Task != "" {
		return fmt.Sprintf("%s (task %s): %s", p.Path, p.Task, p.Message)
	}
	return p.Path + ": " + p.Message
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	if e.Hint != "" {
		b.WriteString("\n  hint: " + e.Hint)
	}
	if e.AuditEntry != nil {
		fmt.Fprintf(&b, "\n  log entry: #%d", *e.AuditEntry)
	}
	return b.String()
}

// Errorf returns an Error without a hint.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Errorf(format, args...).Error()}
}

// WithHint returns e with a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// CodeOf returns the code of the first Error in err's chain, or CodeInternal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// ExitStatus returns the exit status of a command that ends with err.
func ExitStatus(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := Table()[CodeOf(err)]; ok {
		return s.Exit
	}
	return 1
}

// OneOf lists the values that something may have: a, b or c.
func OneOf[T ~string](list []T) string {
	var b strings.Builder
	for i, v := range list {
		switch {
		case i > 0 && i == len(list)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return b.String()
}
