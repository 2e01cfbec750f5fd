package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Fact is a label and its value.
type Fact struct{ Label, Value string }

// ActionFacts are all members of an action but its ActionText, for the person who
// approves it.
func ActionFacts(of *api.Action) []Fact {
	if s := of.Step; s != nil {
		return taskFacts(s)
	}
	a := of.Call
	text := []Fact{
		{"approval", string(a.ID)},
		{"tool", a.Tool},
		{"tier", a.Tier.String()},
		{"role", string(a.Role)},
		{"subagent", string(a.Subagent)},
		{"dispatch", string(a.Dispatch)},
		{"run", string(a.Run)},
		{"task", string(a.Task)},
		{"for", string(a.Principal)},
		{"target", string(a.Target)},
		{"wanted by", strings.Join(a.Policies, ", ")},
		{"taint", taintText(a.Taint)},
		{"needs", people(a.Needs)},
		{"expires", a.Expires.UTC().Format(time.RFC3339)},
		{"revision", string(a.Revision)},
		{"definition", string(a.Definition)},
	}
	return slices.DeleteFunc(text, func(f Fact) bool { return f.Value == "" })
}

func taskFacts(a *api.TaskAction) []Fact {
	by := make([]string, len(a.By))
	for i, p := range a.By {
		by[i] = string(p)
	}
	list := []Fact{
		{"approval", string(a.ID)},
		{"run", string(a.Run)},
		{"task", string(a.Task)},
		{"for", string(a.Principal)},
		{"by", Reveal(strings.Join(by, ", "))},
		{"needs", people(a.Needs)},
		{"expires", a.Expires.UTC().Format(time.RFC3339)},
		{"plan", string(a.Plan)},
	}
	if a.Write != nil {
		list = append(list, writeFacts(a.Write)...)
	}
	return list
}

// writeFacts are what a task is to run with, but its ActionText.
func writeFacts(w *api.WriteAction) []Fact {
	source := ""
	if w.Source != nil {
		source = fmt.Sprintf("%s at commit %s", w.Source.Name, Reveal(w.Source.Commit))
	}
	list := []Fact{
		{"writes", fmt.Sprintf("subagent %s, tier %s, target %s", w.Subagent, w.Tier, w.Target)},
		{"source", source},
		{"envs", joined(w.Envs)},
		{"capabilities", joined(w.Capabilities)},
		{"taint", taintText(w.Taint)},
		{"starts", "dispatch " + string(w.Dispatch)},
		{"revision", string(w.Revision)},
	}
	return slices.DeleteFunc(list, func(f Fact) bool { return f.Value == "" })
}

func joined(names []api.Name) string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = string(n)
	}
	return strings.Join(list, ", ")
}

// ActionText is what of an action others wrote, with a label: the arguments of a call,
// the input of a task that writes and what it starts from, or the products of the tasks
// that are shown. It is escaped; see Reveal.
func ActionText(a *api.Action) (label, text string) {
	if a.Step == nil {
		return "arguments", Arguments(a.Call.Arguments)
	}
	var b strings.Builder
	label = "shown"
	if w := a.Step.Write; w != nil {
		label = "input"
		b.WriteString(Arguments(w.Input) + "\n")
		for i := range w.Needs {
			n := &w.Needs[i]
			fmt.Fprintf(&b, "inputs/%s is the %s of task %s, %d bytes, %s\n", oneLine(path.Join(string(n.Name), n.Item)), oneLine(strings.TrimSpace(n.Kind+" "+n.Path)), n.Task, n.Size, n.Digest)
		}
	}
	for i := range a.Step.Shown {
		s := &a.Step.Shown[i]
		fmt.Fprintf(&b, "task %s, dispatch %s\n", s.Task, s.Dispatch)
		fmt.Fprintf(&b, "  result document %s\n", s.Result)
		if s.Patch != nil {
			fmt.Fprintf(&b, "  patch %s, %d bytes\n", s.Patch.Digest, s.Patch.Size)
		}
		if s.Value != "" {
			fmt.Fprintf(&b, "  structured result %s\n", s.Value)
		}
		if s.Text != "" {
			fmt.Fprintf(&b, "  final text %s\n", s.Text)
		}
		for _, o := range s.Outputs {
			fmt.Fprintf(&b, "  output %s, %d bytes, %s\n", oneLine(o.Path), o.Size, o.Digest)
		}
	}
	if b.Len() == 0 {
		return label, "no products"
	}
	return label, strings.TrimSuffix(b.String(), "\n")
}

// oneLine is Reveal for a name, which has no line ends.
func oneLine(s string) string { return strings.ReplaceAll(Reveal(s), "\n", `\u000a`) }

func people(n int) string {
	if n == 1 {
		return "1 person"
	}
	return fmt.Sprintf("%d different people, with keys of their own", n)
}

func taintText(t *api.Taint) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("text from outside since call %d of %s in dispatch %s attempt %d", t.Call, t.Tool, t.Dispatch, t.Attempt)
}

// Arguments shows the arguments of a call completely. A character that people may not
// see, or may take for another, is escaped as in JSON; see Reveal.
func Arguments(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return Reveal(string(raw))
	}
	return Reveal(b.String())
}

// Reveal escapes what hides in a text: controls, characters without a width or that
// change the direction of writing, combining marks, and in words with Latin letters of
// ASCII the letters of other scripts. Line ends stay.
func Reveal(s string) string {
	var b strings.Builder
	s = strings.ToValidUTF8(s, "\uFFFD")
	for len(s) > 0 {
		n := strings.IndexFunc(s, func(r rune) bool { return !inWord(r) })
		if n < 0 {
			n = len(s)
		}
		word := s[:n]
		mixed := strings.ContainsFunc(word, func(r rune) bool { return r < 0x80 && unicode.IsLetter(r) })
		for _, r := range word {
			reveal(&b, r, mixed && r >= 0x80 && !unicode.Is(unicode.Latin, r) || fullWidth(r))
		}
		if s = s[n:]; len(s) > 0 {
			for _, r := range s {
				reveal(&b, r, false)
				s = s[len(string(r)):]
				break
			}
		}
	}
	return b.String()
}

// inWord keeps marks and invisible characters within a word, so that none divides it.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || unicode.Is(unicode.M, r) || unicode.Is(unicode.Cf, r)
}

// fullWidth reports a letter or digit that looks like one of ASCII.
func fullWidth(r rune) bool { return r >= 0xff00 && r <= 0xffef || r >= 0x1d400 && r <= 0x1d7ff }

func reveal(b *strings.Builder, r rune, hides bool) {
	if r == '\n' || !hides && unicode.IsPrint(r) && !unicode.Is(unicode.M, r) && r != unicode.ReplacementChar && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
		b.WriteRune(r)
		return
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		fmt.Fprintf(b, `\u%04x`, unit)
	}
}

// Foreign lists the characters of a text beyond ASCII that Reveal shows as they are: a
// whole word of another script may look like one in Latin letters.
func Foreign(s string) string {
	var list []string
	for _, r := range Reveal(s) {
		if c := fmt.Sprintf("%c U+%04X", r, r); r >= 0x80 && !slices.Contains(list, c) {
			if list = append(list, c); len(list) == 50 {
				list = append(list, "and more")
				break
			}
		}
	}
	return strings.Join(list, ", ")
}
