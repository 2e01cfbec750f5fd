package visibletext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns a JSON value with indented lines for the person who decides about it: its
// strings are decoded, and a character is escaped only if Reveal escapes it. The result is
// the same JSON value. What is no JSON is revealed as text.
func JSON(raw []byte) string {
	var indented bytes.Buffer
	if json.Indent(&indented, raw, "", "  ") != nil {
		return Reveal(string(raw))
	}
	var b strings.Builder
	rest := indented.String()
	for {
		before, after, found := strings.Cut(rest, `"`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('"')
		rest = literal(&b, after)
	}
}

// literal writes the string literal that s continues, and returns what follows it.
func literal(b *strings.Builder, s string) string {
	var text strings.Builder // decoded, until an escape that stays
	flush := func() {
		b.WriteString(Reveal(text.String()))
		text.Reset()
	}
	for {
		n := strings.IndexAny(s, `"\`) // the value is valid, so one follows
		text.WriteString(s[:n])
		if s = s[n:]; s[0] == '"' {
			flush()
			b.WriteByte('"')
			return s[1:]
		}
		if s[1] != 'u' {
			flush()
			b.WriteString(s[:2])
			s = s[2:]
			continue
		}
		r, size := unit(s), 6
		if utf16.IsSurrogate(r) {
			if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
				r, size = utf16.DecodeRune(r, unit(s[6:])), 12
			}
			if size == 6 || r == utf8.RuneError { // half of a pair
				r, size = -1, 6
			}
		}
		if r < ' ' || r == '"' || r == '\\' {
			flush()
			b.WriteString(s[:size])
		} else {
			text.WriteRune(r)
		}
		s = s[size:]
	}
}

// unit decodes \uXXXX, which s begins with.
func unit(s string) rune {
	var r rune
	for _, c := range []byte(s[2:6]) {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c | 0x20 - 'a' + 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

// Reveal shows text as people read it, in its script, and escapes as \uXXXX what hides in
// it: what Scanner does not show, tabs, marks on letters of ASCII, and in words with
// letters of ASCII the letters of scripts that look like them. Line ends stay.
func Reveal(s string) string {
	if ordinary(s) == len(s) {
		return s
	}
	var b strings.Builder
	var scan Scanner
	var mixed bool
	for left := 0; len(s) > 0; { // left is how much of a word is left, in bytes
		if left == 0 {
			if left = strings.IndexFunc(s, func(r rune) bool { return !inWord(r) }); left < 0 {
				left = len(s)
			}
			mixed = strings.ContainsFunc(s[:left], asciiLetter)
		}
		r, n := utf8.DecodeRuneInString(s)
		_, kind := scan.Next(s[:n] + joined(s[n:]))
		hidden := kind != Shown || r == '\t' || r == unicode.ReplacementChar || left > 0 && mixed && looksLatin(r) || fullWidth(r)
		switch {
		case kind == Raw:
			b.WriteString(`\ufffd`)
		case hidden:
			for _, u := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		default:
			b.WriteString(s[:n])
		}
		s, left = s[n:], max(0, left-n)
	}
	return b.String()
}

// joined is the character after a joiner, which Scanner looks at.
func joined(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

// inWord keeps marks and invisible characters within a word, so that none divides it.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || unicode.Is(unicode.M, r) || unicode.Is(unicode.Cf, r)
}

func asciiLetter(r rune) bool { return r < utf8.RuneSelf && unicode.IsLetter(r) }

// looksLatin reports a letter or mark that may be taken for one of ASCII, or a part of one,
// in a word with such letters. Scripts that write words without spaces between them, and
// whose letters look like no Latin ones, stay next to Latin words.
func looksLatin(r rune) bool {
	return r >= utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r)) &&
		!unicode.In(r, unicode.Latin, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) &&
		r != '\u30fc' // the mark of a long vowel in Hiragana and Katakana
}

// fullWidth reports a letter or digit that is one of ASCII in another form.
func fullWidth(r rune) bool {
	return r >= 0xff10 && r <= 0xff5a && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r >= 0x1d400 && r <= 0x1d7ff
}

// Quote is Reveal for a text on one line, in quotes.
func Quote(s string) string {
	return `"` + strings.NewReplacer("\n", `\n`).Replace(Reveal(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s))) + `"`
}
