package console

import "testing"

// A character that hides, or looks like another in its word, is escaped. Control: words
// of one script stay as they are, and Foreign names them.
//
// proves R-G6
func TestRevealShowsWhatHides(t *testing.T) {
	for in, want := range map[string]string{
		"drop table":      "drop table",
		"dr\u043ep":       `dr\u043ep`, // Cyrillic о
		"таблица":         "таблица",
		"naïve":           "naïve",
		"a\u202eb":        `a\u202eb`,
		"a\u200bb":        `a\u200bb`,
		"e\u0301":         `e\u0301`,
		"\x1b[2J":         `\u001b[2J`,
		"ｄrop":            `\uff44rop`,
		"\U0001d41d":      `\ud835\udc1d`,
		"\U000e0041":      `\udb40\udc41`,
		"x\u200d\u0430":   `x\u200d\u0430`,
		"line\nline\ttab": "line\nline" + `\u0009` + "tab",
	} {
		if got := Reveal(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := Foreign("сор x"); got != "с U+0441, о U+043E, р U+0440" {
		t.Errorf("%s", got)
	}
}
