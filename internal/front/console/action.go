package console

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
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

// Arguments shows the arguments of a call completely, as visibletext.JSON does.
func Arguments(raw json.RawMessage) string { return visibletext.JSON(raw) }

// Reveal shows text that others wrote to the person who decides about it.
func Reveal(s string) string { return visibletext.Reveal(s) }

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
