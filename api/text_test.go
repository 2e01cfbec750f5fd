package api

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A text is cut between characters, whatever the bound, and a text within it stays whole.
func TestCutKeepsCharactersWhole(t *testing.T) {
	for _, s := range []string{"Müller", "日本語", "👩‍🚀x", strings.Repeat("ü", 9)} {
		for n := range len(s) + 2 {
			if got := Cut(s, n); !utf8.ValidString(got) || len(got) > n || !strings.HasPrefix(s, got) || len(s)-len(got) > 3+max(0, len(s)-n) || n >= len(s) && got != s {
				t.Errorf("%q to %d bytes: %q", s, n, got)
			}
		}
	}
	if got := Cut("\x80\x80\x80\x80\x80\x80", 5); len(got) != 5 {
		t.Errorf("%q", got)
	}
}
