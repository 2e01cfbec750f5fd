package cli

import (
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func TestTerminalControlsAreShownAndNotObeyed(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":          "plain\ttext\n",
		"\x1b]0;title\x07":       `\x1b]0;title\x07`,
		"a\rb\x08":               `a\x0db\x08`,
		"\u202egnp.exe\u202c":    `\u202egnp.exe\u202c`,
		"caf\u00e9 \u2713":       "caf\u00e9 \u2713",
		"\xff\xfe":               `\xff\xfe`,
		"\x9b31m and \u009b31m":  `\x9b31m and \u009b31m`,
		"zero\u200bwidth\u2028x": `zero\u200bwidth\u2028x`,
	} {
		if got := plain(in); got != want {
			t.Errorf("plain(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzPlainWriter(f *testing.F) {
	f.Add("caf\u00e9 \xff \U0001f600 \x1b[2J", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		var whole, parts strings.Builder
		w := &plainWriter{to: &parts}
		size = max(1, size%7)
		for rest := s; rest != ""; {
			n := min(size, len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		whole.WriteString(plain(s))
		if whole.String() != parts.String() {
			t.Errorf("in pieces of %d: %q, whole: %q", size, parts.String(), whole.String())
		}
		if out := parts.String(); !utf8.ValidString(out) || strings.ContainsAny(out, "\x1b\r\x00\u009b") {
			t.Errorf("%q is not harmless", out)
		}
	})
}

func TestAnAnswerThatDoesNotArriveIsAnError(t *testing.T) {
	w := &answerWriter{to: failing{}}
	_, _ = w.Write([]byte("x"))
	if w.err == nil {
		t.Error("the error was forgotten")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, iotest.ErrTimeout }
