package console

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes text that others wrote harmless to a terminal: everything but
// printable characters, line ends and tabs is escaped. So the text can neither
// send commands to the terminal nor change the writing direction nor overwrite
// what is already shown.
func Plain(s string) string {
	var b strings.Builder
	var p plainState
	p.write(&b, s)
	return b.String()
}

// plainLine is Plain for text that must stay one line; tabs keep their effect.
func plainLine(s string) string {
	return strings.ReplaceAll(Plain(s), "\n", `\x0a`)
}

// maxMarks is how many combining marks a character may carry. Scripts need up to
// four; more would reach into the lines above.
const maxMarks = 4

// plainState is what the text written so far means for the text that follows.
type plainState struct {
	within  bool // the line has a character that a combining mark can stand on
	marks   int  // marks of that character so far
	escaped bool // something was
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
			p.within, p.marks, p.escaped = true, 0, true
			escape(b, rune(s[0]), true)
		case p.harmless(r):
			_, _ = b.WriteString(s[:n])
		default:
			p.within, p.marks, p.escaped = true, 0, true
			escape(b, r, false)
		}
		s = s[n:]
	}
}

// ordinary returns the length of the prefix of s that is printable ASCII.
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
		// Invisible characters can hide text from the reader. The two selectors
		// between text and emoji style are in common use and allowed.
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

// escape writes the number of a character, or of a byte that is not UTF-8.
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

// plainWriter is Plain for a stream, in constant memory: a character that is
// split between two writes is buffered until it is complete.
type plainWriter struct {
	to      io.Writer
	state   plainState
	rest    [utf8.UTFMax]byte
	pending int // bytes of rest that are buffered
	out     bytes.Buffer
}

func (w *plainWriter) Write(p []byte) (int, error) {
	n := len(p)
	if w.pending > 0 {
		p = append(bytes.Clone(w.rest[:w.pending]), p...)
		w.pending = 0
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
		w.pending = copy(w.rest[:], p[whole:])
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

// Close writes what is buffered. More text may follow; it starts anew.
func (w *plainWriter) Close() error {
	w.state.write(&w.out, string(w.rest[:w.pending]))
	w.pending = 0
	return w.flush()
}
