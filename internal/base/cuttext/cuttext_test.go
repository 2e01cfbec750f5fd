package cuttext

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func texts() []string {
	return []string{"", "plain text", "Müller", "日本語", "👩‍🚀x", strings.Repeat("ü", 9), "a" + strings.Repeat("👩", 4)}
}

// A text is cut between characters, whatever the bound, and a text within it stays whole.
func TestWithinKeepsCharactersWhole(t *testing.T) {
	for _, s := range texts() {
		for n := range len(s) + 2 {
			got := Within(s, n)
			if !utf8.ValidString(got) || len(got) > n || !strings.HasPrefix(s, got) || len(s)-len(got) > 3+max(0, len(s)-n) || n >= len(s) && got != s {
				t.Errorf("%q to %d bytes: %q", s, n, got)
			}
			if b := Within([]byte(s), n); string(b) != got {
				t.Errorf("%q to %d bytes: %q as bytes, %q as text", s, n, b, got)
			}
		}
	}
	if got := Within("\x80\x80\x80\x80\x80\x80", 5); len(got) != 5 {
		t.Errorf("%q", got)
	}
	if got := Within("text", -1); got != "" {
		t.Errorf("%q", got)
	}
}

func TestTextMarksTheCut(t *testing.T) {
	for _, s := range texts() {
		for n := len(Mark); n < len(s)+2; n++ {
			got := Text(s, n)
			before, marked := strings.CutSuffix(got, Mark)
			switch {
			case len(s) <= n && got != s:
				t.Errorf("%q within %d bytes became %q", s, n, got)
			case len(s) > n && (!marked || !strings.HasPrefix(s, before) || len(got) > n || len(got) <= n-utf8.UTFMax || !utf8.ValidString(got)):
				t.Errorf("%q to %d bytes: %q", s, n, got)
			}
		}
	}
	if got := Text("a\xffb"+strings.Repeat("c", 9), 9); got != "abccc..." {
		t.Errorf("%q", got)
	}
}

func TestCharactersAreCounted(t *testing.T) {
	for in, want := range map[string]string{"": "", "日本語日本": "日本語日本", "日本語日本語": "日本...", "abcdef": "ab..."} {
		if got := Characters(in, 5); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A head takes everything and keeps the beginning, however the writes divide it.
func TestAHeadKeepsTheBeginning(t *testing.T) {
	const text = " Müller und Söhne\n"
	for most := len(Mark); most < len(text)+2; most++ {
		for size := 1; size <= len(text); size++ {
			h := &Head{Most: most}
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				if wrote, err := h.Write([]byte(rest[:n])); wrote != n || err != nil {
					t.Fatal(wrote, err)
				}
				rest = rest[n:]
			}
			got, cut := h.Text(), most < len(text)
			if string(h.Bytes()) != text[:min(most, len(text))] || h.Cut() != cut || !utf8.ValidString(got) || len(got) > most || cut != strings.HasSuffix(got, Mark) {
				t.Errorf("%d bytes in writes of %d: %q, %q, %v", most, size, h.Bytes(), got, h.Cut())
			}
			if !cut && got != strings.TrimSpace(text) {
				t.Errorf("%q", got)
			}
		}
	}
}
