package plan

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const sample = `
id: rename-symbol
source: {name: service, commit: HEAD}
limits: {wall: 4h, tasks: 200}
tasks:
  - id: merge
    subagent: merger
    depends_on: [edit-beta]
    needs:
      a: {from: edit-alpha, patch: true}
      b: {from: edit-beta, patch: true}
  - id: edit-alpha
    subagent: code-edit
    input: {file: alpha.go}
    locks: [repo/alpha.go]
    retry: {attempts: 3, backoff: 2s..2m, on: [lost, denied]}
    timeout: 20m
    priority: 5
  - id: edit-beta
    subagent: code-edit
    input: {file: beta.go}
    source: {name: other}
    locks: [repo/beta.go, {shared: repo/go.mod}]
`

// parse reads a plan that has no problems.
func parse(t *testing.T, text string) *Plan {
	t.Helper()
	raw, problems := parseYAML([]byte(text))
	if problems != nil {
		t.Fatal(problems)
	}
	p, problems := Parse(raw)
	if problems != nil {
		t.Fatal(problems)
	}
	return p
}

func TestParseNormalises(t *testing.T) {
	p := parse(t, sample)
	if p.Queue != api.DefaultQueue || p.Source != nil {
		t.Errorf("queue %q, source %v", p.Queue, p.Source)
	}
	if s := p.Tasks[0].Source; s == nil || *s != (api.SourceRequest{Name: "service", Commit: "HEAD"}) {
		t.Errorf("the plan's source did not become the task's: %v", s)
	}
	if s := p.Tasks[2].Source; s == nil || *s != (api.SourceRequest{Name: "other"}) {
		t.Errorf("the task's own source: %v", s)
	}
	again, problems := Parse(p.Canonical())
	if problems != nil || string(again.Canonical()) != string(p.Canonical()) || again.Digest() != p.Digest() {
		t.Errorf("%v\n%s\n%s", problems, p.Canonical(), again.Canonical())
	}
}

func TestGraphHasDependenciesAndNeeds(t *testing.T) {
	p := parse(t, sample)
	if d := p.Deps(0); !slices.Equal(d, []int32{1, 2}) {
		t.Errorf("merge comes after %v", d)
	}
	for i := 1; i < 3; i++ {
		if d, after := p.Deps(i), p.Dependents(i); len(d) != 0 || !slices.Equal(after, []int32{0}) {
			t.Errorf("task %d: deps %v, dependents %v", i, d, after)
		}
	}
	if o := p.Order(); !slices.Equal(o, []int32{1, 2, 0}) {
		t.Errorf("order %v", o)
	}
	if i, ok := p.Index("edit-beta"); i != 2 || !ok {
		t.Error(i, ok)
	}
	if _, ok := p.Index("nobody"); ok {
		t.Error("there is a task nobody")
	}
}

// parseYAML returns the JSON of a text, or its problems with line and column.
func parseYAML(text []byte) (json.RawMessage, []api.Problem) {
	t, places := ReadText(text)
	var problems []api.Problem
	for _, p := range places {
		problems = append(problems, api.Problem{Path: "$", Message: p.String()})
	}
	return t.JSON, problems
}
