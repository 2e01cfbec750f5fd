package cli

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain makes text from outside harmless to a terminal: what is not printable
// is shown escaped, and only line ends and tabs keep their effect. So no
// command to the terminal, no change of the writing direction, and nothing
// that goes back over what is there, comes through.
func plain(s string) string {
	var b strings.Builder
	var p plainState
	p.write(&b, s)
	return b.String()
}

// plainLine is plain for what must stay one line.
func plainLine(s string) string {
	return strings.ReplaceAll(plain(s), "\n", `\x0a`)
}

// maxMarks is how many marks one character may carry. Scripts need up to four;
// towers of them reach into the lines above.
const maxMarks = 4

// plainState is what of the text before matters to the text that follows.
type plainState struct {
	within bool // of a line: there is a character that a mark can stand on
	marks  int  // that it carries already
}

func (p *plainState) write(b io.StringWriter, s string) {
	for len(s) > 0 {
		if n := ordinary(s); n > 0 {
			p.within, p.marks = true, 0
			_, _ = b.WriteString(s[:n])
			s = s[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			p.within, p.marks = true, 0
			escape(b, rune(s[0]), true)
		case p.harmless(r):
			_, _ = b.WriteString(s[:n])
		default:
			p.within, p.marks = true, 0
			escape(b, r, false)
		}
		s = s[n:]
	}
}

// ordinary returns how much of s is what most of a log is.
func ordinary(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return i
		}
	}
	return len(s)
}

// harmless reports whether r is shown as it is.
func (p *plainState) harmless(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		p.within, p.marks = false, 0
		return true
	case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
		p.marks++
		// What is never seen can carry a text past whoever reads this; the two
		// selectors between text and picture are in common use.
		unseen := unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && r != 0xfe0e && r != 0xfe0f
		return p.within && p.marks <= maxMarks && !unseen
	case unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return false
	case unicode.IsPrint(r):
		p.within, p.marks = true, 0
		return true
	}
	return false
}

// escape shows a character, or a byte that belongs to none, by its number.
func escape(b io.StringWriter, r rune, raw bool) {
	mark, digits := `\x`, 2
	if !raw && r > 0xffff {
		mark, digits = `\U`, 8
	} else if !raw && r >= 0x80 {
		mark, digits = `\u`, 4
	}
	_, _ = b.WriteString(mark)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		at := r >> shift & 0xf
		_, _ = b.WriteString("0123456789abcdef"[at : at+1])
	}
}

// plainWriter is plain for a stream, in constant memory: a character that two
// writes share is held back until it is whole.
type plainWriter struct {
	to    io.Writer
	state plainState
	rest  [utf8.UTFMax]byte
	held  int // bytes of rest that are waiting
	out   bytes.Buffer
}

func (w *plainWriter) Write(p []byte) (int, error) {
	n := len(p)
	if w.held > 0 {
		p = append(bytes.Clone(w.rest[:w.held]), p...)
		w.held = 0
	}
	whole := len(p)
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if tail := p[len(p)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole = len(p) - i
			}
			break
		}
	}
	w.state.write(&w.out, string(p[:whole]))
	if whole < len(p) {
		w.held = copy(w.rest[:], p[whole:])
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	return n, nil
}

func (w *plainWriter) flush() error {
	_, err := w.out.WriteTo(w.to)
	w.out.Reset()
	return err
}

// Close writes what was held back. More may follow, as a text of its own.
func (w *plainWriter) Close() error {
	w.state.write(&w.out, string(w.rest[:w.held]))
	w.held = 0
	return w.flush()
}
