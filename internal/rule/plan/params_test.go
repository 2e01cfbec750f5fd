package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const template = `{"id":"p","parameters":{"type":"object","required":["file"],"properties":{
	"file":{"type":"string"},"level":{"type":"integer","default":2},"on":{"type":"boolean","default":true},"list":{"type":"array","default":[1,"a"]}}},
	"labels":{"file":"${params.file}"},
	"source":{"name":"service","commit":"release-${params.level}"},
	"tasks":[{"id":"a","subagent":"x","locks":["repo/${params.file}",{"shared":"l${params.level}"}],
	"input":{"file":"${params.file}","level":"${params.level}","on":"${params.on}","list":"${params.list}","text":"level ${params.level} of ${params.file}, ${params.on}","deep":[{"x":"${params.level}"}],"plain":"$${params.file} ${other}"}}]}`

func given(pairs ...string) map[string]json.RawMessage {
	values := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return values
}

// A whole reference becomes the value with its type, one within a text its text;
// what is stored has neither references nor a declaration, so its digest is that of
// what runs.
//
// proves R-O2
func TestParametersAreResolvedBeforeTheCanonicalForm(t *testing.T) {
	p, problems := ParseWith([]byte(template), given("file", `"a.go"`))
	if problems != nil {
		t.Fatal(problems)
	}
	want := `{"deep":[{"x":2}],"file":"a.go","level":2,"list":[1,"a"],"on":true,"plain":"${params.file} ${other}","text":"level 2 of a.go, true"}`
	if got := string(p.Tasks[0].Input); got != want {
		t.Errorf("input\n%s, want\n%s", got, want)
	}
	if p.Tasks[0].Source.Commit != "release-2" || p.Tasks[0].Locks[0].Key != "repo/a.go" || p.Tasks[0].Locks[1].Key != "l2" || p.Labels["file"] != "a.go" {
		t.Errorf("%s", p.Canonical())
	}
	if strings.Contains(string(p.Canonical()), "parameters") {
		t.Errorf("the declaration is stored: %s", p.Canonical())
	}
	same, problems := ParseWith([]byte(template), given("file", `"a.go"`, "level", `2`))
	if problems != nil || same.Digest() != p.Digest() {
		t.Errorf("a default that is spelled out is another plan: %v", problems)
	}
	other, problems := ParseWith([]byte(template), given("file", `"b.go"`))
	if problems != nil || other.Digest() == p.Digest() {
		t.Errorf("another value is the same plan: %v", problems)
	}
	again, problems := Parse(p.Canonical())
	if problems != nil || again.Digest() != p.Digest() {
		t.Errorf("the canonical form is no fixed point: %v", problems)
	}
}

// The value of a parameter is inserted once: it is no template itself, and it cannot
// become a name of the catalog.
//
// proves R-B7
func TestParametersCannotNameWhatRuns(t *testing.T) {
	p, problems := ParseWith([]byte(template), given("file", `"${params.level} \"},{\"id\":\"z\""`))
	if problems != nil || len(p.Tasks) != 1 || !strings.HasPrefix(string(p.Tasks[0].Input), `{"deep":[{"x":2}],"file":"${params.level} \"}`) {
		t.Errorf("a hostile value: %v", problems)
	}
	const declared = `"parameters":{"type":"object","properties":{"n":{"type":"string","default":"x"}}}`
	for place, tasks := range map[string]string{
		"$.tasks[0].subagent":        `{"id":"a","subagent":"${params.n}"}`,
		"$.tasks[0].id":              `{"id":"${params.n}","subagent":"x"}`,
		"$.tasks[0].target":          `{"id":"a","subagent":"x","target":"${params.n}"}`,
		"$.tasks[0].env[0]":          `{"id":"a","subagent":"x","env":["${params.n}"]}`,
		"$.tasks[0].capabilities[0]": `{"id":"a","subagent":"x","capabilities":["${params.n}"]}`,
		"$.tasks[0].source.name":     `{"id":"a","subagent":"x","source":{"name":"${params.n}"}}`,
		"$.tasks[0].timeout":         `{"id":"a","subagent":"x","timeout":"${params.n}"}`,
		"$.tasks[1].needs.x.output":  `{"id":"a","subagent":"x"},{"id":"b","subagent":"x","needs":{"x":{"from":"a","output":"${params.n}"}}}`,
		"$.tasks[0].input":           `{"id":"a","subagent":"x","input":{"${params.n}":1}}`,
	} {
		_, problems := Parse([]byte(`{` + declared + `,"tasks":[` + tasks + `]}`))
		if len(problems) == 0 || problems[0].Path != place || !strings.Contains(problems[0].Message, "parameter") {
			t.Errorf("%s: %v", place, problems)
		}
	}
}

// proves R-O2
func TestParametersAreValidatedByTheirSchema(t *testing.T) {
	for name, c := range map[string]struct {
		doc    string
		values map[string]json.RawMessage
		want   string
	}{
		"missing":      {template, nil, `file`},
		"wrong type":   {template, given("file", `7`), "do not match their schema"},
		"no integer":   {template, given("file", `"a"`, "level", `1.5`), "do not match their schema"},
		"unknown":      {template, given("file", `"a"`, "levl", `1`), `no such parameter "levl"; did you mean "level"?`},
		"undeclared":   {`{"parameters":{"type":"object"},"tasks":[{"id":"a","subagent":"x","input":{"a":"${params.b}"}}]}`, nil, "no value for parameter \"b\""},
		"no schema":    {`{"parameters":{"type":7},"tasks":[{"id":"a","subagent":"x"}]}`, nil, "not a JSON Schema"},
		"bad default":  {`{"parameters":{"properties":{"a":{"type":"string","default":7}}},"tasks":[{"id":"a","subagent":"x"}]}`, nil, "not a JSON Schema"},
		"not declared": {`{"tasks":[{"id":"a","subagent":"x"}]}`, given("a", `1`), "declares no parameters"},
		"list in text": {strings.Replace(template, `"level ${params.level} of`, `"${params.list} of`, 1), given("file", `"a"`), "can only be a whole value"},
		"in a lock":    {strings.Replace(template, `"repo/${params.file}"`, `"${params.list}"`, 1), given("file", `"a"`), "lock: want a key"},
		"too long":     {template, given("file", `"`+strings.Repeat("x", 300)+`"`), "characters: at most"},
	} {
		if p, problems := ParseWith([]byte(c.doc), c.values); p != nil || len(problems) == 0 || !strings.Contains(fmt.Sprint(problems), c.want) {
			t.Errorf("%s: %v, want %q", name, problems, c.want)
		}
	}
	// A plan without a declaration is left alone.
	p, problems := Parse([]byte(`{"tasks":[{"id":"a","subagent":"x","input":{"a":"${params.b}"}}]}`))
	if problems != nil || string(p.Tasks[0].Input) != `{"a":"${params.b}"}` {
		t.Errorf("without parameters: %v", problems)
	}
	if got := ParameterType([]byte(template), "level") + ParameterType([]byte(template), "file") + ParameterType([]byte(template), "gone"); got != "integerstring" {
		t.Errorf("types: %q", got)
	}
}
