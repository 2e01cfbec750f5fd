package console

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValuesAreTextJSONOrAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("a \"text\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string][2]string{
		"k=v":             {"k", `"v"`},
		"k=":              {"k", `""`},
		"k=a=b@c":         {"k", `"a=b@c"`},
		"k=5":             {"k", `"5"`},
		"k:=5":            {"k", `5`},
		"k:={\"b\": [1]}": {"k", `{"b":[1]}`},
		"a.b=:=":          {"a.b", `":="`},
		"k@" + file:       {"k", `"a \"text\"\n"`},
		"k@-":             {"k", `"piped"`},
	} {
		v, err := ParseValue("--set", arg, strings.NewReader("piped"))
		if err != nil || v.Key != want[0] || string(v.Raw()) != want[1] {
			t.Errorf("%s: %q %s, %v", arg, v.Key, v.Raw(), err)
		}
	}
	for arg, want := range map[string]string{
		"": "want KEY=TEXT", "k": "want KEY=TEXT", "=v": "want KEY=TEXT", ":=1": "want KEY=TEXT", "@f": "want KEY=TEXT",
		"k:=five": "not valid JSON", "k:=": "not valid JSON", "k@" + file + "-gone": "no such file",
	} {
		if _, err := ParseValue("--set", arg, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", arg, err, want)
		}
	}
}

func TestExampleInputGivesWhatIsRequired(t *testing.T) {
	for schema, want := range map[string]string{
		``:     "",
		`true`: "",
		`{"properties": {"a": {"type": "string"}}}`:                                                 "",
		`{"required": ["a", "b"], "properties": {"a": {"type": "string"}, "b": {"enum": ["x y"]}}}`: "--set a=TEXT --set 'b=x y'",
		`{"required": ["n", "on", "l", "o"], "properties": {"n": {"type": "integer", "minimum": 3}, "on": {"type": "boolean"}, "l": {"type": "array"}, "o": {"type": "object"}}}`: `--input '{"l":[],"n":3,"o":{},"on":true}'`,
		`{"required": ["n"], "properties": {"n": {"type": "number"}}}`: `--input '{"n":1}'`,
	} {
		if got := ShellText(ExampleInput(json.RawMessage(schema))...); got != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}
