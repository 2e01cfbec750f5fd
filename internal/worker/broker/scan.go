package broker

import "bytes"

// pattern is a text that scan looks for: fixed bytes, then a number of lower-case
// hexadecimal digits.
type pattern struct {
	fixed  string
	digits int
}

func (p *pattern) len() int { return len(p.fixed) + p.digits }

// at reports whether c can be byte i of the text.
func (p *pattern) at(i int, c byte) bool {
	if i < len(p.fixed) {
		return p.fixed[i] == c
	}
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
}

// scan finds patterns in a stream, each plain, with any of its bytes escaped as in a
// URL or in JSON, as hexadecimal digits, and in base64 at any alignment in both
// alphabets, the last two also with line breaks. Anything else, such as two
// encodings in a row, passes: see docs/threats.md.
type scan struct {
	patterns []pattern
	starts   [256][]start // by the byte with which a form begins
}

// start is a form of a pattern.
type start struct {
	pattern int // its index
	match   func(p *pattern, data []byte) (n int, text string)
}

func newScan(patterns []pattern) *scan {
	s := &scan{patterns: patterns}
	for i := range patterns {
		first := patterns[i].fixed[0]
		add := func(c byte, match func(*pattern, []byte) (int, string)) {
			s.starts[c] = append(s.starts[c], start{i, match})
		}
		add(first, (*pattern).plain)
		add(first, (*pattern).escaped)
		add('%', (*pattern).escaped)
		add('\\', (*pattern).escaped)
		for c := range 256 {
			if unhex(byte(c)) == int(first>>4) {
				add(byte(c), (*pattern).hex)
			}
			for known, match := range alignments() {
				if v := base64Value(byte(c)); v >= 0 && firstFits(first, known, v) {
					add(byte(c), match)
				}
			}
		}
	}
	return s
}

// hit is a pattern that was found.
type hit struct {
	start, end int    // of its encoded form
	text       string // decoded
	pattern    int    // its index
}

// next scans data, the beginning of the rest of a stream; final says that nothing
// follows. The first safe bytes are no part of a match. If found is nil, the others
// may be the start of one; otherwise it starts behind them.
func (s *scan) next(data []byte, final bool) (safe int, found *hit) {
	cut := false
	for i, b := range data {
		for _, f := range s.starts[b] {
			switch n, text := f.match(&s.patterns[f.pattern], data[i:]); {
			case n > 0:
				return i, &hit{i, i + n, text, f.pattern}
			case n == partial && !final:
				cut = true
			}
		}
		if cut {
			return i, nil
		}
	}
	return len(data), nil
}

// partial is the length of a form that the end of the data cuts off.
const partial = -1

// Each form returns its length at the start of data, and what it encodes; 0 is no
// match.

func (p *pattern) plain(data []byte) (int, string) {
	for i := range p.len() {
		switch {
		case i == len(data):
			return partial, ""
		case !p.at(i, data[i]):
			return 0, ""
		}
	}
	return p.len(), string(data[:p.len()])
}

// escaped matches bytes that stand for themselves, are %XX or + of URLs, or escapes
// of JSON strings.
func (p *pattern) escaped(data []byte) (int, string) {
	text, at := make([]byte, 0, 64), 0
	for i := range p.len() {
		if at == len(data) {
			return partial, ""
		}
		c, n := unescape(data[at:])
		switch {
		case n == partial && !p.at(i, data[at]):
			return partial, ""
		case n > 0 && p.at(i, c):
		case p.at(i, data[at]):
			c, n = data[at], 1
		case p.at(i, ' ') && data[at] == '+':
			c, n = ' ', 1
		default:
			return 0, ""
		}
		text, at = append(text, c), at+n
	}
	return at, string(text)
}

// unescape returns the byte that the escape at the start of data stands for, and its
// length; 0 is no escape.
func unescape(data []byte) (c byte, n int) {
	digits := func(from, to int) (byte, int) {
		if len(data) < to {
			return 0, partial
		}
		high, low := unhex(data[from]), unhex(data[from+1])
		if high < 0 || low < 0 {
			return 0, 0
		}
		return byte(high<<4 | low), to //nolint:gosec // two digits
	}
	switch {
	case data[0] == '%':
		return digits(1, 3)
	case data[0] != '\\':
		return 0, 0
	case len(data) == 1:
		return 0, partial
	case data[1] == 'x':
		return digits(2, 4)
	case data[1] != 'u':
		if i := bytes.IndexByte([]byte(`nrtbf"\/`), data[1]); i >= 0 {
			return "\n\r\t\b\f\"\\/"[i], 2
		}
		return 0, 0
	case !bytes.HasPrefix([]byte("00"), data[2:min(len(data), 4)]):
		return 0, 0
	}
	return digits(4, 6)
}

// hex matches two hexadecimal digits for each byte.
func (p *pattern) hex(data []byte) (int, string) {
	text, at := make([]byte, 0, 64), 0
	for i := range p.len() {
		var pair [2]int
		for j := range pair {
			if j+i > 0 {
				at += lineBreak(data[at:])
			}
			if at == len(data) {
				return partial, ""
			}
			pair[j] = unhex(data[at])
			if pair[j] < 0 {
				return 0, ""
			}
			at++
		}
		c := byte(pair[0]<<4 | pair[1]) //nolint:gosec // two digits
		if !p.at(i, c) {
			return 0, ""
		}
		text = append(text, c)
	}
	return at, string(text)
}

// alignments lists the forms in base64 by how many bits of a text precede its first
// whole digit.
func alignments() map[int]func(*pattern, []byte) (int, string) {
	return map[int]func(*pattern, []byte) (int, string){
		0: func(p *pattern, d []byte) (int, string) { return p.base64(d, 0) },
		2: func(p *pattern, d []byte) (int, string) { return p.base64(d, 2) },
		4: func(p *pattern, d []byte) (int, string) { return p.base64(d, 4) },
	}
}

// firstFits reports whether v can be the first whole digit of a text that begins with
// first, behind the known bits of first.
func firstFits(first byte, known, v int) bool {
	if known > 2 { // it has bits of the second byte
		return v>>(known-2) == int(first)&(1<<(8-known)-1)
	}
	return v == int(first)<<known>>2&0x3f
}

// base64 matches base64 digits. The first one stands for the six bits of the text
// behind its first known bits. The digit before, which the known bits share with what
// precedes the text, is not compared.
func (p *pattern) base64(data []byte, known int) (int, string) {
	text, at := make([]byte, 0, 64), 0
	bits, have := uint(p.fixed[0])>>(8-known), known
	for len(text) < p.len() {
		if at > 0 {
			at += lineBreak(data[at:])
		}
		if at == len(data) {
			return partial, ""
		}
		v := base64Value(data[at])
		if v < 0 {
			return 0, ""
		}
		at++
		bits, have = bits<<6|uint(v), have+6
		if have < 8 {
			continue
		}
		have -= 8
		c := byte(bits >> have) //nolint:gosec // the lower bits are meant
		if !p.at(len(text), c) {
			return 0, ""
		}
		text = append(text, c)
	}
	return at, string(text)
}

// base64Value returns the value of a digit of either alphabet, or -1.
func base64Value(c byte) int {
	switch {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26
	case '0' <= c && c <= '9':
		return int(c-'0') + 52
	case c == '+' || c == '-':
		return 62
	case c == '/' || c == '_':
		return 63
	}
	return -1
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// lineBreak returns the length of the line break at the start of data, or 0.
func lineBreak(data []byte) (n int) {
	for n < min(len(data), 2) && (data[n] == '\n' || data[n] == '\r') {
		n++
	}
	return n
}
