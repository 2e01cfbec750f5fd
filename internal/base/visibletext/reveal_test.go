package visibletext

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// People read JSON in their script, however it was escaped, and what hides stays escaped:
// the value is the same.
//
// proves R-P2
func TestJSONIsShownInItsScript(t *testing.T) {
	for in, want := range map[string]string{
		`"M\u00fcller f\u00fcr \u65e5\u672c\u8a9e"`: `"Müller für 日本語"`,
		`"a \u003c 5 \u0026\u0026 b \u003e 3"`:      `"a < 5 && b > 3"`,
		`"\ud83d\udc69\u200d\ud83d\ude80"`:          `"👩‍🚀"`,
		`"\u05e9\u05dc\u05d5\u05dd"`:                `"שלום"`,
		`"URL\u3092\u78ba\u8a8d"`:                   `"URLを確認"`,
		`"line\n\u65e5"`:                            `"line\n日"`,
		`"\u0939\u093f\u0928\u094d\u0926\u0940"`:    `"हिन्दी"`,
		`"a\u202eb\u200bc"`:                         `"a\u202eb\u200bc"`,
		`"a\u200db"`:                                `"a\u200db"`,
		`"\ud800x"`:                                 `"\ud800x"`,
		`"\u0022\u005c\u001b[2J"`:                   `"\u0022\u005c\u001b[2J"`,
		`"\\u202e"`:                                 `"\\u202e"`,
		`"dr\u043ep"`:                               `"dr\u043ep"`,
		`"\u0442\u0430\u0431"`:                      `"таб"`,
		`{"k\u00fc":[1,2.50]}`:                      "{\n  \"kü\": [\n    1,\n    2.50\n  ]\n}",
		"no \u202e JSON":                            `no \u202e JSON`,
	} {
		if got := JSON([]byte(in)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// Quote shows a text on one line, from which it can be read back.
func TestQuoteIsOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"Müller":       `"Müller"`,
		"a\nb\t\"\\":   `"a\nb\u0009\"\\"`,
		"x\u202ey\x1b": `"x\u202ey\u001b"`,
		`\u202e`:       `"\\u202e"`,
	} {
		if got := Quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func FuzzJSONKeepsTheValue(f *testing.F) {
	for _, s := range []string{`"M\u00fc\ud83d\ude00"`, `{"a\\\"":["\u202e",1e9]}`, `"\ud800\udc00\ud800"`, `[]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var before, after any
		if json.Unmarshal([]byte(s), &before) != nil {
			return
		}
		got := JSON([]byte(s))
		if err := json.Unmarshal([]byte(got), &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("%q is %q: %v", s, got, err)
		}
		for _, p := range Parts(got) {
			if p.Hidden != "" && strings.Contains(p.Text, "U+") {
				t.Fatalf("%q shows %s", got, p.Text)
			}
		}
	})
}
