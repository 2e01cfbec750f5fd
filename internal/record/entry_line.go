package record

import (
	"fmt"
	"strings"
)

// Line returns the entry in plain words, on one line of printable ASCII
// whatever it holds: its UTC time of day, what happened, its number. Only
// plain words stand there bare; everything else is quoted, so a text cannot
// pass for part of the sentence.
func (e *Entry) Line(seq uint64) string {
	return fmt.Sprintf("%s %s [#%d]", e.clock(), e.Detail.say(e), seq)
}

const maxQuoted = 300 // bytes of a text that a line shows

// word writes s bare where it can be nothing but a word, else quoted.
func word[T ~string](s T) string {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("._:/@$+=-", c) >= 0:
		default:
			return quote(s)
		}
	}
	if s == "" || len(s) > 128 {
		return quote(s)
	}
	return string(s)
}

// quote writes s between quotation marks, escaped.
func quote[T ~string](s T) string {
	b := []byte{'"'}
	for _, r := range string(s) {
		if len(b) > maxQuoted {
			b = append(b, "..."...)
			break
		}
		if r == '"' || r == '\\' {
			b = append(b, '\\')
		}
		b = appendASCII(b, r)
	}
	return string(append(b, '"'))
}

// Word writes s as a line does: bare where it can be nothing but a word, else
// quoted. It is printable ASCII whatever s is.
func Word(s string) string { return word(s) }

// Quote writes s as a line does a text: between quotation marks, escaped, and
// cut where it is long.
func Quote(s string) string { return quote(s) }

func words(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = word(s)
	}
	return strings.Join(out, ", ")
}

func quotes(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return strings.Join(out, "; ")
}

// who names the principal.
func (e *Entry) who() string {
	if e.Principal == "" {
		return "somebody unknown"
	}
	return word(e.Principal)
}

// verdict says what was decided, and why.
func (e *Entry) verdict(reasons []string) string {
	s := "allowed"
	if e.Decision == Deny {
		s = "denied"
	}
	switch len(e.Policies) {
	case 0:
	case 1:
		s += " by policy " + quotes(e.Policies)
	default:
		s += " by policies " + quotes(e.Policies)
	}
	if len(reasons) > 0 {
		s += " (" + quotes(reasons) + ")"
	}
	return s
}

// optional writes format with s in it unless s is empty.
func optional(format, s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf(format, s)
}

func (d ServiceStart) say(*Entry) string {
	s := fmt.Sprintf("the service started (version %s, mode %s, process %d)", word(d.Version), word(d.Mode), d.PID)
	if len(d.Isolation) > 0 {
		s += " with isolation " + words(d.Isolation)
	}
	return s
}

func (d ServiceStop) say(*Entry) string {
	s := "the service stopped: " + quote(d.Reason)
	if d.Running > 0 {
		s += fmt.Sprintf("; %d dispatches go on", d.Running)
	}
	return s
}

func (d RevisionSeen) say(*Entry) string {
	return fmt.Sprintf("the catalog is at revision %d by %s, signed by %s (threshold %d)", d.Number, word(d.Author), words(d.Keys), d.Threshold) +
		optional(": %s", quoteUnlessEmpty(d.Reason))
}

func (d RevisionRefused) say(*Entry) string {
	s := fmt.Sprintf("a catalog revision was refused, %s: %s", word(d.Cause), quote(d.Message))
	if d.Number != 0 {
		s = fmt.Sprintf("catalog revision %d was refused, %s: %s", d.Number, word(d.Cause), quote(d.Message))
	}
	return s + fmt.Sprintf("; revision %d stays", d.Current)
}

func (d AuthRefused) say(*Entry) string {
	return fmt.Sprintf("a caller over %s was refused: %s", word(d.Via), quote(d.Message)) + optional(" (it claimed %s)", quoteUnlessEmpty(d.Claimed))
}

func (d InvalidRequest) say(e *Entry) string {
	return fmt.Sprintf("%s sent a bad request to %s: %s: %s", e.who(), word(d.Operation), word(d.Code), quote(d.Message))
}

func (d DispatchAsk) say(e *Entry) string {
	s := fmt.Sprintf("%s asked for %s", e.who(), word(d.Subagent)) + optional(" on %s", wordUnlessEmpty(d.Target))
	var with []string
	if d.Source != "" {
		with = append(with, "source "+word(d.Source)+optional("@%s", wordUnlessEmpty(short(d.Commit))))
	}
	if len(d.Envs) > 0 {
		with = append(with, "env "+words(d.Envs))
	}
	if len(d.Capabilities) > 0 {
		with = append(with, "capabilities "+words(d.Capabilities))
	}
	if len(with) > 0 {
		s += " (" + strings.Join(with, "; ") + ")"
	}
	return s + optional(" as %s", wordUnlessEmpty(string(e.Dispatch))) + e.ofTask() + ": " + e.verdict(d.Reasons)
}

func (d DispatchStart) say(e *Entry) string {
	s := fmt.Sprintf("%s started in process %d", e.dispatch(), d.PID)
	if len(d.Isolation) > 0 {
		s += " with isolation " + words(d.Isolation)
	}
	return s
}

func (d DispatchEnd) say(e *Entry) string {
	var s string
	switch e.Kind {
	case KindDispatchFinished:
		s = e.dispatch() + " finished"
	case KindDispatchNeedsInput:
		s = e.dispatch() + " needs an answer"
	case KindDispatchCancelled:
		s = e.dispatch() + " was cancelled" + optional(" by %s", wordUnlessEmpty(d.By))
	default:
		s = e.dispatch() + " failed" + optional(", reason %s", wordUnlessEmpty(d.Reason))
	}
	s += fmt.Sprintf(" after %d.%03d s", d.Millis/1000, max(d.Millis, -d.Millis)%1000)
	if _, ok := e.Refs[RefPatch]; ok {
		s += fmt.Sprintf(" with a patch of %d files", d.Files)
	}
	if d.Partial {
		s += ", partial"
	}
	return s + optional(", verify %s", wordUnlessEmpty(d.Verify)) + optional(": %s", quoteUnlessEmpty(d.Message))
}

func (d DispatchFound) say(e *Entry) string {
	return fmt.Sprintf("after a restart %s was found: stored as %s, its worker %s", e.dispatch(), word(d.State), word(d.Worker)) +
		optional(": %s", quoteUnlessEmpty(d.Message))
}

func (d CancelAsk) say(e *Entry) string {
	return fmt.Sprintf("%s asked to cancel %s, which is %s: %s", e.who(), e.dispatch(), word(d.State), e.verdict(d.Reasons)) + optional(", because %s", quoteUnlessEmpty(d.Why))
}

func (d AnswerAsk) say(e *Entry) string {
	s := fmt.Sprintf("%s answered the question of attempt %d of dispatch %s", e.who(), d.Attempt, word(e.Dispatch)) + e.ofTask()
	if d.Option > 0 {
		s += fmt.Sprintf(" with option %d", d.Option)
	}
	return s + ": " + e.verdict(d.Reasons)
}

func (d Access) say(e *Entry) string {
	verb := "asked for"
	switch e.Kind {
	case KindAuditRead:
		verb = "asked to read the log:"
	case KindStopRequested:
		verb = "asked to stop the service:"
	case KindDispatchPinned:
		return fmt.Sprintf("%s pinned %s: %s", e.who(), e.dispatch(), e.verdict(d.Reasons))
	case KindDispatchUnpinned:
		return fmt.Sprintf("%s took the pin of %s away: %s", e.who(), e.dispatch(), e.verdict(d.Reasons))
	default:
	}
	return fmt.Sprintf("%s %s %s: %s", e.who(), verb, word(d.Operation), e.verdict(d.Reasons))
}

func (d Removal) say(e *Entry) string {
	what := fmt.Sprintf("%s of %d dispatches", word(d.Class), d.Items)
	if len(d.Dispatches) == 0 {
		what = fmt.Sprintf("%d %s blobs", d.Items, word(d.Class))
	}
	who := "the service"
	if e.Principal != "" {
		who = e.who()
	}
	return fmt.Sprintf("%s removes %s, %d bytes, by rule %s", who, what, d.Bytes, quote(d.Rule)) + optional(": %s", words(d.Dispatches))
}

func (e *Entry) dispatch() string {
	s := "dispatch " + word(e.Dispatch)
	if e.Attempt > 1 {
		s += fmt.Sprintf(" (attempt %d)", e.Attempt)
	}
	return s + e.ofTask()
}

// ofTask names the task and the run that a dispatch belongs to; empty: none.
func (e *Entry) ofTask() string {
	return optional(" of task %s", wordUnlessEmpty(e.Task)) + optional(" of run %s", wordUnlessEmpty(e.Run))
}

func wordUnlessEmpty(s string) string {
	if s == "" {
		return ""
	}
	return word(s)
}

func quoteUnlessEmpty(s string) string {
	if s == "" {
		return ""
	}
	return quote(s)
}

// short is enough of a commit for a person to recognise it.
func short(commit string) string {
	if len(commit) == 40 || len(commit) == 64 {
		return commit[:12]
	}
	return commit
}
