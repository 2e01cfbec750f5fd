package visibletext

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Text that would hide or move something is named, and the text around it stays.
// Control: text of every script stays as it is, in one part.
func TestPartsNameWhatHides(t *testing.T) {
	for in, want := range map[string][]Part{
		"":                     nil,
		"plain\ttext":          {{"plain\ttext", ""}},
		"naïve таблица 表 ✔️ é": {{"naïve таблица 表 ✔️ é", ""}},
		"a\x1b[31mb":           {{"a", ""}, {"U+001B", "escape, which commands a terminal"}, {"[31mb", ""}},
		"\u202exe.txt\u202c":   {{"U+202E", "a character that changes the direction of writing"}, {"xe.txt", ""}, {"U+202C", "a character that changes the direction of writing"}},
		"a\u200bb":             {{"a", ""}, {"U+200B", "an invisible character"}, {"b", ""}},
		"x\u00a0y":             {{"x", ""}, {"U+00A0", "an unusual space"}, {"y", ""}},
		"\U000e0041":           {{"U+E0041", "an invisible character"}},
		"\xff":                 {{"0xFF", "a byte that is not UTF-8"}},
		"\u0301a":              {{"U+0301", "a combining mark"}, {"a", ""}},
		"a\r\x00":              {{"a", ""}, {"U+000D", "carriage return"}, {"U+0000", "a control character"}},
		"\ue000":               {{"U+E000", "a character that cannot be printed"}},
	} {
		if got := Parts(in); !reflect.DeepEqual(got, want) {
			t.Errorf("Parts(%q) = %+q, want %+q", in, got, want)
		}
	}
}

func FuzzPartsShowOnlyWhatIsHarmless(f *testing.F) {
	for _, s := range []string{"a\u202eb", "\xff\xfe", "e" + strings.Repeat("\u0301", 9), "\U000e0041x\ufe0f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var shown strings.Builder
		hidden := 0
		for _, p := range Parts(s) {
			if p.Text == "" {
				t.Fatalf("%q has an empty part", s)
			}
			if p.Hidden != "" {
				hidden++
				continue
			}
			shown.WriteString(p.Text)
			for _, r := range p.Text {
				if unicode.Is(unicode.Bidi_Control, r) || unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Cf, r) {
					t.Fatalf("%q shows %U", s, r)
				}
			}
			if !utf8.ValidString(p.Text) {
				t.Fatalf("%q shows bytes that are not UTF-8", s)
			}
		}
		// Nothing vanishes: what is not shown is one part for each character or byte.
		if got := utf8.RuneCountInString(shown.String()) + hidden; got != utf8.RuneCountInString(s) {
			t.Fatalf("%q: %d characters shown or named, want %d", s, got, utf8.RuneCountInString(s))
		}
	})
}
