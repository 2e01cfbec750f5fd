package canon

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// pass writes the canonical encoding of a value while it reads it, and builds
// nothing in between. It knows only yes and no: why something is refused, parse
// says. What it accepts, and what it makes of it, is exactly what parse and
// appendValue do, which a fuzz target holds it to.
type pass struct {
	in      []byte
	at      int // how much of in was read
	out     []byte
	members []span // of the objects that are open
	spare   []byte
}

// span is where a member is in the output of a pass.
type span struct {
	name, colon, end int
	plain            bool // nothing in the name is escaped
}

// direct is Canonicalize. False: b is refused.
func direct(b []byte) ([]byte, bool) {
	p := pass{in: b, out: make([]byte, 0, len(b))}
	if !p.value(0) {
		return nil, false
	}
	p.space()
	return p.out, p.at == len(b)
}

// peek returns the next byte that is not white space; 0: there is none.
func (p *pass) peek() byte {
	p.space()
	if p.at == len(p.in) {
		return 0
	}
	return p.in[p.at]
}

func (p *pass) space() {
	for p.at < len(p.in) {
		switch p.in[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

// copied takes one byte over.
func (p *pass) copied(c byte) {
	p.out = append(p.out, c)
	p.at++
}

func (p *pass) value(depth int) bool {
	switch p.peek() {
	case '{':
		return depth < MaxDepth && p.object(depth)
	case '[':
		return depth < MaxDepth && p.array(depth)
	case '"':
		_, ok := p.text()
		return ok
	case 't':
		return p.word("true")
	case 'f':
		return p.word("false")
	case 'n':
		return p.word("null")
	}
	return p.number()
}

func (p *pass) word(w string) bool {
	if !bytes.HasPrefix(p.in[p.at:], []byte(w)) {
		return false
	}
	p.out = append(p.out, w...)
	p.at += len(w)
	return true
}

func (p *pass) array(depth int) bool {
	p.copied('[')
	if p.peek() == ']' {
		p.copied(']')
		return true
	}
	for {
		if !p.value(depth + 1) {
			return false
		}
		switch p.peek() {
		case ',':
			p.copied(',')
		case ']':
			p.copied(']')
			return true
		default:
			return false
		}
	}
}

func (p *pass) object(depth int) bool {
	first, sorted := len(p.members), true
	p.copied('{')
	if p.peek() == '}' {
		p.copied('}')
		return true
	}
	if p.members == nil {
		p.members = make([]span, 0, 32) // more than most documents need at once
	}
	for {
		if p.peek() != '"' {
			return false
		}
		m := span{name: len(p.out)}
		var ok bool
		if m.plain, ok = p.text(); !ok || p.peek() != ':' {
			return false
		}
		m.colon = len(p.out)
		p.copied(':')
		n := len(p.members)
		if n > first && sorted {
			order := p.compare(p.members[n-1], m)
			if order == 0 {
				return false
			}
			sorted = order < 0
		}
		p.members = append(p.members, m)
		if !p.value(depth + 1) {
			return false
		}
		p.members[n].end = len(p.out)
		switch p.peek() {
		case ',':
			p.copied(',')
		case '}':
			ok = sorted || p.sort(p.members[first:])
			p.members = p.members[:first]
			p.copied('}')
			return ok
		default:
			return false
		}
	}
}

// sort puts the members that end the output in order. False: two are the same.
func (p *pass) sort(members []span) bool {
	from := members[0].name
	slices.SortFunc(members, p.compare)
	for i := 1; i < len(members); i++ {
		if p.compare(members[i-1], members[i]) == 0 {
			return false
		}
	}
	if p.spare == nil {
		p.spare = make([]byte, 0, len(p.in))
	}
	p.spare = append(p.spare[:0], p.out[from:]...)
	p.out = p.out[:from]
	for i, m := range members {
		if i > 0 {
			p.out = append(p.out, ',')
		}
		p.out = append(p.out, p.spare[m.name-from:m.end-from]...)
	}
	return true
}

// compare orders two names by UTF-16 code units.
func (p *pass) compare(x, y span) int {
	a, b := p.out[x.name+1:x.colon-1], p.out[y.name+1:y.colon-1]
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

// unit returns the first code unit of a canonical string, and how long it is
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

// short returns what a backslash and c stand for.
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

// text takes over a string, and reports whether nothing in it is escaped.
func (p *pass) text() (plain, ok bool) {
	p.copied('"')
	for plain = true; ; plain = false {
		n := bare(p.in[p.at:])
		p.out = append(p.out, p.in[p.at:p.at+n]...)
		if p.at += n; p.at == len(p.in) {
			return false, false
		}
		if p.in[p.at] == '"' {
			p.copied('"')
			return plain, true
		}
		r, n := char(p.in[p.at:])
		if n == 0 {
			return false, false
		}
		p.at += n
		p.out = appendRune(p.out, r)
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

// char reads a character of a string that does not stand for itself. 0: it is
// none.
func char(b []byte) (rune, int) {
	if b[0] < 0x20 {
		return 0, 0
	}
	if b[0] != '\\' {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return 0, 0
		}
		return r, n
	}
	if len(b) > 1 && b[1] != 'u' {
		r, ok := short(b[1])
		if !ok {
			return 0, 0
		}
		return r, 2
	}
	r, ok := escaped(b)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, ok := escaped(b[6:])
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// exactDigits is how many digits a whole number may have to be written as it is
// by everybody.
const exactDigits = 15

func (p *pass) number() bool {
	from := p.at
	if p.at < len(p.in) && p.in[p.at] == '-' {
		p.at++
	}
	zero := p.at < len(p.in) && p.in[p.at] == '0'
	n := p.digits()
	if n == 0 || zero && n > 1 {
		return false
	}
	whole := true
	if p.at < len(p.in) && p.in[p.at] == '.' {
		whole = false
		p.at++
		if p.digits() == 0 {
			return false
		}
	}
	if p.at < len(p.in) && p.in[p.at]|0x20 == 'e' {
		whole = false
		p.at++
		if p.at < len(p.in) && (p.in[p.at] == '+' || p.in[p.at] == '-') {
			p.at++
		}
		if p.digits() == 0 {
			return false
		}
	}
	if whole && n <= exactDigits && (!zero || p.in[from] == '0') {
		p.out = append(p.out, p.in[from:p.at]...)
		return true
	}
	f, err := parseNumber(string(p.in[from:p.at]))
	p.out = appendNumber(p.out, f)
	return err == nil
}

func (p *pass) digits() int {
	from := p.at
	for p.at < len(p.in) && p.in[p.at] >= '0' && p.in[p.at] <= '9' {
		p.at++
	}
	return p.at - from
}
