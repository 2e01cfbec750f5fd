package console

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

func TestPlainEscapesTerminalControls(t *testing.T) {
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
		if got := Plain(in); got != want {
			t.Errorf("Plain(%q) = %q, want %q", in, got, want)
		}
	}
}

// Attacks of a hostile agent on the reader of its log.
func TestPlainKeepsTextInItsPlace(t *testing.T) {
	tower := strings.Repeat("\u0301", 40)
	for name, c := range map[string]struct{ in, want string }{
		"a link":                         {"\x1b]8;;http://evil/\x1b\\\\text\x1b]8;;\x07", `\x1b]8;;http://evil/\x1b\\text\x1b]8;;\x07`},
		"the clipboard":                  {"\x1b]52;c;aGk=\x07", `\x1b]52;c;aGk=\x07`},
		"commands of eight bits":         {"\u009d52;c;aGk=\u009c\u0090q\u009c\u0085", `\u009d52;c;aGk=\u009c\u0090q\u009c\u0085`},
		"raw bytes of eight bits":        {"\x9d\x9c\x85", `\x9d\x9c\x85`},
		"going back over the line":       {"x\b\b\r\x7f\v\f", `x\x08\x08\x0d\x7f\x0b\x0c`},
		"every change of direction":      {"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", `\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069`},
		"an escape in too many bytes":    {"\xc0\x9b\xe0\x80\x9b\xf0\x80\x80\x9b", `\xc0\x9b\xe0\x80\x9b\xf0\x80\x80\x9b`},
		"half of a pair":                 {"\xed\xa0\x80\xed\xb0\x80", `\xed\xa0\x80\xed\xb0\x80`},
		"beyond the last character":      {"\xf4\x90\x80\x80\xff", `\xf4\x90\x80\x80\xff`},
		"a mark at the start of a line":  {"\u0301a\n\u0336b\t\u0301", "\\u0301a\n\\u0336b\t\\u0301"},
		"a mark on its letter":           {"e\u0301 \u0e01\u0e34\u0e49", "e\u0301 \u0e01\u0e34\u0e49"},
		"a tower of marks":               {"e" + tower, "e" + tower[:4*2] + strings.Repeat(`\u0301`, 1) + tower[:4*2] + strings.Repeat(`\u0301`, 1)},
		"text that is never seen":        {"a\U000e0041\U000e0100\ufe00\u034f\u115f\u3164\uffa0\u180b", `a\U000e0041\U000e0100\ufe00\u034f\u115f\u3164\uffa0\u180b`},
		"a picture":                      {"\u2714\ufe0f", "\u2714\ufe0f"},
		"ends of line that are not ours": {"a\u2028b\u2029c", `a\u2028b\u2029c`},
	} {
		got := Plain(c.in)
		if name == "a tower of marks" {
			// An escaped mark starts a new count; only stacks matter.
			if strings.Contains(got, strings.Repeat("\u0301", visibletext.MaxMarks+1)) {
				t.Errorf("%s: %q", name, got)
			}
			continue
		}
		if got != c.want {
			t.Errorf("%s: Plain(%q) = %q, want %q", name, c.in, got, c.want)
		}
	}
	if got := plainLine("one\n12:00:00 dispatch forged [#1]"); strings.Contains(got, "\n") {
		t.Errorf("%q is two lines", got)
	}
}

// controls reports whether a terminal would not just show s.
func controls(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
	})
}

func FuzzPlainWriter(f *testing.F) {
	f.Add("caf\u00e9 \xff \U0001f600 \x1b[2J", 1)
	f.Add("\u0301\n\u0301e\u0301\u0301\u0301\u0301\u0301\u0301", 2)
	f.Add("\xf0\x9f\x98\x1b]52;c;x\x07\xe2\x80\xae", 3)
	f.Add("\xe2\x80\xe2\x80\xae\xc2\x9b", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		var parts strings.Builder
		w := &plainWriter{to: &parts}
		size = max(1, size%7)
		for rest := s; rest != ""; {
			n := min(size, len(rest))
			if wrote, err := w.Write([]byte(rest[:n])); err != nil || wrote != n {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if whole := Plain(s); whole != parts.String() {
			t.Errorf("in chunks of %d: %q, whole: %q", size, parts.String(), whole)
		}
		if out := parts.String(); controls(out) {
			t.Errorf("%q is not harmless", out)
		}
	})
}

// Control for the other tests.
func TestControlsFindsTerminalControls(t *testing.T) {
	for _, s := range []string{"\x1b", "\r", "\b", "\x7f", "\u009b", "\u202e", "\xff", "\u2028"} {
		if !controls("a" + s) {
			t.Errorf("%q is not found", s)
		}
	}
}

// A line of any length takes only the memory of a chunk.
func TestAgentLogUsesConstantMemory(t *testing.T) {
	l := NewAgentLog(io.Discard, io.Discard, AgentMarker, func() int { return 80 }, 0)
	chunk := bytes.Repeat([]byte("\u00e9\x1b"), 64<<10/3)
	write := func(n int) {
		for range n {
			if err := l.Chunk(api.Chunk{Offset: l.next, Data: chunk}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(4)
	before := l.plain.out.Cap() + l.lines.out.Cap()
	write(100)
	if after := l.plain.out.Cap() + l.lines.out.Cap(); after > 2*before {
		t.Errorf("%d bytes are buffered, %d at first", after, before)
	}
}

func TestAnswerWriterKeepsTheFirstError(t *testing.T) {
	w := &answerWriter{to: failing{}}
	_, _ = w.Write([]byte("x"))
	if w.err == nil {
		t.Error("the error was forgotten")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, iotest.ErrTimeout }
