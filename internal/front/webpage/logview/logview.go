// Package logview keeps the log of an attempt as lines: numbered from 1, in windows of
// any place, with a search over all of them. A line is of the agent, of the verify
// command, or says that bytes were not kept; nothing that an agent writes makes its line
// one of another kind.
//
// Logs were written by others. Work and memory are bounded by what was appended, a line
// that is shown has at most MaxLine bytes, and a search stops at a number of hits.
package logview

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

const (
	// MaxLine is how many bytes of a line are shown.
	MaxLine = 4096
	// MaxWindow is how many lines a window has.
	MaxWindow = 2000
	// MaxHits is how many lines a search returns.
	MaxHits = 1000
	// MaxQuery is how many bytes a search text has.
	MaxQuery = 1000
	// MaxLog is how many bytes of a log are kept. What comes after is counted.
	MaxLog = 64 << 20
	// maxLines bounds the index of a log that has little but line ends.
	maxLines = 4 << 20
)

// Kind says who wrote a line.
type Kind string

// The kinds.
const (
	KindAgent  Kind = "agent"
	KindVerify Kind = "verify" // the verify command, after the agent had ended
	KindGap    Kind = "gap"    // nobody: bytes that were not kept
)

// span is a run of lines of one kind.
type span struct {
	first int // number of its first line, from 0
	kind  Kind
	gap   int64 // of KindGap, one line: bytes that were not kept
}

// Log is the lines of a log. The zero value is an empty log.
type Log struct {
	text    []byte // without the gaps
	starts  []int  // where each line begins in text
	spans   []span
	next    int64 // offset of the next chunk, if nothing is missing
	open    bool  // the last line has no end yet
	dropped int64 // bytes beyond MaxLog
	ended   bool
}

// Line is a line as shown.
type Line struct {
	Number int    `json:"n"` // from 1
	Kind   Kind   `json:"kind"`
	Parts  []Part `json:"parts,omitempty"`
	Cut    int    `json:"cut,omitempty"` // bytes that are not shown
}

// Append adds the next chunk. A chunk that begins before the end of the last one, as
// after a repeated request, adds what is new.
func (l *Log) Append(c api.Chunk) {
	l.ended = l.ended || c.Ended
	if seen := l.next - c.Offset; seen > 0 {
		c.Data = c.Data[min(seen, int64(len(c.Data))):]
		c.Offset = l.next
	}
	if gap := c.Offset - l.next; gap > 0 {
		l.note(gap)
		l.next = c.Offset
	}
	if len(c.Data) == 0 {
		return
	}
	l.next = c.Offset + int64(len(c.Data))
	kind := KindAgent
	if c.Verify {
		kind = KindVerify
	}
	for data := c.Data; len(data) > 0; {
		n := bytes.IndexByte(data, '\n') + 1
		if n == 0 {
			n = len(data)
		}
		if len(l.text)+n > MaxLog || len(l.starts) >= maxLines {
			l.dropped += int64(len(data))
			return
		}
		if last := len(l.spans) - 1; last < 0 || l.spans[last].kind != kind {
			l.spans, l.open = append(l.spans, span{first: len(l.starts), kind: kind}), false
		}
		if !l.open {
			l.starts = append(l.starts, len(l.text))
		}
		l.text, l.open = append(l.text, data[:n]...), data[n-1] != '\n'
		data = data[n:]
	}
}

// note adds a line that says how many bytes were not kept.
func (l *Log) note(gap int64) {
	if len(l.starts) >= maxLines {
		l.dropped += gap
		return
	}
	l.spans = append(l.spans, span{first: len(l.starts), kind: KindGap, gap: gap})
	l.starts, l.open = append(l.starts, len(l.text)), false
}

// Next is the offset at which the log continues.
func (l *Log) Next() int64 { return l.next }

// Ended reports whether the log is complete.
func (l *Log) Ended() bool { return l.ended }

// Lines is how many lines there are.
func (l *Log) Lines() int { return len(l.starts) }

// Size is the memory that the log takes, in bytes, about.
func (l *Log) Size() int { return cap(l.text) + 8*cap(l.starts) }

// Dropped is how many bytes there are beyond MaxLog, which only the raw log has.
func (l *Log) Dropped() int64 { return l.dropped }

// raw is a line without its end.
func (l *Log) raw(i int) []byte {
	end := len(l.text)
	if i+1 < len(l.starts) {
		end = l.starts[i+1]
	}
	return bytes.TrimSuffix(l.text[l.starts[i]:end], []byte("\n"))
}

// spanOf is the span of a line.
func (l *Log) spanOf(i int) span {
	return l.spans[sort.Search(len(l.spans), func(k int) bool { return l.spans[k].first > i })-1]
}

// Window returns up to count lines from a number on.
func (l *Log) Window(from, count int) []Line {
	list := []Line{}
	for i := max(from, 1) - 1; i < len(l.starts) && len(list) < min(count, MaxWindow); i++ {
		list = append(list, l.line(i))
	}
	return list
}

func (l *Log) line(i int) Line {
	s := l.spanOf(i)
	if s.kind == KindGap {
		return Line{Number: i + 1, Kind: KindGap, Parts: parts(fmt.Sprintf("%d bytes were not kept", s.gap))}
	}
	text := l.raw(i)
	shown := cuttext.Within(text, MaxLine)
	return Line{Number: i + 1, Kind: s.kind, Parts: parts(string(shown)), Cut: len(text) - len(shown)}
}

// Hits are the lines that a search found.
type Hits struct {
	Numbers []int `json:"numbers"`        // ascending
	Next    int   `json:"next,omitempty"` // line to search from for further ones; 0: that is all
}

// Find returns the lines from a number on that contain a text, with letters of ASCII in
// either case. U+ and four to six hexadecimal digits in the text is that character.
// Lines about gaps are not searched.
func (l *Log) Find(text string, from int) Hits {
	hits := Hits{Numbers: []int{}}
	want := lower(nil, []byte(spelled(text)))
	if len(want) == 0 || len(want) > MaxQuery {
		return hits
	}
	var buf []byte
	for i := max(from, 1) - 1; i < len(l.starts); i++ {
		buf = lower(buf[:0], l.raw(i))
		if !bytes.Contains(buf, want) || l.spanOf(i).kind == KindGap {
			continue
		}
		if len(hits.Numbers) == MaxHits {
			hits.Next = i + 1
			break
		}
		hits.Numbers = append(hits.Numbers, i+1)
	}
	return hits
}

// lower appends text with its capitals of ASCII in lower case.
func lower(to, text []byte) []byte {
	for _, c := range text {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		to = append(to, c)
	}
	return to
}

// spelled replaces U+XXXX by the character, as lines show it.
func spelled(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "U+")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		n := 0
		for n < len(after) && n < 6 && strings.IndexByte("0123456789ABCDEF", after[n]) >= 0 {
			n++
		}
		if v, err := strconv.ParseUint(after[:n], 16, 32); err == nil && n >= 4 && utf8.ValidRune(rune(v)) { //nolint:gosec // G115: at most 24 bits
			b.WriteRune(rune(v)) //nolint:gosec // G115: at most 24 bits
		} else {
			b.WriteString("U+" + after[:n])
		}
		text = after[n:]
	}
}
