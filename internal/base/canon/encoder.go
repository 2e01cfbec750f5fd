package canon

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// encoder writes the canonical encoding of a value while it reads it, without
// building the value. Its methods report whether the input was accepted; if
// not, err says why.
type encoder struct {
	in      []byte
	at      int // bytes of in that were read
	out     []byte
	members []span // of the open objects
	spare   []byte
	err     error
}

// span is the place of a member in the output.
type span struct {
	name, colon, end int
	plain            bool // the name has no escapes
}

func (e *encoder) fail(format string, args ...any) bool {
	e.err = fmt.Errorf(format, args...)
	return false
}

// unexpected refuses the next byte, or the end of the input.
func (e *encoder) unexpected(want string) bool {
	if e.at >= len(e.in) {
		return e.fail("unexpected end of JSON")
	}
	if r, n := utf8.DecodeRune(e.in[e.at:]); r == utf8.RuneError && n == 1 {
		return e.fail("not valid UTF-8 at byte %d", e.at)
	}
	return e.fail("unexpected character %q at byte %d, want %s", e.in[e.at:e.at+1], e.at, want)
}

// peek returns the next byte that is not white space; 0 at the end.
func (e *encoder) peek() byte {
	e.space()
	if e.at == len(e.in) {
		return 0
	}
	return e.in[e.at]
}

func (e *encoder) space() {
	for e.at < len(e.in) {
		switch e.in[e.at] {
		case ' ', '\t', '\r', '\n':
			e.at++
		default:
			return
		}
	}
}

// copyByte reads c and writes it.
func (e *encoder) copyByte(c byte) {
	e.out = append(e.out, c)
	e.at++
}

func (e *encoder) value(depth int) bool {
	switch c := e.peek(); c {
	case '{', '[':
		if depth == MaxDepth {
			return e.fail("nested deeper than %d", MaxDepth)
		}
		if c == '{' {
			return e.object(depth)
		}
		return e.array(depth)
	case '"':
		_, ok := e.text()
		return ok
	case 't':
		return e.word("true")
	case 'f':
		return e.word("false")
	case 'n':
		return e.word("null")
	}
	return e.number()
}

func (e *encoder) word(w string) bool {
	if !bytes.HasPrefix(e.in[e.at:], []byte(w)) {
		return e.unexpected(w)
	}
	e.out = append(e.out, w...)
	e.at += len(w)
	return true
}

func (e *encoder) array(depth int) bool {
	e.copyByte('[')
	if e.peek() == ']' {
		e.copyByte(']')
		return true
	}
	for {
		if !e.value(depth + 1) {
			return false
		}
		switch e.peek() {
		case ',':
			e.copyByte(',')
		case ']':
			e.copyByte(']')
			return true
		default:
			return e.unexpected("a comma or ]")
		}
	}
}

func (e *encoder) object(depth int) bool {
	first, sorted := len(e.members), true
	e.copyByte('{')
	if e.peek() == '}' {
		e.copyByte('}')
		return true
	}
	if e.members == nil {
		e.members = make([]span, 0, 32) // enough for most documents
	}
	for {
		if e.peek() != '"' {
			return e.unexpected("the name of a member")
		}
		m := span{name: len(e.out)}
		var ok bool
		if m.plain, ok = e.text(); !ok {
			return false
		}
		if e.peek() != ':' {
			return e.unexpected("a colon")
		}
		m.colon = len(e.out)
		e.copyByte(':')
		n := len(e.members)
		if n > first && sorted {
			order := e.compare(e.members[n-1], m)
			if order == 0 {
				return e.duplicate(m)
			}
			sorted = order < 0
		}
		e.members = append(e.members, m)
		if !e.value(depth + 1) {
			return false
		}
		e.members[n].end = len(e.out)
		switch e.peek() {
		case ',':
			e.copyByte(',')
		case '}':
			ok = sorted || e.sort(e.members[first:])
			e.members = e.members[:first]
			e.copyByte('}')
			return ok
		default:
			return e.unexpected("a comma or }")
		}
	}
}

// duplicate refuses a member whose name was seen before in its object.
func (e *encoder) duplicate(m span) bool {
	name := string(e.out[m.name:m.colon])
	if decoded, err := strconv.Unquote(name); err == nil { // all but surrogate pairs
		name = strconv.Quote(decoded)
	}
	e.err = &ContentError{"a duplicate member", "duplicate member " + name}
	return false
}

// sort puts the members at the end of the output in order and refuses
// duplicates.
func (e *encoder) sort(members []span) bool {
	from := members[0].name
	slices.SortFunc(members, e.compare)
	for i := 1; i < len(members); i++ {
		if e.compare(members[i-1], members[i]) == 0 {
			return e.duplicate(members[i])
		}
	}
	if e.spare == nil {
		e.spare = make([]byte, 0, len(e.in))
	}
	e.spare = append(e.spare[:0], e.out[from:]...)
	e.out = e.out[:from]
	for i, m := range members {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		e.out = append(e.out, e.spare[m.name-from:m.end-from]...)
	}
	return true
}

// compare orders two names by UTF-16 code units.
func (e *encoder) compare(x, y span) int {
	a, b := e.out[x.name+1:x.colon-1], e.out[y.name+1:y.colon-1]
	if x.plain && y.plain {
		return bytes.Compare(a, b)
	}
	for len(a) > 0 && len(b) > 0 {
		u, n := unit(a)
		v, m := unit(b)
		if u != v {
			return cmp.Compare(u, v)
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}

// unit returns the first UTF-16 code unit of a canonical string, and its length
// there.
func unit(b []byte) (rune, int) {
	if b[0] != '\\' {
		return rune(b[0]), 1
	}
	if b[1] == 'u' {
		r, _ := escaped(b)
		return r, 6
	}
	r, _ := short(b[1])
	return r, 2
}

// short returns the character that a backslash and c stand for.
func short(c byte) (rune, bool) {
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	}
	return 0, false
}

// text copies a string, and reports whether it has no escapes.
func (e *encoder) text() (plain, ok bool) {
	e.copyByte('"')
	for plain = true; ; plain = false {
		n := bare(e.in[e.at:])
		e.out = append(e.out, e.in[e.at:e.at+n]...)
		if e.at += n; e.at == len(e.in) {
			return false, e.unexpected("")
		}
		if e.in[e.at] == '"' {
			e.copyByte('"')
			return plain, true
		}
		r, n, err := char(e.in[e.at:])
		if err != nil {
			return false, e.fail("%w at byte %d", err, e.at)
		}
		e.at += n
		e.out = appendRune(e.out, r)
	}
}

// bare counts the characters at the start of b that stand for themselves.
func bare(b []byte) int {
	n := 0
	// Eight at a time: a byte is special if it is less than a space, a quotation
	// mark, a backslash, or has its highest bit when one is added (DEL and beyond).
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; n+8 <= len(b); n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// A borrow from one byte to the next can only begin in a special one.
		if ((x-ones*0x20)|(quote-ones)|(slash-ones)|(x+ones)|x)&tops != 0 {
			break
		}
	}
	for n < len(b) && b[n] >= 0x20 && b[n] < 0x7f && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// char reads a character of a string that does not stand for itself, and
// returns its length in b.
func char(b []byte) (rune, int, error) {
	if b[0] < 0x20 {
		return 0, 0, errors.New("control character in a string")
	}
	if b[0] != '\\' {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return 0, 0, errors.New("not valid UTF-8")
		}
		return r, n, nil
	}
	if len(b) > 1 && b[1] != 'u' {
		if r, ok := short(b[1]); ok {
			return r, 2, nil
		}
		return 0, 0, errors.New("invalid escape")
	}
	r, ok := escaped(b)
	if !ok {
		return 0, 0, errors.New("invalid escape")
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, nil
	}
	low, ok := escaped(b[6:])
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0, errors.New("lone surrogate")
	}
	return r, 12, nil
}

// exactDigits is how many digits a whole number may have to be copied without
// conversion: every float64 prints so many as they are.
const exactDigits = 15

func (e *encoder) number() bool {
	from := e.at
	if e.at < len(e.in) && e.in[e.at] == '-' {
		e.at++
	}
	zero := e.at < len(e.in) && e.in[e.at] == '0'
	n := e.digits()
	if n == 0 {
		return e.unexpected("a value")
	}
	if zero && n > 1 {
		return e.fail("number with a leading zero at byte %d", from)
	}
	whole := true
	if e.at < len(e.in) && e.in[e.at] == '.' {
		whole = false
		e.at++
		if e.digits() == 0 {
			return e.unexpected("a digit")
		}
	}
	if e.at < len(e.in) && e.in[e.at]|0x20 == 'e' {
		whole = false
		e.at++
		if e.at < len(e.in) && (e.in[e.at] == '+' || e.in[e.at] == '-') {
			e.at++
		}
		if e.digits() == 0 {
			return e.unexpected("a digit")
		}
	}
	if whole && n <= exactDigits && (!zero || e.in[from] == '0') {
		e.out = append(e.out, e.in[from:e.at]...)
		return true
	}
	f, err := parseNumber(string(e.in[from:e.at]))
	if e.err = err; err != nil {
		return false
	}
	e.out = appendNumber(e.out, f)
	return true
}

func (e *encoder) digits() int {
	from := e.at
	for e.at < len(e.in) && e.in[e.at] >= '0' && e.in[e.at] <= '9' {
		e.at++
	}
	return e.at - from
}
