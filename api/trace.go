package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

// Trace is a span of a distributed trace, as a traceparent of W3C Trace Context,
// version 00. It is empty without a trace and carries no authority.
type Trace string

// TraceVariable is the environment variable that carries a Trace from process
// to process, and TraceHeader the header from request to request.
const (
	TraceVariable = "TRACEPARENT"
	TraceHeader   = "traceparent"
)

const traceLength = 55 // 00-TRACEID-PARENTID-FLAGS

// ParseTrace parses a traceparent. As the specification says, it reads a later
// version as version 00 and keeps only the sampled flag. Callers ignore an invalid
// traceparent.
func ParseTrace(s string) (Trace, error) {
	bad := errors.New("not a traceparent of W3C Trace Context")
	if len(s) < traceLength || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return "", bad
	}
	version, id, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	if !lowerHex(version) || !lowerHex(id) || !lowerHex(parent) || !lowerHex(flags) {
		return "", bad
	}
	longer := len(s) > traceLength
	if version == "ff" || version == "00" && longer || longer && s[traceLength] != '-' {
		return "", bad
	}
	if strings.Trim(id, "0") == "" || strings.Trim(parent, "0") == "" {
		return "", bad
	}
	bits, err := strconv.ParseUint(flags, 16, 8)
	if err != nil {
		return "", bad
	}
	return traceOf(id, parent, bits&1 == 1), nil
}

func lowerHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func traceOf(id, span string, sampled bool) Trace {
	flags := "00"
	if sampled {
		flags = "01"
	}
	return Trace("00-" + id + "-" + span + "-" + flags)
}

// NewTrace starts a trace. Sampled: its spans are recorded.
func NewTrace(sampled bool) Trace {
	var b [24]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	b[0] |= 1              // neither id may be all zeros
	b[16] |= 1
	return traceOf(hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:]), sampled)
}

// Check refuses what ParseTrace would not return. An empty trace is valid.
func (t Trace) Check() error {
	if t == "" {
		return nil
	}
	if same, err := ParseTrace(string(t)); err != nil || same != t {
		return errors.New("trace: not a traceparent of version 00")
	}
	return nil
}

// ID returns the trace id, 32 hexadecimal digits, or "".
func (t Trace) ID() string { return t.part(3, 35) }

// Span returns the span id, 16 hexadecimal digits, or "".
func (t Trace) Span() string { return t.part(36, 52) }

// Sampled reports whether the spans of this trace are recorded.
func (t Trace) Sampled() bool { return t.part(53, 55) == "01" }

func (t Trace) part(from, to int) string {
	if len(t) != traceLength {
		return ""
	}
	return string(t[from:to])
}

// Child returns a new span below t.
func (t Trace) Child() Trace {
	if t.ID() == "" {
		return ""
	}
	return traceOf(t.ID(), NewTrace(false).Span(), t.Sampled())
}

// Dispatch returns the span of a dispatch requested in span t. Its id, like those of
// Attempt and Step, is derived, not random, so that a restarted service continues
// with the same spans without storing them.
func (t Trace) Dispatch(id DispatchID) Trace { return t.derived("dispatch " + string(id)) }

// Attempt returns the span of an attempt of that dispatch.
func (t Trace) Attempt(id DispatchID, attempt int) Trace {
	return t.derived("attempt " + string(id) + " " + strconv.Itoa(attempt))
}

// Step returns the span of the nth step of that attempt.
func (t Trace) Step(id DispatchID, attempt, n int) Trace {
	return t.derived("step " + string(id) + " " + strconv.Itoa(attempt) + " " + strconv.Itoa(n))
}

// Call returns the span of the nth tool call of the attempt whose span is t.
func (t Trace) Call(n int64) Trace { return t.derived("call " + strconv.FormatInt(n, 10)) }

func (t Trace) derived(what string) Trace {
	if t.ID() == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(t.ID() + t.Span() + what))
	sum[0] |= 1 // an id may not be all zeros
	return traceOf(t.ID(), hex.EncodeToString(sum[:8]), t.Sampled())
}
