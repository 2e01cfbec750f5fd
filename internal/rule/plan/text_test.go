package plan

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

// TestReadReportsLineAndColumn, YAML or JSON, by its path.
//
// proves R-O2
func TestReadReportsLineAndColumn(t *testing.T) {
	for text, want := range map[string][]string{
		"# a plan\ntasks:\n  - id: a\n    subagent: s\n    needs:\n      x.y: {from: b, patch: true}\n    locks:\n      - k\n      - k\n    env: 3\n": {
			`6:13: $.tasks[0].needs['x.y'].from (task a): no such task "b"`, `9:9: $.tasks[0].locks[1] (task a): duplicate lock "k"`, `10:5: $.tasks[0].env (task a): want a list, got the number 3`,
		},
		"{\"tasks\": [\n\t{\"id\": \"é\", \"subagent\": \"s\"},\n\t{\"subagent\": \"s\", \"id\" :1,\n \"it's\": {}}\n]}": {
			`2:3: $.tasks[0].id: task id "é": want 1 to 64 of a-z A-Z 0-9 . _ - beginning and ending with a letter or digit`, `3:20: $.tasks[1].id: want text, got the number 1; put it in quotes`, `4:2: $.tasks[1]['it\'s']: unknown key "it's"`,
		},
		`{"é": "ü", "x": 1, "tasks": []}`: {`1:2: $['é']: unknown key "é"`, `1:12: $.x: unknown key "x"`, `1:20: $.tasks: is empty: want at least one task`},
		"tasks: []\n":                     {`1:1: $.tasks: is empty: want at least one task`},
		"tasks:\n- id: a\n":               {`2:3: $.tasks[0] (task a): missing key "subagent"`},
		"{}":                              {`missing key "tasks"`},
	} {
		_, places := Read([]byte(text))
		var got []string
		for _, p := range places {
			got = append(got, p.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\n%q\nwant\n%q", text, got, want)
		}
	}
}

func TestReadTextReportsSyntaxWithPosition(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "1:1: the file is empty",
		"tasks: [\n":                     "not valid YAML",
		"a: 1\na: 2\n":                   `2:1: plan: duplicate key "a", first in line 1`,
		`{"a": 1, "a": 2}`:               `1:10: plan: duplicate key "a", first in line 1`,
		`{"a": "\ud800"}`:                "1:", // YAML's words
		"a: &x 1\nb: *x\n":               "1:4: anchors and aliases are not supported; write the value out",
		"a: !!str 1\n":                   "1:4: tags such as",
		"a: 2020-01-01\n":                "1:4: plan.a: want text",
		"a: .inf\n":                      "1:4: plan.a: .inf is not a JSON number",
		"a: \"x\\u202ey\"\n":             "1:4: plan.a: contains the invisible character U+202E",
		"a: 9007199254740993\n":          "beyond what every reader can hold",
		"a: 1\n---\nb: 2\n":              ":", // a second document
		"\ufefftasks: []\n":              "1:1: begins with a byte order mark",
		"a: \xff\n":                      "not valid UTF-8",
		"a: \x00\n":                      ":",
		strings.Repeat("[", 5000):        ":",
		strings.Repeat("- ", 5000) + "1": ":",
		strings.Repeat("#", 4<<20+1):     "larger than 4096 KiB",
	} {
		raw, problems := parseYAML([]byte(text))
		if raw != nil || !strings.Contains(fmt.Sprint(problems), want) {
			t.Errorf("%.40q: %s, %v, want %s", text, raw, problems, want)
		}
	}
	if _, problems := parseYAML([]byte(strings.Repeat("a: 1\n", 500))); len(problems) != api.MaxProblems || !strings.Contains(problems[99].Message, "more problems") {
		t.Errorf("%d problems: %v", len(problems), problems[len(problems)-1])
	}
	if raw, problems := parseYAML([]byte("a: [1, 2.5, x, true, null]\n")); string(raw) != `{"a":[1,2.5,"x",true,null]}` {
		t.Errorf("positive control: %s, %v", raw, problems)
	}
}

func TestDocumentedPlanIsValid(t *testing.T) {
	b, err := os.ReadFile("../../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	if p, places := Read([]byte(text)); p == nil || len(p.Tasks) != 2 {
		t.Errorf("%s: %v", text, places)
	}
}

// TestPathsLeadToTheirValues, whatever the names of members are.
func TestPathsLeadToTheirValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.OneOf(rapid.StringN(1, 8, 32), rapid.SampledFrom([]string{"'", `\`, `a']['b`, "[0]", ".", "\u0000", "\U0001f600", "\U000e0001", `"`})), 1, 4).Draw(t, "names")
		path, target := "$", &spot{line: 7}
		root := target
		for _, name := range slices.Backward(names) {
			root = &spot{members: map[string]*spot{name: root}}
		}
		for _, name := range names {
			path = member(path, name)
		}
		if at := root.find(path); at != target {
			t.Fatalf("%q leads to %v", path, at)
		}
	})
}
