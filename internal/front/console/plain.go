package console

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
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

// plainState is what the text written so far means for the text that follows.
type plainState struct {
	scan    visibletext.Scanner
	escaped bool // something was
}

func (p *plainState) write(b io.StringWriter, s string) {
	for len(s) > 0 {
		n, kind := p.scan.Next(s)
		if kind == visibletext.Shown {
			_, _ = b.WriteString(s[:n])
		} else {
			p.escaped = true
			r, _ := utf8.DecodeRuneInString(s)
			if kind == visibletext.Raw {
				r = rune(s[0])
			}
			escape(b, r, kind == visibletext.Raw)
		}
		s = s[n:]
	}
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

// Close writes what is buffered. More text may follow; it starts over.
func (w *plainWriter) Close() error {
	w.state.write(&w.out, string(w.rest[:w.pending]))
	w.pending = 0
	return w.flush()
}
