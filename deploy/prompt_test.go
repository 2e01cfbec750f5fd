package deploy

import (
	"encoding/json"
	"strings"
	"testing"
)

// A prompt that names a member which no input of the schema has is refused when the
// manifest is read, not by each dispatch. What the schema leaves open is not guessed.
func TestAPromptNamesMembersOfItsInput(t *testing.T) {
	const declared = `{"type":"object","properties":{"name":{"type":"string"},"list":{"type":"array"},"of":{"type":"object","properties":{"path":{"type":"string"}}}}}`
	for _, tt := range []struct{ name, prompt, input, want string }{
		{"a member", "{{.name}}", declared, ""},
		{"another", "{{.nme}}", declared, `.nme: the input has no member "nme"; did you mean "name"?`},
		{"far from all", "{{.zzzzzz}}", declared, `.zzzzzz: the input has no member "zzzzzz"`},
		{"on a line", "one\n{{.name}}\n {{.nme}}\n", declared, `line 3: .nme: the input has no member "nme"`},
		{"below a member", "{{.of.path}}{{.of.pat}}", declared, `.of.pat: of of the input has no member "pat"; did you mean "path"?`},
		{"below a text", "{{.name.length}}", declared, ""}, // what a value is, is for the schema
		{"in a condition", "{{if .nme}}x{{end}}", declared, `no member "nme"`},
		{"after a condition", "{{if .name}}{{.nme}}{{else}}x{{end}}", declared, `no member "nme"`},
		{"an item", "{{range .list}}{{.nme}}{{end}}", declared, ""},
		{"the list of items", "{{range .lst}}{{.}}{{end}}", declared, `no member "lst"; did you mean "list"?`},
		{"the input among items", "{{range .list}}{{$.nme}}{{end}}", declared, `$.nme: the input has no member "nme"`},
		{"without items", "{{range .list}}x{{else}}{{.nme}}{{end}}", declared, `no member "nme"`},
		{"within another", "{{with .of}}{{.path}}{{end}}", declared, ""},
		{"an argument", `{{printf "%s" .nme}}{{index .list 0 | print .nam}}`, declared, `no member "nam"`},
		{"in parentheses", "{{(index .lits 0).x}}", declared, `no member "lits"`},
		{"a variable", "{{$x := .nme}}{{$x.y}}", declared, `no member "nme"`},
		{"a definition", `{{define "a"}}{{.nme}}{{end}}{{template "a" .of}}`, declared, ""},
		{"no schema", "{{.nme}}", "", ""},
		{"no properties", "{{.nme}}", `{"type":"object"}`, ""},
		{"closed", "{{.nme}}", `{"properties":{"name":{}},"additionalProperties":false}`, `no member "nme"`},
		{"closed and empty", "{{.nme}}", `{"additionalProperties":false}`, `no member "nme"`},
		{"open", "{{.nme}}", `{"properties":{"name":{}},"additionalProperties":true}`, ""},
		{"open to texts", "{{.nme}}", `{"properties":{"name":{}},"additionalProperties":{"type":"string"}}`, ""},
		{"by a pattern", "{{.nme}}", `{"properties":{"name":{}},"patternProperties":{"^n":{}}}`, ""},
		{"by another schema", "{{.nme}}", `{"properties":{"name":{}},"anyOf":[{"properties":{"nme":{}}}]}`, ""},
		{"that does not parse", "{{.nme", declared, "unclosed action"},
	} {
		got := strings.Join(checkPrompt(tt.prompt, json.RawMessage(tt.input)), "; ")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
