package console

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
)

// inputOf reads the flags of an example.
func inputOf(t *testing.T, flags []string) any {
	t.Helper()
	members := map[string]json.RawMessage{}
	for i := 0; i+1 < len(flags); i += 2 {
		if flags[i] == "--input" {
			if err := json.Unmarshal([]byte(flags[i+1]), &members); err != nil {
				t.Fatal(err)
			}
			continue
		}
		v, err := ParseValue(flags[i], flags[i+1], nil)
		if err != nil {
			t.Fatal(err)
		}
		members[v.Key] = v.Raw()
	}
	b, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// The example of a subagent is an input that its schema accepts.
func TestTheExampleFitsTheSchema(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","required":["name"],"properties":{"name":{"type":"string","maxLength":2}}}`:                                  "--set name=TE",
		`{"type":"object","required":["file"],"properties":{"file":{"type":"string","pattern":"^[a-z]+\\.txt$"}}}`:                     "--set file=a.txt",
		`{"type":"object","required":["file"],"properties":{"file":{"type":"string","pattern":"^[a-z]+$","examples":["two words"]}}}`:  "--input @input.json", // its author's example is wrong
		`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","minimum":3}}}`:                                         "--set n:=3",
		`{"type":"object","required":["n"],"properties":{"n":{"type":"number","exclusiveMinimum":0,"maximum":0.5}}}`:                   "--set n:=0.5",
		`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","multipleOf":5,"exclusiveMinimum":5}}}`:                 "--set n:=10",
		`{"type":"object","required":["on","of"],"properties":{"of":{"enum":["b","a"]},"on":{"type":"boolean"}}}`:                      "--set on:=true --set of=b",
		`{"type":"object","required":["l"],"properties":{"l":{"type":"array","minItems":2,"items":{"type":"string"}}}}`:                `--set 'l:=["TEXT","TEXT"]'`,
		`{"type":"object","required":["o"],"properties":{"o":{"type":"object","required":["p"],"properties":{"p":{"const":7}}}}}`:      `--set 'o:={"p":7}'`,
		`{"type":"object","required":["d"],"properties":{"d":{"type":"string","format":"date"}}}`:                                      "--set d=2026-01-31",
		`{"type":"object","required":["id"],"properties":{"id":{"$ref":"#/$defs/id"}},"$defs":{"id":{"type":"string","minLength":6}}}`: "--set id=TEXTTT",
		`{"type":"object","required":["id"],"properties":{"id":{"type":"string","pattern":"^(x|y)-[0-9]{3,}$","minLength":10}}}`:       "--set id=x-00000000",
		`{"type":"object","required":["t"],"properties":{"t":{"const":"it's $HOME; rm -rf /"}}}`:                                       `--set 't=it'\''s $HOME; rm -rf /'`,
		`{"type":"object","required":["a.b"],"properties":{"a.b":{"type":"string"}}}`:                                                  `--input '{"a.b":"TEXT"}'`,
		"{\"type\":\"object\",\"required\":[\"t\"],\"properties\":{\"t\":{\"const\":\"a\\u001b[31m\\n\\u202e\"}}}":                     `--input '{"t":"a\u001b[31m\n\u202e"}'`,
		``:     "",
		`true`: "",
		`{"type":"object","properties":{"name":{"type":"string"}}}`:                                                   "",
		`{"type":"object","required":["a"],"properties":{"a":{"not":{}}}}`:                                            "--input @input.json",
		`{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{"type":"null"},"b":{}}}`: "--set a:=null",
	} {
		flags := ExampleInput(json.RawMessage(schema))
		if got := ShellText(flags...); got != want {
			t.Errorf("%s\ngives %s\nwant  %s", schema, got, want)
		}
		if schema == "" || slices.Contains(flags, "@input.json") {
			continue
		}
		var s jsonschema.Schema
		if err := json.Unmarshal([]byte(schema), &s); err != nil {
			t.Fatal(err)
		}
		r, err := s.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Validate(inputOf(t, flags)); err != nil {
			t.Errorf("%q: %v", flags, err)
		}
	}
}

// The example names a source, and a target where the default is not granted.
func TestTheExampleNamesWhatTheCallerMayUse(t *testing.T) {
	l := api.Listing{Name: "x", Sources: []api.Name{"s1", "s2"}, Targets: []api.Name{"t1"}}
	if got := ExampleDispatch(l); got != "bailiwick dispatch run x --source s1 --target t1" {
		t.Error(got)
	}
}

// A schema that grows without bound has an example at once, or none.
func TestAnExampleIsBounded(t *testing.T) {
	for _, schema := range []string{
		`{"$defs":{"n":{"type":"array","minItems":100,"items":{"$ref":"#/$defs/n"}}},"type":"object","required":["a"],"properties":{"a":{"$ref":"#/$defs/n"}}}`,
		`{"type":"object","required":["a"],"properties":{"a":{"type":"string","minLength":9000,"pattern":"^((((((a*b)*)*)*)*)*)*$"}}}`,
	} {
		begun := time.Now()
		if flags := ExampleInput(json.RawMessage(schema)); !slices.Contains(flags, "@input.json") || time.Since(begun) > 10*time.Second {
			t.Errorf("%s: %.80q after %s", schema, flags, time.Since(begun))
		}
	}
}
