// Package visibletext tells which characters of text that others wrote can be shown as they
// are, on a terminal and on a page. It is the one home of that rule; how a character
// that cannot is written instead depends on where it is shown.
//
// It reads nothing and keeps nothing, and works in time that is linear in the text.
package visibletext

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Kind says how a piece of text may be shown.
type Kind int

const (
	Shown  Kind = iota // it can be shown as it is
	Hidden             // one character that would hide, move or command something
	Raw                // one byte that is not UTF-8
)

// MaxMarks is how many combining marks a character may carry. Scripts need up to
// four; more would reach into the lines above.
const MaxMarks = 4

// Scanner is what the text so far means for the text that follows. The zero value is
// ready for the start of a line.
type Scanner struct {
	within bool // the line has a character that a combining mark can stand on
	marks  int  // marks of that character so far
	symbol bool // that character is a symbol that a joiner can join with the next
}

// Next returns how many bytes of s its first piece has, and its kind. s is not empty.
// Line ends and tabs are shown as they are: what they mean is up to the caller.
func (p *Scanner) Next(s string) (int, Kind) {
	if n := ordinary(s); n > 0 {
		*p = Scanner{within: true}
		return n, Shown
	}
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n == 1:
		*p = Scanner{within: true}
		return n, Raw
	case r == joiner && p.symbol && symbolic(s[n:]) || p.harmless(r):
		return n, Shown
	}
	*p = Scanner{within: true}
	return n, Hidden
}

// joiner joins two symbols to one, such as the people of a family.
const joiner = '\u200d'

// symbolic reports whether s begins with a symbol that people take for a picture.
func symbolic(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return r >= 0x2000 && (unicode.Is(unicode.So, r) || skin(r))
}

// skin reports the tone of the skin of the symbol before it.
func skin(r rune) bool { return r >= 0x1f3fb && r <= 0x1f3ff }

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
func (p *Scanner) harmless(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		*p = Scanner{}
		return true
	case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
		p.marks++
		// Invisible characters can hide text from the reader. The two selectors
		// between text and emoji style are in common use and allowed.
		unseen := unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && r != 0xfe0e && r != 0xfe0f
		return p.within && p.marks <= MaxMarks && !unseen
	case unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return false
	case unicode.IsPrint(r):
		*p = Scanner{within: true, symbol: symbolic(string(r))}
		return true
	}
	return false
}

// Part is a piece of a line: text that is shown as it is, or the number of a character
// that is not.
type Part struct {
	Text   string `json:"text"`             // as shown: U+202E, or 0xFF of a byte that is not UTF-8
	Hidden string `json:"hidden,omitempty"` // what the character is, in words; empty: Text is the text itself
}

// Parts splits a line for a page. Adjacent text is one part.
func Parts(s string) []Part {
	var parts []Part
	var scan Scanner
	for start, at := 0, 0; at < len(s); {
		n, kind := scan.Next(s[at:])
		at += n
		if kind != Shown {
			if before := s[start : at-n]; before != "" {
				parts = append(parts, Part{Text: before})
			}
			parts, start = append(parts, part(s[at-n:at], kind)), at
		} else if at == len(s) {
			parts = append(parts, Part{Text: s[start:]})
		}
	}
	return parts
}

func part(s string, kind Kind) Part {
	if kind == Raw {
		return Part{fmt.Sprintf("0x%02X", s[0]), "a byte that is not UTF-8"}
	}
	r, _ := utf8.DecodeRuneInString(s)
	return Part{fmt.Sprintf("U+%04X", r), Name(r)}
}

// Name says in words what a character is that is not shown as it is.
func Name(r rune) string {
	switch {
	case r == 0x1b:
		return "escape, which commands a terminal"
	case r == '\r':
		return "carriage return"
	case unicode.Is(unicode.Bidi_Control, r):
		return "a character that changes the direction of writing"
	case unicode.IsControl(r):
		return "a control character"
	case unicode.Is(unicode.M, r):
		return "a combining mark"
	case unicode.IsSpace(r):
		return "an unusual space"
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Cf):
		return "an invisible character"
	}
	return "a character that cannot be printed"
}
