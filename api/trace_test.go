package api

import (
	"strings"
	"testing"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

func TestATraceparentIsReadAsTheSpecificationSays(t *testing.T) {
	const whole = "00-" + traceID + "-" + spanID + "-01"
	for s, want := range map[string]Trace{
		whole:                                  whole,
		"00-" + traceID + "-" + spanID + "-00": "00-" + traceID + "-" + spanID + "-00",
		"00-" + traceID + "-" + spanID + "-ff": whole, // only the sampled flag is known
		"00-" + traceID + "-" + spanID + "-02": "00-" + traceID + "-" + spanID + "-00",
		"01-" + traceID + "-" + spanID + "-01": whole, // a later version: only the part that this one knows
		"cc-" + traceID + "-" + spanID + "-01-what-the-future-will-be-like": whole,
	} {
		got, err := ParseTrace(s)
		if err != nil || got != want || got.Check() != nil {
			t.Errorf("%s: %s, %v; want %s", s, got, err, want)
		}
	}
	zeros := strings.Repeat("0", 32)
	for _, s := range []string{
		"", "00", whole + "-", whole + "0", whole + "-more", whole[:54], " " + whole, whole + " ", whole + "\n",
		"ff-" + traceID + "-" + spanID + "-01", "cc-" + traceID + "-" + spanID + "-01.more", "0g-" + traceID + "-" + spanID + "-01",
		"00-" + strings.ToUpper(traceID) + "-" + spanID + "-01", "00-" + zeros + "-" + spanID + "-01", "00-" + traceID + "-" + zeros[:16] + "-01",
		"00_" + traceID + "-" + spanID + "-01", "00-" + traceID + "-" + spanID + "-0x", "00-" + traceID + spanID + "--01",
		"00-" + strings.Repeat("é", 16) + "-" + spanID + "-01",
	} {
		if got, err := ParseTrace(s); err == nil {
			t.Errorf("%q was taken for %s", s, got)
		}
	}
}

func TestSpansOfADispatchAreTheSameAfterARestart(t *testing.T) {
	parent := NewTrace(true)
	seen := map[string]bool{parent.Span(): true}
	for _, s := range []Trace{
		parent.Dispatch("a"), parent.Dispatch("b"), parent.Attempt("a", 1), parent.Attempt("a", 2), parent.Attempt("b", 1),
		parent.Step("a", 1, 0), parent.Step("a", 1, 1), parent.Step("a", 2, 0), parent.Child(),
	} {
		if s.Check() != nil || s == "" || s.ID() != parent.ID() || !s.Sampled() || seen[s.Span()] {
			t.Errorf("%s below %s", s, parent)
		}
		seen[s.Span()] = true
	}
	if again := Trace(string(parent)); again.Attempt("a", 2) != parent.Attempt("a", 2) {
		t.Error("the same attempt has two spans")
	}
	var none Trace
	if none.Dispatch("a") != "" || none.Child() != "" || none.ID() != "" || none.Check() != nil {
		t.Error("no trace has spans")
	}
	if Trace("00-x").Check() == nil {
		t.Error("positive control: what is no trace passes")
	}
}

// FuzzParseTrace: an accepted traceparent is in the one form that is passed on.
func FuzzParseTrace(f *testing.F) {
	f.Add("00-" + traceID + "-" + spanID + "-01")
	f.Add("cc-" + traceID + "-" + spanID + "-01-x")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTrace(s)
		if err != nil {
			return
		}
		if len(got) != traceLength || !strings.HasPrefix(string(got), "00-") || got.Check() != nil || strings.Trim(string(got), "0123456789abcdef-") != "" {
			t.Errorf("%q became %q", s, got)
		}
	})
}
