package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

const maxProblems = 100

// Problem is one problem in a file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Problems lists all problems by line. Its API code is CodeInvalid.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, 0, len(ps))
	for _, p := range ps {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems as an API error.
func (ps Problems) Unwrap() error { return api.Errorf(api.CodeInvalid, "%s", ps.Error()) }

// Problems returns them in the form of the API: the path is FILE:LINE:COLUMN.
func (ps Problems) Problems() []api.Problem {
	all := make([]api.Problem, 0, len(ps))
	for _, p := range ps {
		path := p.File
		if p.Line > 0 {
			path = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
		}
		all = append(all, api.Problem{Path: path, Message: p.Message})
	}
	return all
}

// List collects the problems of one file.
type List struct {
	File string // as shown to people
	all  Problems
}

// Len returns the number of problems.
func (l *List) Len() int { return len(l.all) }

// Add adds a problem; line 0 means the whole file.
func (l *List) Add(line, column int, format string, args ...any) {
	if len(l.all) == maxProblems {
		l.all = append(l.all, Problem{File: l.File, Message: "more problems are not shown"})
	}
	if len(l.all) < maxProblems {
		l.all = append(l.all, Problem{l.File, line, column, fmt.Sprintf(format, args...)})
	}
}

// Err returns the sorted problems, or nil.
func (l *List) Err() error {
	if len(l.all) == 0 {
		return nil
	}
	slices.SortStableFunc(l.all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(min(1, b.Line), min(1, a.Line)), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return l.all
}

// Nearest returns the candidate that was probably meant, or "".
func Nearest(got string, candidates []string) string {
	best, bestDistance := "", 3
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(strings.ToLower(got), strings.ToLower(c)); d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// Suggestion is `; did you mean "NAME"?` with the nearest candidate, or "". It is for the
// end of a message that names got as unknown. Candidates are only names that the reader
// of the message may see.
func Suggestion(got string, candidates []string) string {
	if near := Nearest(got, candidates); near != "" {
		return fmt.Sprintf("; did you mean %q?", Clip(near))
	}
	return ""
}

// distance returns the edit distance; swapping two neighbours is one edit.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
