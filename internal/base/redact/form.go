package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
)

// forms returns the needles of a value. Escapes are decoded by views, so they are
// no forms.
func forms(value string) [][]byte {
	v := []byte(value)
	all := [][]byte{v, bytes.ReplaceAll(v, []byte(" "), []byte("+"))} // the second: of HTML forms
	lower := []byte(hex.EncodeToString(v))
	all = append(all, lower, bytes.ToUpper(lower))
	for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for phase := range 3 {
			all = append(all, base64Forms(alphabet, v, phase)...)
		}
	}
	return all
}

// base64Forms returns what base64 of a text shows of a value that starts at a phase
// of its groups of three bytes: the characters that the value alone decides and, for
// a value that ends the text, those up to the end, with and without padding.
func base64Forms(alphabet *base64.Encoding, v []byte, phase int) [][]byte {
	text := alphabet.EncodeToString(append(make([]byte, phase), v...))
	bits := 8 * (phase + len(v))
	start := (8*phase + 5) / 6 // the first character without a bit of what is before
	return [][]byte{
		[]byte(text[start : bits/6]),
		[]byte(text[start : (bits+5)/6]),
		[]byte(text[start:]),
	}
}
