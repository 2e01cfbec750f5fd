package strictyaml

import (
	"errors"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
)

func TestNearestFindsTheIntendedKey(t *testing.T) {
	keys := []string{"name", "tier", "targets", "subagents", "envs"}
	for got, want := range map[string]string{"naem": "name", "teir": "tier", "subagent": "subagents", "Targets": "targets", "zebra": "", "x": "", "env": "envs"} {
		if n := Nearest(got, keys); n != want {
			t.Errorf("%s: %q, want %q", got, n, want)
		}
	}
}

// read reads a document with the one key name.
func read(content string) (string, error) {
	p := &Parser{List{File: "file.yaml"}}
	name := ""
	if n := p.Document([]byte(content)); n != nil {
		p.Fields(n, "file", map[string]func(*yaml.Node){"name": func(n *yaml.Node) { name = p.Line(n, "name") }}, "later")
	}
	return name, p.Err()
}

func TestInvalidYAMLIsRefusedWithItsPlace(t *testing.T) {
	for content, want := range map[string]string{
		"":                              "file.yaml:1:1: the file is empty",
		"name: a\nnaem: b\n":            `file.yaml:2:1: file: unknown key "naem"; did you mean "name"?`,
		"name: a\nlater: b\n":           `file.yaml:2:1: file: "later" is not supported yet`,
		"name: a\nname: b\n":            `file.yaml:2:1: file: duplicate key "name", first in line 1`,
		"name: 1\n":                     "file.yaml:1:7: name: want text, got the number 1; put it in quotes",
		"name: !!str 1\n":               "tags such as",
		"name: &a b\n":                  "anchors and aliases are not supported",
		"name: \"a\\u202eb\"\n":         "invisible character",
		"name: [\n":                     "not valid YAML",
		"- name\n":                      "want a mapping of keys to values, got a list",
		"name: a\n---\nname: b\n":       "file.yaml",
		"name: \xff\n":                  "not valid UTF-8",
		strings.Repeat("[", 200) + "\n": "file.yaml",
		strings.Repeat("#", MaxBytes+1): "larger than 1024 KiB",
	} {
		_, err := read(content)
		var all Problems
		if !errors.As(err, &all) || api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: err = %v, want %s", content, err, want)
		}
	}
	if name, err := read("name: a b\n"); name != "a b" || err != nil {
		t.Fatalf("positive control: %q, %v", name, err)
	}
}

// Any file gives a value or problems that name the file.
func FuzzParser(f *testing.F) {
	for _, seed := range []string{"name: a\n", "name: [a]\n", "a: {b: c}\n", "name: |\n  x\n", "---\n...\n", "? [a]\n: b\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		if _, err := read(content); err != nil && !strings.Contains(err.Error(), "file.yaml") {
			t.Errorf("a problem without its file: %v", err)
		}
	})
}
