package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain makes text from outside harmless to a terminal: what is not printable
// is shown escaped, and only line ends and tabs keep their effect.
func plain(s string) string {
	var b strings.Builder
	writePlain(&b, s)
	return b.String()
}

func writePlain(b *strings.Builder, s string) {
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(b, `\x%02x`, s[0])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(b, `\x%02x`, r)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
		s = s[n:]
	}
}

// plainWriter is plain for a stream: a character that two writes share is
// held back until it is whole.
type plainWriter struct {
	to   io.Writer
	rest []byte
}

func (w *plainWriter) Write(p []byte) (int, error) {
	data := append(w.rest, p...)
	whole := len(data)
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if tail := data[len(data)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole = len(data) - i
			}
			break
		}
	}
	w.rest = append([]byte(nil), data[whole:]...)
	_, err := io.WriteString(w.to, plain(string(data[:whole])))
	return len(p), err
}

// Close writes what was held back.
func (w *plainWriter) Close() error {
	_, err := io.WriteString(w.to, plain(string(w.rest)))
	w.rest = nil
	return err
}
