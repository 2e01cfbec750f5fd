package plan

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const pangolin = `{
  "id": "Nightly::Rename",
  "queue": "default",
  "items": [
    {"id": "edit~alpha", "executor": "dispatch", "trigger": "manual", "depends_on": [],
     "inputs": {"subagent": "code-edit", "env": "minimal", "workerInput": {"file": "alpha.go", "gate": "is input here"}},
     "resourceLocks": ["repo/alpha.go", "repo/x"]},
    {"id": "edit-alpha", "executor": "dispatch-a", "depends_on": ["edit~alpha"], "resourceLocks": [],
     "inputs": {"subagent": "code-edit", "env": ["minimal", "proxy"], "addCapabilities": ["changelog"]}},
    {"id": "Merge", "executor": "dispatch", "depends_on": ["edit-alpha"], "resourceLocks": [], "inputs": {"subagent": "merger"},
     "needs": {"a.patch": {"from": "edit~alpha", "select": {"kind": "patch"}}, "report": {"from": "edit-alpha", "select": {"kind": "output", "path": "report.md"}}}}
  ]
}`

func importOptions() ImportOptions {
	return ImportOptions{Targets: map[string]api.Name{"dispatch-a": "here"}}
}

// Import translates every key, and notes what it writes differently.
//
// proves R-O2
func TestImportTranslatesPangolinPlan(t *testing.T) {
	p, notes, problems := Import([]byte(pangolin), importOptions())
	if problems != nil {
		t.Fatal(problems)
	}
	want := parse(t, `
id: nightly-rename
tasks:
  - id: edit-alpha-2
    subagent: code-edit
    env: [minimal]
    input: {file: alpha.go, gate: is input here}
    locks: [repo/alpha.go, repo/x]
    retry: {attempts: 2}
  - id: edit-alpha
    subagent: code-edit
    target: here
    env: [minimal, proxy]
    capabilities: [changelog]
    depends_on: [edit-alpha-2]
    retry: {attempts: 2}
  - id: Merge
    subagent: merger
    depends_on: [edit-alpha]
    needs: {a.patch: {from: edit-alpha-2, patch: true}, report: {from: edit-alpha, output: report.md}}
    retry: {attempts: 2}
`)
	if !bytes.Equal(p.Canonical(), want.Canonical()) {
		t.Errorf("%s\nwant\n%s", p.Canonical(), want.Canonical())
	}
	wantNotes := `[$.id: "Nightly::Rename" is written nightly-rename $.items[0].id: "edit~alpha" is written edit-alpha-2 ` +
		`$.items: each task gets retry: {attempts: 2}, the default of Pangolin's engine]`
	if got := fmt.Sprint(notes); got != wantNotes {
		t.Errorf("notes %s", got)
	}
}

// The patterns of the samples become constructs of the plan; what has no translation is
// refused by name.
//
// proves R-O9
func TestImportTranslatesThePatternsOfTheSamples(t *testing.T) {
	sample := func(file string, edit ...string) []byte {
		raw, err := os.ReadFile(filepath.Join("testdata", "pangolin", file))
		if err != nil {
			t.Fatal(err)
		}
		return []byte(strings.NewReplacer(edit...).Replace(string(raw)))
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"gate": {sample("gated.json", `"subagent": "page-writer", "env": "minimal"`, `"subagent": "page-writer"`), `
id: docs-refresh-7
tasks:
  - {id: write, subagent: page-writer, input: {page: docs/start.md}, locks: [docs/start.md], retry: {attempts: 2},
     gate: {verify: {subagent: fact-checker, input: {page: docs/start.md}}, fix: {subagent: page-fixer, input: {page: docs/start.md}}}}
  - {id: announce, subagent: announcer, capabilities: [changelog], locks: [CHANGELOG.md], retry: {attempts: 2}, needs: {work: {from: write, patch: true}}}
`},
		"mapReduce": {sample("mapreduce.json"), `
id: word-count
tasks:
  - {id: seed, subagent: seeder, retry: {attempts: 2}}
  - {id: split, subagent: splitter, retry: {attempts: 2}, needs: {input: {from: seed, output: words.csv}}}
  - {id: map, subagent: counter, retry: {attempts: 2}, for_each: {from: split, outputs: "*", max: 10000}, needs: {input: {from: split, output: "{{each.path}}"}}}
  - {id: reduce, subagent: adder, retry: {attempts: 2}, needs: {part: {from: map, output: result}}}
`},
		"quorum": {sample("quorum.json", `"onReject": "spawn-fix"`, `"onReject": "block"`, `{"executor": "dispatch", "inputs": {"subagent": "reviewer-c"}}`, `{"executor": "human-approval", "inputs": {"approverRole": "lead"}}`), `
id: three-eyes
tasks:
  - {id: draft, subagent: writer, input: {topic: locks}, retry: {attempts: 2}}
  - {id: draft-review, quorum: {of: [reviewer-a, reviewer-b, "human:ann"], approve: 2}, retry: {attempts: 2}, needs: {work: {from: draft, patch: true}}}
  - {id: draft-commit, subagent: publisher, retry: {attempts: 2}, depends_on: [draft-review], needs: {work: {from: draft, patch: true}}}
`},
		"human-approval": {[]byte(`{"items":[{"id":"a","executor":"dispatch","inputs":{"subagent":"s"}},
			{"id":"ok","executor":"human-approval","inputs":{"approverRole":"lead"},"depends_on":[],"resourceLocks":[],"needs":{"work":{"from":"a","select":{"kind":"patch"}}}},
			{"id":"b","executor":"dispatch","inputs":{"subagent":"s"},"depends_on":["ok"]}]}`), `
tasks:
  - {id: a, subagent: s, retry: {attempts: 2}}
  - {id: ok, approval: {by: ["human:ann"], show: [a]}}
  - {id: b, subagent: s, retry: {attempts: 2}, depends_on: [ok]}
`},
		"a schedule": {[]byte(`{"id":"nightly","cronExpr":"0 2 * * *","actor":"x","nextDueAt":"","run":{"items":[{"id":"a","executor":"dispatch","inputs":{"subagent":"s"}}]}}`), `
tasks: [{id: a, subagent: s, retry: {attempts: 2}}]
`},
	} {
		options := ImportOptions{}
		if strings.Contains(string(c.raw), humanApproval) {
			options.Approvers = map[string][]api.Principal{"lead": {"human:ann"}}
		}
		p, notes, problems := Import(c.raw, options)
		if problems != nil || len(notes) < 2 {
			t.Errorf("%s: %v %v", name, problems, notes)
			continue
		}
		if want := parse(t, c.want); !bytes.Equal(p.Canonical(), want.Canonical()) {
			t.Errorf("%s\n%s\nwant\n%s", name, p.Canonical(), want.Canonical())
		}
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"a shortcut":         {[]byte(`{"id":"n","cronExpr":"@daily","run":{"items":[]}}`), `$.cronExpr: "@daily": want five fields`},
		"a key of schedules": {[]byte(`{"id":"n","cronExpr":"0 2 * * *","timezone":"x","run":{"items":[]}}`), `$.timezone`},
		"no plan":            {[]byte(`{"id":"n","cronExpr":"0 2 * * *","run":"other"}`), `$.run: want the plan`},
		"no id":              {[]byte(`{"cronExpr":"0 2 * * *","run":{"items":[]}}`), `missing key "id"`},
		"a plan that is not": {[]byte(`{"id":"n","cronExpr":"0 2 * * *","run":{"items":[{"id":"a","executor":"x","inputs":{"subagent":"s"}}]}}`), `$.run.items[0].executor: executor "x"`},
		"another env":        {sample("gated.json"), `$.items[1].inputs.gate: the gate and its fix have the env of the subject here`},
		"other locks":        {sample("gated.json", `"resourceLocks": ["docs/start.md"]}}}}`, `"resourceLocks": ["x"]}}}}`), `fixTemplate.resourceLocks: the fix of a gate holds the locks of its subject`},
		"another subject":    {sample("gated.json", `"subject": "write"`, `"subject": "gone"`), `$.items[1].inputs.gate.subject: no such item "gone"`},
		"more for the gate":  {sample("gated.json", `"depends_on": [], "resourceLocks": [],`, `"depends_on": ["announce"], "resourceLocks": [],`), `the check of a gate depends on its subject only`},
		"what a gate left": {sample("gated.json", `"needs": {"work": {"from": "write", "select": {"kind": "patch"}}},
   "inputs": {"subagent": "announcer"`, `"needs": {"work": {"from": "check", "select": {"kind": "patch"}}},
   "inputs": {"subagent": "announcer"`), `item "check" is a gate, which leaves nothing here`},
		"a second round":   {sample("quorum.json"), `"onReject": "spawn-fix" has no translation`},
		"a gate in a part": {sample("mapreduce.json", `{"subagent": "counter"}`, `{"subagent": "counter", "gate": {}}`), `"gate" of an item that another pattern makes`},
		"no person":        {sample("quorum.json", `"onReject": "spawn-fix"`, `"onReject": "block"`, `{"executor": "dispatch", "inputs": {"subagent": "reviewer-c"}}`, `{"executor": "human-approval", "inputs": {"approverRole": "lead"}}`), `no person for the role "lead"; use --approver`},
		"no subagent":      {sample("mapreduce.json", `{"subagent": "counter"}`, `{}`), `inputs.mapReduce.map.inputs: missing key "subagent"`},
	} {
		p, _, problems := Import(c.raw, ImportOptions{})
		if got := regexp.MustCompile(` \(task [^)]*\):`).ReplaceAllString(fmt.Sprint(problems), ":"); p != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A plan without a meaningful part of its source would be another plan.
func TestImportRefusesKeysWithoutTranslation(t *testing.T) {
	item := func(rest string) string {
		return `{"items":[{"id":"a","executor":"dispatch","inputs":{"subagent":"s"}},{"id":"b",` + rest + `}]}`
	}
	inputs := func(rest string) string { return item(`"executor":"dispatch","inputs":{"subagent":"s",` + rest + `}`) }
	ok := `"executor":"dispatch","inputs":{"subagent":"s"}`
	refused := map[string]string{
		`[]`:                                  "want an object",
		`{}`:                                  `missing key "items"`,
		`{"items":[]}`:                        "$.items: is empty",
		`{"items":{}}`:                        "$.items: want a list",
		`{"items":[],"budget":3}`:             `$.budget: "budget" has no translation`,
		`{"items":[],"schedule":"0 2 * * *"}`: `$.schedule: "schedule" is a part of the catalog here`,
		`{"items":[],"openEnded":true}`:       `$.openEnded: "openEnded": each run is open`,
		`{"items":[],"title":"x"}`:            `$.title: "title" has no translation`,
		`{"id":"::","items":[]}`:              `$.id: id "::": want text with a letter or digit`,
		`{"id":7,"items":[]}`:                 `$.id: id ""`,
		item(`"inputs":{"subagent":"s"}`):     `$.items[1]: missing key "executor"`,
		item(`"executor":"shell","inputs":{"subagent":"s"}`):                                           `$.items[1].executor: executor "shell": name its target; use --executor shell=TARGET`,
		item(`"executor":"human-approval","inputs":{"subagent":"s"}`):                                  `$.items[1].inputs: no person for the role "approver"; use --approver approver=human:NAME`,
		item(`"executor":7,"inputs":{"subagent":"s"}`):                                                 `$.items[1].executor: want text`,
		item(`"executor":"dispatch"`):                                                                  `missing key "inputs"`,
		item(`"executor":"dispatch","inputs":{}`):                                                      `$.items[1].inputs: missing key "subagent"`,
		item(`"executor":"dispatch","inputs":{"subagent":"S S"}`):                                      `$.items[1].inputs.subagent: name "S S"`,
		inputs(`"file":"x"`):                                                                           `$.items[1].inputs.file: "file" has no translation; the input of a worker is workerInput`,
		inputs(`"workerInput":"text"`):                                                                 `$.items[1].inputs.workerInput: want an object`,
		inputs(`"capabilities":["c"]`):                                                                 `$.items[1].inputs.capabilities: "capabilities" replaces`,
		inputs(`"addCapabilities":["c@v1"]`):                                                           `$.items[1].inputs.addCapabilities[0]: "c@v1" pins version "v1"`,
		inputs(`"addCapabilities":[{"name":"c"}]`):                                                     `$.items[1].inputs.addCapabilities[0]: want text`,
		inputs(`"env":["A B"]`):                                                                        `$.items[1].inputs.env[0]: name "A B"`,
		inputs(`"pipeline":"p"`):                                                                       `$.items[1].inputs.pipeline: "pipeline" is a fixed list`,
		inputs(`"inputRefs":{}`):                                                                       `$.items[1].inputs.inputRefs: "inputRefs" are stored inputs`,
		inputs(`"onBehalfOf":"ann"`):                                                                   `$.items[1].inputs.onBehalfOf: "onBehalfOf" claims a principal`,
		inputs(`"target":"t"`):                                                                         `$.items[1].inputs.target: "target": the executor chooses the target`,
		item(ok + `,"subagentShape":"x"`):                                                              `$.items[1].subagentShape: "subagentShape" names a schema`,
		item(ok + `,"trigger":"webhook"`):                                                              `$.items[1].trigger: "trigger": a run starts when it is submitted`,
		item(ok + `,"onFailure":"continue"`):                                                           `$.items[1].onFailure: "onFailure" has no translation`,
		item(ok + `,"retry":{"attempts":3}`):                                                           `$.items[1].retry: "retry" has no translation`,
		item(ok + `,"depends_on":["c~"]`):                                                              `$.items[1].depends_on[0]: no such item "c~"`,
		item(ok + `,"depends_on":["b"]`):                                                               `$.items[1].depends_on[0]: task "b" depends on itself`,
		item(ok + `,"needs":["a"]`):                                                                    `$.items[1].needs: want an object`,
		item(ok + `,"needs":{"x":{"from":"a","patch":true}}`):                                          `$.items[1].needs.x.patch: unknown key "patch"`,
		item(ok + `,"needs":{"x":{"from":"a"}}`):                                                       `$.items[1].needs.x: missing key "select"`,
		item(ok + `,"needs":{"x":{"from":"z","select":{"kind":"patch"}}}`):                             `$.items[1].needs.x.from: no such item "z"`,
		item(ok + `,"needs":{"x":{"from":"a","select":{"kind":"log"}}}`):                               `$.items[1].needs.x.select.kind: "log": want patch or output`,
		item(ok + `,"needs":{"x":{"from":"a","select":{"kind":"output"}}}`):                            `$.items[1].needs.x.select: missing key "path"`,
		item(ok + `,"needs":{"x":{"from":"a","select":{"kind":"output","path":"../x"}}}`):              `$.items[1].needs.x.select.path: `,
		item(ok + `,"needs":{"x":{"from":"a","select":{"kind":"patch","path":"y"}}}`):                  `$.items[1].needs.x.select.path: a patch has no path`,
		item(ok + `,"resourceLocks":[{"key":"k","mode":"shared"}]`):                                    `$.items[1].resourceLocks[0]: want text`,
		item(ok + `,"resourceLocks":"k"`):                                                              `$.items[1].resourceLocks: want a list`,
		`{"items":[{"id":"~","executor":"dispatch","inputs":{"subagent":"s"}}]}`:                       `$.items[0].id: id "~": want text with a letter or digit`,
		`{"items":[{"id":"a","executor":"dispatch","inputs":{"subagent":"s"}},{"id":"a",` + ok + `}]}`: `$.items[1].id: `,
		`{"items":[1]}`:           "$.items[0]: want an object",
		`{"items":[],"items":[]}`: "duplicate member",
	}
	for in, want := range refused {
		p, _, problems := Import([]byte(in), ImportOptions{})
		if p != nil || !strings.Contains(regexp.MustCompile(` \(task [^)]*\):`).ReplaceAllString(fmt.Sprint(problems), ":"), want) {
			t.Errorf("%s: %v, want %s", in, problems, want)
		}
	}
	if _, _, problems := Import([]byte(item(ok)), importOptions()); !strings.Contains(fmt.Sprint(problems), `no item has the executor "dispatch-a"`) {
		t.Errorf("an executor that no item has: %v", problems)
	}
	if _, _, problems := Import([]byte(item(ok)), ImportOptions{}); problems != nil {
		t.Errorf("positive control: %v", problems)
	}
}

// Ids that become equal get numbers, and stay within their bound.
func TestImportKeepsIDsDistinct(t *testing.T) {
	var items []string
	for i := range 2000 {
		items = append(items, fmt.Sprintf(`{"id":"%sa%s","executor":"dispatch","inputs":{"subagent":"s"}}`, strings.Repeat("x", 70), strings.Repeat("~", i)))
	}
	p, notes, problems := Import([]byte(`{"items":[`+strings.Join(items, ",")+`]}`), ImportOptions{})
	if problems != nil || len(p.Tasks) != len(items) || len(notes) != len(items)+1 {
		t.Errorf("%d notes, problems %v", len(notes), problems)
	}
}

// Import returns a plan or problems for any input.
func FuzzImport(f *testing.F) {
	f.Add([]byte(pangolin))
	f.Add([]byte(`{"items":[{"id":"a","executor":"dispatch","inputs":{"subagent":"s"},"needs":{"x":{}},"resourceLocks":["k"]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, _, problems := Import(raw, importOptions())
		if (p == nil) == (len(problems) == 0) {
			t.Fatalf("a plan %v and %d problems", p, len(problems))
		}
	})
}
