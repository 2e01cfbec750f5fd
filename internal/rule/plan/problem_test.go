package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// problemsOf are those of a plan, as text.
func problemsOf(t *testing.T, text string) []string {
	t.Helper()
	raw, problems := parseYAML([]byte(text))
	if problems == nil {
		var p *Plan
		if p, problems = Parse(raw); (p == nil) != (problems != nil) {
			t.Fatalf("%s: a plan %v and problems %v", text, p, problems)
		}
	}
	all := make([]string, 0, len(problems))
	for _, p := range problems {
		all = append(all, p.Path+": "+p.Message)
	}
	return all
}

const bad = `
id: Not_An_Id
queue: 7
limits: {wall: 400000h, tasks: 2, cost: 20usd}
schedule: daily
source: {nam: service}
tasks:
  - id: a
    subagent: s
    depends_on: [a, ghost, b, b]
  - id: b
    subagnet: s
    needs:
      x: {from: a}
      y: {from: a, patch: true, result: true}
      input.json: {from: a, patch: true}
      z.txt: {from: a, output: /etc/passwd}
      up: {from: a, output: ../x}
      dots: {from: a, output: a//b}
      Bad: {from: aa, result: false}
  - id: b
    subagent: s
    for_each: {from: a}
    locks: [k, {shared: k}, k, "", " k", "a\tb", 5]
    retry: {attempts: 21, backoff: 2m..2s, on: [lost, gone]}
    timeout: 1500ms
    priority: 101
  - later
  - id: [c]
    subagent: s
    input: text
    depends_on: a
    timeout: 0s
    locks: {shared: k}
`

// TestParseReportsEveryProblemWithItsPath is one bad plan with every kind of
// problem.
//
// proves R-O2
func TestParseReportsEveryProblemWithItsPath(t *testing.T) {
	want := []string{
		`$.id: run id "Not_An_Id": want 1 to 64 of a-z 0-9 - beginning and ending with a letter or digit`,
		`$.limits.cost: unknown key "cost": not supported by this version of bailiwick`,
		`$.limits.tasks: 2: the plan has 5 tasks`,
		`$.limits.wall: 400000h0m0s: at most 8760h0m0s`,
		`$.queue: want text, got the number 7; put it in quotes`,
		`$.schedule: unknown key "schedule": a schedule is a part of the catalog, under schedules, and names the plan`,
		`$.source.nam: unknown key "nam"; did you mean "name"?`,
		`$.source: missing key "name"`,
		`$.tasks[0].depends_on[0]: task "a" depends on itself`,
		`$.tasks[0].depends_on[1]: no such task "ghost"`,
		`$.tasks[0].depends_on[2]: dependency cycle: a -> b -> a`,
		`$.tasks[0].depends_on[3]: duplicate "b"`,
		`$.tasks[1]: missing key "subagent"`,
		`$.tasks[1].needs.Bad.from: no such task "aa"`,
		`$.tasks[1].needs.Bad.result: want true, got the boolean false; omit it otherwise`,
		`$.tasks[1].needs.Bad: need "Bad": want 1 to 64 of a-z 0-9 . _ - beginning and ending with a letter or digit`,
		`$.tasks[1].needs.dots.output: "a//b" is not a clean path: want "a/b"`,
		`$.tasks[1].needs.up.output: "../x" leads out of outputs/`,
		`$.tasks[1].needs.x: 0 products: want exactly one of patch, output and result`,
		`$.tasks[1].needs.y: 2 products: want exactly one of patch, output and result`,
		`$.tasks[1].needs['input.json']: inputs/input.json is reserved; choose another name`,
		`$.tasks[1].needs['z.txt'].output: "/etc/passwd" is absolute: want a path relative to outputs/`,
		`$.tasks[1].subagnet: unknown key "subagnet"; did you mean "subagent"?`,
		`$.tasks[2].for_each: no list: want one of outputs, items and values`,
		`$.tasks[2].id: duplicate task "b", first at $.tasks[1]`,
		`$.tasks[2].locks[1]: duplicate lock "k", exclusive and shared: keep the exclusive one`,
		`$.tasks[2].locks[2]: duplicate lock "k"`,
		`$.tasks[2].locks[3]: is empty`,
		`$.tasks[2].locks[4]: lock " k" begins or ends with white space`,
		`$.tasks[2].locks[5]: "a\tb" contains a control character`,
		`$.tasks[2].locks[6]: lock: want a key, or {"shared": key}, got the number 5`,
		`$.tasks[2].priority: want a whole number from -100 to 100, got the number 101`,
		`$.tasks[2].retry.attempts: want a whole number from 1 to 20, got the number 21`,
		`$.tasks[2].retry.backoff: backoff "2m..2s": want MIN..MAX such as 2s..2m, at most 24h`,
		`$.tasks[2].retry.on[1]: reason "gone": want one of denied, integrity, fetch, setup, context, agent, verify, output, timeout, limit or lost`,
		`$.tasks[2].timeout: duration "1500ms": want whole hours, minutes and seconds such as 90s, 20m or 1h30m`,
		`$.tasks[3]: want an object, got the text "later"`,
		`$.tasks[4].depends_on: want a list, got the text "a"`,
		`$.tasks[4].id: want text, got a list`,
		`$.tasks[4].input: want an object, got the text "text"`,
		`$.tasks[4].locks: want a list, got an object`,
		`$.tasks[4].timeout: duration "0s": want a positive duration such as 90s or 30m, at most 876600h`,
	}
	got := problemsOf(t, bad)
	slices.Sort(got)
	slices.Sort(want)
	for _, p := range got {
		if !slices.Contains(want, p) {
			t.Errorf("not expected: %s", p)
		}
	}
	for _, p := range want {
		if !slices.Contains(got, p) {
			t.Errorf("not found: %s", p)
		}
	}
}

// tasks is a plan of tasks, each KEY or KEY: DEPENDENCIES.
func tasks(list ...string) string {
	var b strings.Builder
	b.WriteString("tasks:\n")
	for _, t := range list {
		id, deps, _ := strings.Cut(t, ":")
		fmt.Fprintf(&b, "- {id: %s, subagent: s, depends_on: [%s]}\n", id, deps)
	}
	return b.String()
}

func TestCycleIsPrintedWhole(t *testing.T) {
	for text, want := range map[string][]string{
		tasks("a:b", "b:a"):                      {"$.tasks[0].depends_on[0]: dependency cycle: a -> b -> a"},
		tasks("x", "a:x,b", "b:c", "c:a", "y:a"): {"$.tasks[1].depends_on[1]: dependency cycle: a -> b -> c -> a"},
		// Two ways around in one set: the shorter one.
		tasks("a:b,e", "b:c", "c:a", "e:a"): {"$.tasks[0].depends_on[1]: dependency cycle: a -> e -> a"},
		tasks("a:b", "b:a", "c:d,a", "d:c"): {
			"$.tasks[0].depends_on[0]: dependency cycle: a -> b -> a",
			"$.tasks[2].depends_on[0]: dependency cycle: c -> d -> c",
		},
		"tasks: [{id: a, subagent: s, needs: {p.x: {from: b, patch: true}}}, {id: b, subagent: s, depends_on: [a]}]": {
			"$.tasks[0].needs['p.x'].from: dependency cycle: a -> b -> a",
		},
		tasks("a", "b:a", "c:a,b"): {}, // the control: no cycle
	} {
		if got := problemsOf(t, text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestParseRefusesAmbiguousJSON(t *testing.T) {
	ok := `{"tasks":[{"id":"a","subagent":"s"}]}`
	for name, c := range map[string]struct{ in, want string }{
		"nothing":                  {``, "not valid JSON: unexpected end of JSON"},
		"another value":            {`[]`, "want an object, got a list"},
		"a number":                 {`3`, "want an object, got the number 3"},
		"null":                     {`null`, "got null"},
		"no tasks":                 {`{}`, `missing key "tasks"`},
		"empty tasks":              {`{"tasks":[]}`, "$.tasks: is empty"},
		"null tasks":               {`{"tasks":null}`, "$.tasks: want a list, got null"},
		"a key in another case":    {`{"Tasks":[{"id":"a","subagent":"s"}]}`, `unknown key "Tasks"; did you mean "tasks"?`},
		"a key twice":              {`{"tasks":[],"tasks":[{"id":"a","subagent":"s"}]}`, `duplicate member "tasks"`},
		"a key twice by escape":    {`{"tasks":[{"id":"a","\u0069d":"b","subagent":"s"}]}`, `duplicate member "id"`},
		"data after it":            {ok + `{}`, "data after the JSON value"},
		"a lone surrogate":         {`{"tasks":[{"id":"\ud800","subagent":"s"}]}`, "lone surrogate"},
		"a byte order mark":        {"\ufeff" + ok, "byte order mark"},
		"a zero byte":              {"\x00" + ok, "the byte 0"},
		"not UTF-8":                {"{\"\xff\":1}", "not valid UTF-8"},
		"depth":                    {`{"tasks":[{"id":"a","subagent":"s","input":` + strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000) + "}]}", "nested deeper than 64"},
		"a number that no one has": {`{"tasks":[{"id":"a","subagent":"s","input":{"a":9007199254740993}}]}`, "beyond what every reader can hold"},
		"YAML":                     {"tasks: []", "not valid JSON"},
		"invisible characters":     {`{"tasks":[{"id":"a","subagent":"s","locks":["a\u202eb"]}]}`, "invisible character U+202E"},
		"a zero in a path":         {`{"tasks":[{"id":"a","subagent":"s"},{"id":"b","subagent":"s","needs":{"x":{"from":"a","output":"a\u0000b"}}}]}`, "contains a control character"},
		"an id as a path":          {`{"tasks":[{"id":"../a","subagent":"s"}]}`, `$.tasks[0].id: task id "../a"`},
		"an id as a command":       {`{"tasks":[{"id":"a\u001b]0;x","subagent":"s"}]}`, `$.tasks[0].id: task id "a\x1b]0;x"`},
		"a key as a command":       {`{"tasks":[{"id":"a","subagent":"s","\u001b[2J":1}]}`, `$.tasks[0]['\u001b[2J'] (task a): unknown key "\x1b[2J"`},
	} {
		p, problems := Parse([]byte(c.in))
		if p != nil || !strings.Contains(fmt.Sprint(problems), c.want) {
			t.Errorf("%s: %v, want %s", name, problems, c.want)
		}
	}
	if _, problems := Parse([]byte(ok)); problems != nil {
		t.Errorf("positive control: %v", problems)
	}
}

func TestManyProblemsAreCountedAndTheFirstListed(t *testing.T) {
	var list []string
	for i := range 500 {
		list = append(list, fmt.Sprintf("t%d:ghost%d", i, i))
	}
	raw, _ := parseYAML([]byte(tasks(list...)))
	_, problems := Parse(raw)
	if last := problems[len(problems)-1]; len(problems) != api.MaxProblems || last.Message != "500 problems in all; the first 99 are listed" {
		t.Errorf("%d problems, the last is %s", len(problems), last)
	}
	if e := Error(problems); e.Code != api.CodeInvalid || e.Message != "the plan has 500 problems" || len(e.Problems) != len(problems) {
		t.Errorf("%v", e)
	}
	// The controls: as many as are listed, and one.
	raw, _ = parseYAML([]byte(tasks(list[:api.MaxProblems]...)))
	if _, problems = Parse(raw); len(problems) != api.MaxProblems || !strings.Contains(problems[99].Message, "ghost99") {
		t.Errorf("%d problems, the last is %s", len(problems), problems[len(problems)-1])
	}
	if e := Error(problems); e.Message != "the plan has 100 problems" || Error(problems[:1]).Message != "the plan has 1 problem" {
		t.Error(e)
	}
}

// TestProblemsShortenLongTexts, as its text is sent, logged and
// shown.
func TestProblemsShortenLongTexts(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	value := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	for _, in := range []string{
		`{"id":` + value(long) + `}`, `{"queue":` + value(long) + `}`, `{` + value(long) + `:1}`, `{"tasks":` + value(long) + `}`,
		`{"tasks":[{"id":` + value(long) + `,"subagent":"s","timeout":` + value(long) + `,"locks":[` + value(long) + `],"retry":{"attempts":2,"on":[` + value(long) + `]}}]}`,
		`{"tasks":[{"id":"a","subagent":"s","needs":{` + value(long) + `:{"from":` + value(long) + `,"output":` + value(long) + `}}}]}`,
		`{"tasks":[{"id":"a","subagent":"s","input":{"x":1` + strings.Repeat("0", 1<<20) + `}}]}`, `{"a":1,"` + long + `":1,"` + long + `":2}`,
	} {
		_, problems := Parse([]byte(in))
		if len(problems) == 0 {
			t.Errorf("%.60s was taken", in)
		}
		for _, p := range problems {
			if len(p.String()) > 400 {
				t.Errorf("%.60s: a problem of %d bytes: %.200s", in, len(p.String()), p)
			}
		}
	}
}

// Each problem of a task has the task's name beside its path, if it can be
// read; an input that no worker accepts is a problem of the plan.
//
// proves R-O2
func TestProblemsNameTheirTask(t *testing.T) {
	big := `{"text":"` + strings.Repeat("x", api.MaxInput) + `"}`
	_, places := Read([]byte(`{"tasks":[{"id":"a","subagent":"x"},{"id":"build","subagent":"x","input":` + big + `}]}`))
	if len(places) != 1 || places[0].Path != "$.tasks[1].input" || places[0].Task != "build" || places[0].Column == 0 {
		t.Errorf("a large input: %v", places)
	}
	_, problems := Parse([]byte(`{"queue":"Q","tasks":[{"id":"build","subagent":"x","input":7},{"id":"../x","subagent":"x"},{"subagent":"x","what":1},{"id":"ship","subagent":"x","needs":{"a.b":{"from":"gone","patch":true}}}]}`))
	got := map[string]api.TaskID{}
	for _, p := range problems {
		got[p.Path] = p.Task
	}
	want := map[string]api.TaskID{"$.queue": "", "$.tasks[0].input": "build", "$.tasks[1].id": "", "$.tasks[2]": "", "$.tasks[2].what": "", "$.tasks[3].needs['a.b'].from": "ship"}
	for path, task := range want {
		if name, ok := got[path]; !ok || name != task {
			t.Errorf("%s: task %q, want %q; all: %v", path, name, task, problems)
		}
	}
	fits := `{"text":"` + strings.Repeat("x", api.MaxInput-len(`{"text":""}`)) + `"}`
	if _, places := Read([]byte(`{"tasks":[{"id":"build","subagent":"x","input":` + fits + `}]}`)); places != nil {
		t.Errorf("positive control: %v", places)
	}
	if s := (api.Problem{Path: "$.tasks[3].needs", Task: "ship", Message: "no"}).String(); s != "$.tasks[3].needs (task ship): no" {
		t.Errorf("as text: %s", s)
	}
}

// proves R-O2
func TestADurationWithoutUnitIsToldTheRightSpelling(t *testing.T) {
	for _, doc := range []string{`90`, `"90"`} {
		_, problems := Parse([]byte(`{"limits":{"wall":` + doc + `},"tasks":[{"id":"a","subagent":"x","timeout":` + doc + `}]}`))
		if len(problems) != 2 {
			t.Fatalf("%s: %v", doc, problems)
		}
		for _, p := range problems {
			if p.Message != "duration 90 has no unit: write 90s for seconds, 90m for minutes or 90h for hours" {
				t.Errorf("%s: %s", doc, p)
			}
		}
	}
	for _, doc := range []string{`1.5`, `true`, `"1.5s"`, `"90 s"`, `-1`} {
		if _, problems := Parse([]byte(`{"tasks":[{"id":"a","subagent":"x","timeout":` + doc + `}]}`)); len(problems) != 1 || strings.Contains(problems[0].Message, "no unit") {
			t.Errorf("%s: %v", doc, problems)
		}
	}
}
