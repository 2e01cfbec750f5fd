package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
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

// The growth constructs of the samples would otherwise be input that no worker reads.
func TestImportRefusesTheSamplesByName(t *testing.T) {
	for file, want := range map[string]string{
		"gated.json":     `[$.items[1].inputs.gate: "gate" is not supported by this version of bailiwick; give the subagent`,
		"mapreduce.json": `[$.items[1].inputs.mapReduce: "mapReduce" is not supported by this version of bailiwick; write one task`,
		"quorum.json":    `[$.items[0].inputs.quorum: "quorum" is not supported by this version of bailiwick; write the reviewers`,
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", "pangolin", file))
		if err != nil {
			t.Fatal(err)
		}
		p, _, problems := Import(raw, ImportOptions{})
		if p != nil || len(problems) != 1 || !strings.HasPrefix(regexp.MustCompile(` \(task [^)]*\):`).ReplaceAllString(fmt.Sprint(problems), ":"), want) {
			t.Errorf("%s: %v", file, problems)
		}
		// The control: without the construct the plan is imported.
		var doc struct {
			ID    string           `json:"id"`
			Items []map[string]any `json:"items"`
		}
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		for _, item := range doc.Items {
			maps.DeleteFunc(item["inputs"].(map[string]any), func(key string, _ any) bool {
				return key == "gate" || key == "mapReduce" || key == "quorum"
			})
		}
		raw, _ = json.Marshal(doc)
		if _, _, problems := Import(raw, ImportOptions{}); problems != nil {
			t.Errorf("control: %s: %v", file, problems)
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
		`{"items":[],"schedule":"0 2 * * *"}`: `$.schedule: "schedule" is not supported by this version`,
		`{"items":[],"openEnded":true}`:       `$.openEnded: "openEnded" is not supported by this version`,
		`{"items":[],"title":"x"}`:            `$.title: "title" has no translation`,
		`{"id":"::","items":[]}`:              `$.id: id "::": want text with a letter or digit`,
		`{"id":7,"items":[]}`:                 `$.id: id ""`,
		item(`"inputs":{"subagent":"s"}`):     `$.items[1]: missing key "executor"`,
		item(`"executor":"shell","inputs":{"subagent":"s"}`):                                           `$.items[1].executor: executor "shell": name its target; use --executor shell=TARGET`,
		item(`"executor":"human-approval","inputs":{"subagent":"s"}`):                                  `$.items[1].executor: "human-approval" is not supported`,
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
