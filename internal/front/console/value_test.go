package console

import (
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
	binary := file + ".bin"
	if err := os.WriteFile(binary, []byte{0xff, 0xfe}, 0o600); err != nil {
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
		"k:=five": "not valid JSON", "k:=": "not valid JSON", "k@" + file + "-gone": "no such file", "k@" + binary: "not UTF-8",
	} {
		if _, err := ParseValue("--set", arg, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", arg, err, want)
		}
	}
}
