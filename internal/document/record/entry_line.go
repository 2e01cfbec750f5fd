package record

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// Line returns the entry in plain words, on one line without characters that hide or
// command something, whatever it holds: its UTC time in RFC 3339, what happened, its number. Only plain
// words appear bare; everything else is quoted, so that a text cannot pass for
// part of the sentence.
func (e *Entry) Line(seq uint64) string {
	return fmt.Sprintf("%s %s [#%d]", e.At.UTC().Format(time.RFC3339), e.Detail.describe(e), seq)
}

const maxQuoted = 300 // bytes of a text that a line shows

// Word writes s bare if it is plainly a word, else quoted.
func Word[T ~string](s T) string {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("._:/@$+=-", c) >= 0:
		default:
			return Quote(s)
		}
	}
	if s == "" || len(s) > 128 {
		return Quote(s)
	}
	return string(s)
}

// Quote writes s between quotation marks in its script, and cuts it where it is long.
// What would hide or command something is escaped, as package visible says.
func Quote[T ~string](s T) string {
	text := string(s)
	if len(text) > maxQuoted {
		text = cuttext.Within(text, maxQuoted)
	}
	quoted := visibletext.Quote(text)
	for len(quoted) > maxQuoted+len(`""`) { // escapes are longer than what they stand for
		text = cuttext.Within(text, len(text)*maxQuoted/len(quoted))
		quoted = visibletext.Quote(text)
	}
	if len(text) < len(s) {
		return quoted[:len(quoted)-1] + `..."`
	}
	return quoted
}

func words(list []string) string { return joined(list, Word, ", ") }

func joined(list []string, write func(string) string, separator string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = write(s)
	}
	return strings.Join(out, separator)
}

// withWord writes s as a word after prefix; nothing if s is empty.
func withWord[T ~string](prefix string, s T) string {
	if s == "" {
		return ""
	}
	return prefix + Word(s)
}

// withWords writes list after prefix; nothing if it is empty.
func withWords(prefix string, list []string) string {
	if len(list) == 0 {
		return ""
	}
	return prefix + words(list)
}

// withText writes s quoted after prefix; nothing if s is empty.
func withText(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + Quote(s)
}

// after writes a duration in seconds.
func after(millis int64) string {
	return fmt.Sprintf(" after %d.%03d s", millis/1000, max(millis, -millis)%1000)
}

// caller names the principal.
func (e *Entry) caller() string {
	if e.Principal == "" {
		return "unknown caller"
	}
	return Word(e.Principal)
}

// verdict says what was decided, by which policies, and why.
func (e *Entry) verdict(reasons []string) string {
	s := ": allowed"
	if e.Decision == Deny {
		s = ": denied"
	}
	switch len(e.Policies) {
	case 0:
	case 1:
		s += " by policy "
	default:
		s += " by policies "
	}
	s += joined(e.Policies, Quote, "; ")
	if len(reasons) > 0 {
		s += " (" + joined(reasons, Quote, "; ") + ")"
	}
	return s
}

// dispatch names the dispatch with its attempt, task and run.
func (e *Entry) dispatch() string {
	return "dispatch " + Word(e.Dispatch) + e.attempt() + e.ofTask()
}

// ofTask names the task and the run that a dispatch belongs to, if any.
func (e *Entry) ofTask() string {
	return withWord(" of task ", e.Task) + withWord(" of run ", e.Run)
}

// task names the task with its run and attempt.
func (e *Entry) task() string {
	return "task " + Word(e.Task) + " of run " + Word(e.Run) + e.attempt()
}

// attempt names the attempt after the first.
func (e *Entry) attempt() string {
	if e.Attempt > 1 {
		return fmt.Sprintf(" (attempt %d)", e.Attempt)
	}
	return ""
}
