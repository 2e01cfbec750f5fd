package redact

import (
	"html"
	"unicode/utf16"
	"unicode/utf8"
)

// symbol is a byte of a view, with the part of the stream that it comes from.
type symbol struct {
	b byte
	span
}

// sink takes the symbols of a view in order.
type sink interface{ take(s symbol) }

// views returns what looks at a stream:
//
//	the text itself
//	percent-decoded
//	with its HTML entities decoded
//	unescaped as JSON once, also with HTML entities decoded, and twice
//	the last without white space and colons
func views(a *automaton, found func(span)) ([]*stage, []*matcher) {
	var matchers []*matcher
	matching := func() *matcher {
		m := newMatcher(a, found)
		matchers = append(matchers, m)
		return m
	}
	twice := &stage{decode: unescape, starts: starts('\\'), to: []sink{matching(), &squeezer{to: matching()}}}
	within := &stage{decode: unentity, starts: starts('&'), to: []sink{matching()}}
	once := &stage{decode: unescape, starts: starts('\\'), to: []sink{matching(), twice, within}}
	entities := &stage{decode: unentity, starts: starts('&'), to: []sink{matching()}}
	percent := &stage{decode: unpercent, starts: starts('%'), to: []sink{matching()}}
	plain := &stage{to: []sink{matching(), percent, entities, once}}
	return []*stage{plain, percent, entities, once, within, twice}, matchers
}

// stage turns one view into the next one.
type stage struct {
	decode  func(pending []symbol, end bool) (taken int, out []byte)
	starts  [256]bool // bytes that decode has to see first
	to      []sink
	pending []symbol // taken, not yet decoded
}

func starts(b byte) (set [256]bool) {
	set[b] = true
	return set
}

func (s *stage) take(sym symbol) {
	if len(s.pending) == 0 && !s.starts[sym.b] {
		s.pass(sym)
		return
	}
	s.pending = append(s.pending, sym)
	s.drain(false)
}

// drain decodes the pending bytes that are decided.
func (s *stage) drain(end bool) {
	for len(s.pending) > 0 {
		if !s.starts[s.pending[0].b] {
			s.pass(s.pending[0])
			s.pending = append(s.pending[:0], s.pending[1:]...)
			continue
		}
		n, out := s.decode(s.pending, end)
		if n == 0 {
			return
		}
		whole := span{s.pending[0].start, s.pending[n-1].end}
		for _, b := range out {
			s.pass(symbol{b, whole})
		}
		s.pending = append(s.pending[:0], s.pending[n:]...)
	}
}

func (s *stage) pass(sym symbol) {
	for _, to := range s.to {
		to.take(sym)
	}
}

// end decodes what is left at the end of the stream.
func (s *stage) end() { s.drain(true) }

func (s *stage) held(end int64) int64 {
	if len(s.pending) > 0 {
		return s.pending[0].start
	}
	return end
}

// literal is a decode of one symbol to itself.
func literal(p []symbol) (int, []byte) { return 1, []byte{p[0].b} }

// unpercent decodes %XX.
func unpercent(p []symbol, end bool) (int, []byte) {
	switch v, n, ok := hexValue(p[1:], 2); {
	case ok:
		return 3, []byte{byte(v)} //nolint:gosec // G115: two digits
	case n == len(p)-1 && !end: // all of it digits, and too few
		return 0, nil
	}
	return literal(p)
}

// maxEntity bounds the bytes of an HTML entity, from & to ;. Those of ASCII characters
// are shorter.
const maxEntity = 12

// unentity decodes an HTML entity, such as &amp;, &#43; or &#x2b;.
func unentity(p []symbol, end bool) (int, []byte) {
	var text [maxEntity]byte
	for i := range min(len(p), maxEntity) {
		b := p[i].b
		switch text[i] = b; {
		case b == ';':
			entity := string(text[:i+1])
			if out := html.UnescapeString(entity); out != entity {
				return i + 1, []byte(out)
			}
			return literal(p)
		case i > 0 && b != '#' && (b < '0' || b > '9') && (b|0x20 < 'a' || b|0x20 > 'z'):
			return literal(p)
		}
	}
	if len(p) < maxEntity && !end {
		return 0, nil
	}
	return literal(p)
}

// hexValue reads n hexadecimal digits. It returns how many there are.
func hexValue(p []symbol, n int) (v rune, digits int, ok bool) {
	for digits < min(n, len(p)) {
		b := p[digits].b
		switch {
		case '0' <= b && b <= '9':
			v = v<<4 | rune(b-'0')
		case 'a' <= b|0x20 && b|0x20 <= 'f':
			v = v<<4 | rune(b|0x20-'a'+10)
		default:
			return v, digits, false
		}
		digits++
	}
	return v, digits, digits == n
}

// unescape decodes an escape of a JSON string or \xXX.
func unescape(p []symbol, end bool) (int, []byte) {
	if len(p) == 1 {
		if end {
			return literal(p)
		}
		return 0, nil
	}
	switch p[1].b {
	case '"', '\\', '/', '\'':
		return 2, []byte{p[1].b}
	case 'b':
		return 2, []byte{'\b'}
	case 'f':
		return 2, []byte{'\f'}
	case 'n':
		return 2, []byte{'\n'}
	case 'r':
		return 2, []byte{'\r'}
	case 't':
		return 2, []byte{'\t'}
	case 'x':
		return unescapeHex(p, 2, end, func(v rune) (int, []byte) { return 4, []byte{byte(v)} }) //nolint:gosec // G115: two digits
	case 'u':
		return unescapeHex(p, 4, end, func(v rune) (int, []byte) {
			if utf16.IsSurrogate(v) {
				return unescapePair(p, v, end)
			}
			return 6, utf8.AppendRune(nil, v)
		})
	}
	return literal(p)
}

// unescapeHex decodes an escape of n digits.
func unescapeHex(p []symbol, n int, end bool, decoded func(rune) (int, []byte)) (int, []byte) {
	switch v, digits, ok := hexValue(p[2:], n); {
	case ok:
		return decoded(v)
	case digits == len(p)-2 && !end:
		return 0, nil
	}
	return literal(p)
}

// unescapePair decodes \uXXXX\uXXXX, the two halves of one character.
func unescapePair(p []symbol, high rune, end bool) (int, []byte) {
	const one = len(`\uXXXX`)
	rest := p[one:]
	for i, want := range []byte(`\u`) {
		if i == len(rest) && !end {
			return 0, nil
		}
		if i == len(rest) || rest[i].b != want {
			return one, utf8.AppendRune(nil, high)
		}
	}
	low, digits, ok := hexValue(rest[2:], 4)
	if !ok && digits == len(rest)-2 && !end {
		return 0, nil
	}
	if r := utf16.DecodeRune(high, low); ok && r != utf8.RuneError {
		return 2 * one, utf8.AppendRune(nil, r)
	}
	return one, utf8.AppendRune(nil, high)
}

// maxGap is how much white space may be within an encoded value. It bounds how much
// text a Writer holds back.
const maxGap = 16

// squeezer drops what tools put between groups of digits and at the ends of lines.
type squeezer struct {
	gap int // length of the current one
	to  sink
}

func (s *squeezer) take(sym symbol) {
	switch sym.b {
	case ' ', '\t', '\r', '\n', ':':
		if s.gap++; s.gap == maxGap+1 {
			s.to.take(symbol{0, sym.span}) // no encoded form has it
		}
	default:
		s.gap = 0
		s.to.take(sym)
	}
}

// matcher finds needles in a view.
type matcher struct {
	auto  *automaton
	found func(span)
	at    int32
	count int     // of symbols since the root
	from  []int64 // where the last symbols start, a ring
}

func newMatcher(a *automaton, found func(span)) *matcher {
	size := 1
	for size < a.longest {
		size *= 2
	}
	return &matcher{auto: a, found: found, from: make([]int64, size)}
}

func (m *matcher) take(s symbol) {
	if m.at == 0 && m.auto.first[s.b] == 0 {
		return
	}
	m.at = m.auto.step(m.at, s.b)
	if m.at == 0 {
		return
	}
	m.from[m.count&(len(m.from)-1)] = s.start
	m.count++
	if n := m.auto.nodes[m.at].match; n > 0 {
		m.found(span{m.start(n), s.end})
	}
}

// start returns where the n-th last symbol starts.
func (m *matcher) start(n int32) int64 { return m.from[(m.count-int(n))&(len(m.from)-1)] }

func (m *matcher) held(end int64) int64 {
	if d := m.auto.nodes[m.at].depth; d > 0 {
		return m.start(d)
	}
	return end
}
