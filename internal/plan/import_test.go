package plan

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

const pangolin = `{
  "id": "nightly",
  "title": "Rename Foo to Bar",
  "items": [
    {"id": "edit-alpha", "executor": "dispatch", "description": "the first half",
     "inputs": {"subagent": "code-edit", "source": {"name": "service"}, "file": "alpha.go", "symbol": "Foo"},
     "resourceLocks": ["repo/alpha.go", {"key": "repo/go.mod", "mode": "shared"}, {"key": "repo/x"}]},
    {"id": "edit-beta", "executor": "dispatch", "subagent": "code-edit", "inputs": {"subagent": "is input here"}, "depends_on": ["edit-alpha"], "timeout": "20m"},
    {"id": "merge", "executor": "dispatch", "inputs": {"subagent": "merger", "input": {"style": "plain"}, "target": "here"},
     "needs": [{"as": "a.patch", "from": "edit-alpha", "patch": true}, {"as": "report", "from": "edit-beta", "output": "report.md"}]}
  ]
}`

// Import notes every part of the document that it translates.
//
// proves R-O2
func TestImportTranslatesPangolinPlan(t *testing.T) {
	p, notes, problems := Import([]byte(pangolin))
	if problems != nil {
		t.Fatal(problems)
	}
	want := parse(t, `
id: nightly
tasks:
  - id: edit-alpha
    subagent: code-edit
    source: {name: service}
    input: {file: alpha.go, symbol: Foo}
    locks: [repo/alpha.go, {shared: repo/go.mod}, repo/x]
  - id: edit-beta
    subagent: code-edit
    input: {subagent: is input here}
    depends_on: [edit-alpha]
    timeout: 20m
  - id: merge
    subagent: merger
    target: here
    input: {style: plain}
    needs: {a.patch: {from: edit-alpha, patch: true}, report: {from: edit-beta, output: report.md}}
`)
	if !bytes.Equal(p.Canonical(), want.Canonical()) {
		t.Errorf("%s\nwant\n%s", p.Canonical(), want.Canonical())
	}
	var said []string
	lost := 0
	for _, n := range notes {
		said = append(said, n.String())
		if n.Lost {
			lost++
		}
	}
	wantSaid := `$.id: copied
$.items[0].description: dropped, text for readers: "\"the first half\""
$.items[0]: task "edit-alpha": id, inputs.source as source, inputs.subagent as subagent, of inputs file, symbol as input, resourceLocks as locks
$.items[1]: task "edit-beta": depends_on, id, inputs as input, subagent, timeout
$.items[2]: task "merge": id, inputs.input as input, inputs.subagent as subagent, inputs.target as target, needs
$.title: dropped, text for readers: "\"Rename Foo to Bar\""`
	if got := strings.Join(said, "\n"); got != wantSaid || lost != 2 {
		t.Errorf("%d lost\n%s", lost, got)
	}
}

// A plan without a meaningful part of its source would be another plan.
func TestImportRefusesKeysWithoutTranslation(t *testing.T) {
	item := func(rest string) string {
		return `{"items":[{"id":"a","executor":"dispatch","inputs":{"subagent":"s"}},{"id":"b",` + rest + `}]}`
	}
	ok := `"executor":"dispatch","inputs":{"subagent":"s"}`
	for in, want := range map[string]string{
		`[]`:                              "want an object",
		`{}`:                              `missing key "items"`,
		`{"items":[]}`:                    "$.items: is empty",
		`{"items":[],"budget":3}`:         `$.budget: "budget" has no translation`,
		item(`"inputs":{"subagent":"s"}`): `$.items[1]: missing key "executor"`,
		item(`"executor":"shell","inputs":{"subagent":"s"}`): `$.items[1].executor: the text "shell": only an item of the executor dispatch`,
		item(`"executor":"dispatch"`):                        `missing key "inputs"`,
		item(`"executor":"dispatch","inputs":{}`):            `$.items[1].inputs: missing key "subagent"`,
		item(ok + `,"onFailure":"continue"`):                 `$.items[1].onFailure: "onFailure" has no translation`,
		item(ok + `,"retries":3`):                            `$.items[1].retries: "retries" has no translation`,
		item(ok + `,"depends_on":["c"]`):                     `$.items[1].depends_on[0]: no such task "c"`,
		item(ok + `,"needs":["a"]`):                          `$.items[1].needs[0]: the text "a" names no product`,
		item(ok + `,"needs":[{"from":"a","patch":true}]`):    `$.items[1].needs[0]: missing key "as"`,
		item(ok + `,"needs":[{"as":"x","from":"a","patch":true},{"as":"x","from":"a","result":true}]`): `$.items[1].needs[1]: missing key "as", a name below inputs/ that no other need has`,
		item(ok + `,"needs":[{"as":"x","from":"a","log":true}]`):                                       `$.items[1].needs.x.log: unknown key "log"`,
		item(ok + `,"resourceLocks":[{"key":"k","mode":"upgradable"}]`):                                `$.items[1].resourceLocks[0].mode: "upgradable": want exclusive or shared`,
		item(ok + `,"resourceLocks":[{"key":"k","ttl":3}]`):                                            `$.items[1].resourceLocks[0].ttl: unknown key "ttl"`,
		item(ok + `,"resourceLocks":"k"`):                                                              `$.items[1].resourceLocks: want a list`,
		item(`"executor":"dispatch","inputs":{"subagent":"s","input":{},"file":"x"}`):                  `$.items[1].inputs: has an input and also "file"`,
		item(`"executor":"dispatch","target":"t","inputs":{"subagent":"s","target":"u"}`):              `$.items[1].inputs.target: the item has target as well`,
		`{"items":[{"id":"a b","executor":"dispatch","inputs":{"subagent":"s"}}]}`:                     `$.items[0].id: task id "a b"`,
		`{"items":[1]}`:           "$.items[0]: want an object",
		`{"items":[],"items":[]}`: "duplicate member",
	} {
		p, _, problems := Import([]byte(in))
		if p != nil || !strings.Contains(fmt.Sprint(problems), want) {
			t.Errorf("%s: %v, want %s", in, problems, want)
		}
	}
	if _, _, problems := Import([]byte(item(ok))); problems != nil {
		t.Errorf("positive control: %v", problems)
	}
}

// Import returns a plan or problems for any input.
func FuzzImport(f *testing.F) {
	f.Add([]byte(pangolin))
	f.Add([]byte(`{"items":[{"id":"a","executor":"dispatch","inputs":{"subagent":"s"},"needs":[{"as":"x"}],"resourceLocks":[{"key":"k"}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, _, problems := Import(raw)
		if (p == nil) == (len(problems) == 0) {
			t.Fatalf("a plan %v and %d problems", p, len(problems))
		}
	})
}
