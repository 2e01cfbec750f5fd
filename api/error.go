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
	CodeInvalid          Code = "invalid"             // the request is malformed; mend it
	CodeDenied           Code = "denied"              // policy said no, or there is no such thing for this caller; retrying is useless
	CodeNotFound         Code = "not_found"           // no such object among those that the caller may see
	CodeConflict         Code = "conflict"            // the request contradicts what is stored
	CodeUnauthenticated  Code = "unauthenticated"     // who is calling could not be established
	CodeTooLarge         Code = "too_large"           // the request exceeds a bound
	CodeIntegrity        Code = "integrity"           // a signature, digest or revision is wrong
	CodeAuditUnavailable Code = "audit_unavailable"   // the decision could not be made durable, so nothing was done
	CodeUnavailable      Code = "service_unavailable" // the service is not running or is shutting down
	CodeNotFinished      Code = "not_finished"        // the time that the caller gave is over and the thing goes on
	CodeThrottled        Code = "throttled"           // too many requests; wait
	CodeNotConfigured    Code = "not_configured"      // this service runs without that part
	CodeInternal         Code = "internal"            // a fault of ours
)

// Status is what a code means outside the program.
type Status struct {
	HTTP int // HTTP response status
	Exit int // exit status of a command
}

// Table maps every code, and is the only place that does.
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
	Message string `json:"message"`        // which object, and what went wrong
	Hint    string `json:"hint,omitempty"` // what to do about it
	// AuditEntry is the sequence number of the log entry that recorded the
	// refusal, where there is one.
	AuditEntry *uint64 `json:"auditEntry,omitempty"`
	// Problems are all that is wrong with a document, each where it is.
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is one thing that is wrong with a document.
type Problem struct {
	Path    string `json:"path"` // where, as a JSONPath (RFC 9535): $.tasks[3].needs.a
	Message string `json:"message"`
}

// MaxProblems is how many problems an Error lists at most; its message says
// how many there are.
const MaxProblems = 100

func (p Problem) String() string { return p.Path + ": " + p.Message }

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
