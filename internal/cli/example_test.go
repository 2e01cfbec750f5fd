package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

// inputOf reads the flags of a line as dispatch run does.
func inputOf(t *testing.T, line string, schema string) map[string]any {
	t.Helper()
	root := newRoot()
	words := shellWords(line)
	cmd, rest, err := root.Find(words[1:])
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	text, _ := cmd.Flags().GetString("input")
	set, _ := cmd.Flags().GetStringArray("set")
	var a console.Args
	in := readInput(&a, text, set, nil)
	if a.Err != nil {
		t.Fatalf("%s: %v", line, a.Err)
	}
	doc, err := in.document(&api.ArtifactInfo{Listing: api.Listing{Input: json.RawMessage(schema)}})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var v map[string]any
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The example of a subagent is read by dispatch run as an input that its schema
// accepts.
func TestTheExampleFitsTheSchema(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","required":["name"],"properties":{"name":{"type":"string","maxLength":2}}}`:                                  "--set name=te",
		`{"type":"object","required":["file"],"properties":{"file":{"type":"string","pattern":"^[a-z]+\\.txt$"}}}`:                     "--set file=a.txt",
		`{"type":"object","required":["file"],"properties":{"file":{"type":"string","pattern":"^[a-z]+$","examples":["two words"]}}}`:  "--input @input.json", // its author's example is wrong
		`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","minimum":3}}}`:                                         "--set n:=3",
		`{"type":"object","required":["n"],"properties":{"n":{"type":"number","exclusiveMinimum":0,"maximum":0.5}}}`:                   "--set n:=0.5",
		`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","multipleOf":5,"exclusiveMinimum":5}}}`:                 "--set n:=10",
		`{"type":"object","required":["on","of"],"properties":{"of":{"enum":["b","a"]},"on":{"type":"boolean"}}}`:                      "--set on:=true --set of=b",
		`{"type":"object","required":["l"],"properties":{"l":{"type":"array","minItems":2,"items":{"type":"string"}}}}`:                `--set 'l:=["text","text"]'`,
		`{"type":"object","required":["o"],"properties":{"o":{"type":"object","required":["p"],"properties":{"p":{"const":7}}}}}`:      `--set 'o:={"p":7}'`,
		`{"type":"object","required":["d"],"properties":{"d":{"type":"string","format":"date"}}}`:                                      "--set d=2026-01-31",
		`{"type":"object","required":["id"],"properties":{"id":{"$ref":"#/$defs/id"}},"$defs":{"id":{"type":"string","minLength":6}}}`: "--set id=texttt",
		`{"type":"object","required":["id"],"properties":{"id":{"type":"string","pattern":"^(x|y)-[0-9]{3,}$","minLength":10}}}`:       "--set id=x-00000000",
		`{"type":"object","required":["t"],"properties":{"t":{"const":"it's $HOME; rm -rf /"}}}`:                                       `--set 't=it'\''s $HOME; rm -rf /'`,
		`{"type":"object","required":["a.b"],"properties":{"a.b":{"type":"string"}}}`:                                                  `--input '{"a.b":"text"}'`,
		"{\"type\":\"object\",\"required\":[\"t\"],\"properties\":{\"t\":{\"const\":\"a\\u001b[31m\\n\\u202e\"}}}":                     `--input '{"t":"a\u001b[31m\n\u202e"}'`,
		`{"type":"object","properties":{"name":{"type":"string"}}}`:                                                                    "",
		`{"type":"object","required":["a"],"properties":{"a":{"not":{}}}}`:                                                             "--input @input.json",
		`{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{"type":"null"},"b":{}}}`:                  "--set a:=null",
	} {
		a := api.ArtifactInfo{Listing: api.Listing{Name: "x", Input: json.RawMessage(schema)}}
		got := exampleLine(a)
		if got != strings.TrimSpace("bailiwick dispatch run x "+want) {
			t.Errorf("%s\ngives %s\nwant  %s", schema, got, want)
		}
		if strings.Contains(got, "@input.json") || strings.Contains(got, `\''`) {
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
		if err := r.Validate(inputOf(t, got, schema)); err != nil {
			t.Errorf("%s: %v", got, err)
		}
	}
}

// The example names a source, and a target where the default is not granted.
func TestTheExampleNamesWhatTheCallerMayUse(t *testing.T) {
	a := api.ArtifactInfo{Listing: api.Listing{Name: "x", Sources: []api.Name{"s1", "s2"}, Targets: []api.Name{"t1"}}}
	if got := exampleLine(a); got != "bailiwick dispatch run x --source s1 --target t1" {
		t.Error(got)
	}
}
