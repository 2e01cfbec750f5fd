package plan

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// list collects problems. A problem of shape is one that the JSON Schema finds as
// well; one of sense, such as a cycle, is not.
type list struct {
	all    []api.Problem
	count  int
	shapes int
}

func (l *list) shape(path, format string, args ...any) {
	l.shapes++
	l.sense(path, format, args...)
}

func (l *list) sense(path, format string, args ...any) {
	if l.count++; l.count <= api.MaxProblems {
		l.all = append(l.all, api.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// full reports whether further problems are only counted.
func (l *list) full() bool { return l.count >= api.MaxProblems }

func (l *list) problems() []api.Problem {
	if l.count > api.MaxProblems {
		l.all[api.MaxProblems-1] = api.Problem{Path: "$", Message: fmt.Sprintf(moreForm, l.count, api.MaxProblems-1)}
	}
	return l.all
}

// NameTasks adds to each problem of a plan the name of the task that it is about, so
// far as that can be read.
func NameTasks(problems []api.Problem, tasks []api.PlanTask) []api.Problem {
	for i := range problems {
		rest, ok := strings.CutPrefix(problems[i].Path, "$.tasks[")
		number, _, closed := strings.Cut(rest, "]")
		n, err := strconv.Atoi(number)
		if !ok || !closed || err != nil || n >= len(tasks) {
			continue
		}
		if _, err := api.ParseTaskID(string(tasks[n].ID)); err == nil {
			problems[i].Task = tasks[n].ID
		}
	}
	return problems
}

// Member is the path of a member of the object at path.
func Member(path, name string) string { return member(path, name) }

// moreForm is the last problem listed if there are more.
const moreForm = "%d problems in all; the first %d are listed"

// Error refuses a plan with these problems. Its message says how many there are.
func Error(problems []api.Problem) *api.Error {
	n := len(problems)
	if n == api.MaxProblems {
		var all, listed int
		if _, err := fmt.Sscanf(problems[n-1].Message, moreForm, &all, &listed); err == nil {
			n = all
		}
	}
	e := api.Errorf(api.CodeInvalid, "the plan has %d problems", n)
	if n == 1 {
		e.Message = "the plan has 1 problem"
	}
	e.Problems = problems
	return e
}

// member is the path of a member of the object at path, in the notation of RFC
// 9535. A very long name is left out: the message quotes it.
func member(path, name string) string {
	if len(name) > 64 {
		return path
	}
	if plainName(name) {
		return path + "." + name
	}
	var b strings.Builder
	b.WriteString(path + "['")
	for _, r := range name {
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(`\` + string(r))
		case !unicode.IsPrint(r):
			for _, u := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + "']"
}

// plainName reports whether a name can follow a dot.
func plainName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

func item(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// clip quotes a text for a message, and shortens it.
func clip(s string) string { return fmt.Sprintf("%q", strictyaml.Clip(s)) }
