package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// Content runs print with the writer of content that others made, such as a patch
// or a file: exact into a pipe or a file; on a terminal escaped as Plain does, and
// through the user's pager, unless raw.
func (o *Output) Content(raw bool, print func(io.Writer) error) error {
	if raw || !o.Screen {
		return print(o.Stdout)
	}
	changed := false
	err := o.Page(func() error {
		w := &plainWriter{to: o.Stdout}
		err := print(w)
		if closed := w.Close(); err == nil {
			err = closed
		}
		changed = w.state.escaped
		return err
	})
	if changed {
		fmt.Fprintln(o.Stderr, "note: control characters are shown escaped; --raw prints them, and a pipe or file gets the exact bytes")
	}
	return err
}

// jsonForScreen returns encoded JSON for a terminal: characters that Plain escapes
// are written as \uXXXX, so the value is the same. encoding/json leaves those
// above 0x1f as they are.
func jsonForScreen(b []byte) []byte {
	var out bytes.Buffer
	var scan visibletext.Scanner
	for s := string(b); len(s) > 0; {
		n, kind := scan.Next(s)
		switch r, _ := utf8.DecodeRuneInString(s); {
		case kind == visibletext.Shown:
			out.WriteString(s[:n])
		case r > 0xffff:
			for _, unit := range utf16.Encode([]rune{r}) {
				writeUnit(&out, rune(unit))
			}
		default:
			writeUnit(&out, r)
		}
		s = s[n:]
	}
	return out.Bytes()
}

func writeUnit(b *bytes.Buffer, r rune) {
	digits := strconv.FormatInt(0x10000+int64(r), 16)
	b.WriteString(`\u` + digits[1:])
}

// JSONText returns v as JSON for standard output, with indented lines unless
// onLine.
func (o *Output) JSONText(v any, onLine bool) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if !onLine {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	if o.Screen {
		return jsonForScreen(b.Bytes()), nil
	}
	return b.Bytes(), nil
}
