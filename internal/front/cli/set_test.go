package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

const setSchema = `{"type":"object","additionalProperties":false,"properties":{
	"name":{"type":"string"},"n":{"type":"integer"},"on":{"type":"boolean"},"any":{},"both":{"type":["string","null"]},
	"a":{"type":"object","properties":{"b":{"type":"object","properties":{"c":{"type":"integer"}}},"t":{"type":"string"}}},"x.y":{"type":"string"}}}`

func setInput(text, schema string, set ...string) (string, error) {
	var a console.Args
	in := readInput(&a, text, set, strings.NewReader("from stdin"))
	if a.Err != nil {
		return "", a.Err
	}
	var sub *api.ArtifactInfo
	if schema != "" {
		sub = &api.ArtifactInfo{Listing: api.Listing{Name: "edit", Input: []byte(schema)}}
	}
	doc, err := in.document(sub)
	return string(doc), err
}

func TestSetTakesTextJSONAndFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f=1.txt")
	if err := os.WriteFile(file, []byte("two\nlines\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schema, set, want string
	}{
		{setSchema, "name=a=b:=c@d", `{"name":"a=b:=c@d"}`},
		{setSchema, "name=", `{"name":""}`},
		{setSchema, "n:=1234567890123456", `{"n":1234567890123456}`},
		{setSchema, "on:=true", `{"on":true}`},
		{setSchema, `any:={"k":[1]}`, `{"any":{"k":[1]}}`},
		{setSchema, "name@" + file, `{"name":"two\nlines\n"}`},
		{setSchema, "name@-", `{"name":"from stdin"}`},
		{setSchema, "both:=null", `{"both":null}`},
		{setSchema, "a.b.c:=3", `{"a":{"b":{"c":3}}}`},
		{setSchema, "x.y=literal", `{"x.y":"literal"}`},
		{"", "a.b=1", `{"a.b":"1"}`},
		{"", "a:b=1", `{"a:b":"1"}`},
		{`{"type":"object"}`, "free=1", `{"free":"1"}`},
	} {
		if got, err := setInput("", c.schema, c.set); err != nil || got != c.want {
			t.Errorf("--set %s gives %s, %v; want %s", c.set, got, err, c.want)
		}
	}
	if got, err := setInput(`{"a":{"t":"kept"},"n":1}`, setSchema, "a.b.c:=3", "n:=2"); err != nil || got != `{"a":{"b":{"c":3},"t":"kept"},"n":2}` {
		t.Errorf("beside --input: %s, %v", got, err)
	}
}

func TestSetRefusesWhatTheSchemaDoesNotHave(t *testing.T) {
	for set, want := range map[string]string{
		"name":               "want KEY=TEXT, KEY:=JSON or KEY@FILE",
		"=x":                 "want KEY=TEXT",
		"@x":                 "want KEY=TEXT",
		":=1":                "want KEY=TEXT",
		"n:=five":            "not valid JSON",
		"n:=":                "not valid JSON",
		`any:={"a":1,"a":2}`: "not valid JSON",
		"n=5":                "n wants integer; write n:=5",
		"n=five":             "n wants integer",
		"n:=1.5":             "n wants integer",
		"on=true":            "write on:=true",
		"name:=1":            "name wants string",
		"both:=1":            "both wants string or null",
		"a.b.c=x":            "c wants integer",
		"a=x":                "a wants object",
		"nome=x":             `no such member "nome"; want one of a, any, both, n, name, on, x.y`,
		"name.x=1":           `no such member "name.x"`,
		"name@/none":         "/none",
	} {
		if got, err := setInput("", setSchema, set); err == nil || api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s gives %s, %v; want %q", set, got, err, want)
		}
	}
	if _, err := setInput(`{"a":1}`, setSchema, "a.t=x"); err == nil || !strings.Contains(err.Error(), `member "a" of --input is not an object`) {
		t.Error(err)
	}
	if _, err := setInput(`[1]`, setSchema); err == nil || !strings.Contains(err.Error(), "want a JSON object") {
		t.Error(err)
	}
}
