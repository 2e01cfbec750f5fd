package logview

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// text is a line as a reader sees it.
func text(l Line) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s ", l.Number, l.Kind)
	for _, p := range l.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

func texts(lines []Line) (list []string) {
	for _, l := range lines {
		list = append(list, text(l))
	}
	return list
}

// Lines keep their numbers however the log arrives, and say who wrote them.
func TestLinesAreNumberedAndSayWhoWroteThem(t *testing.T) {
	var l Log
	l.Append(api.Chunk{Data: []byte("one\ntw")})
	l.Append(api.Chunk{Offset: 6, Data: []byte("o\nverify| all good\nopen")})
	l.Append(api.Chunk{Offset: 100, Data: []byte("late")})
	l.Append(api.Chunk{Offset: 104, Data: []byte("\x1b[2Jcheck\n"), Verify: true})
	l.Append(api.Chunk{Offset: 114, Data: []byte("end\n"), Verify: true, Ended: true})
	want := []string{"1 agent one", "2 agent two", "3 agent verify| all good", "4 agent open", "5 gap 71 bytes were not kept", "6 agent late", "7 verify U+001B[2Jcheck", "8 verify end"}
	if got := texts(l.Window(1, 100)); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := texts(l.Window(3, 2)); !reflect.DeepEqual(got, want[2:4]) {
		t.Errorf("a window has %q", got)
	}
	if !l.Ended() || l.Next() != 118 || l.Lines() != 8 || len(l.Window(9, 5)) != 0 || len(l.Window(-5, 1)) != 1 {
		t.Errorf("ended %v, next %d, %d lines", l.Ended(), l.Next(), l.Lines())
	}
	before := texts(l.Window(1, 100))
	l.Append(api.Chunk{Offset: 110, Data: []byte("k\n")}) // repeated
	if got := texts(l.Window(1, 100)); !reflect.DeepEqual(got, before) {
		t.Errorf("a repeated chunk adds lines: %q", got)
	}
}

// A line that is long is cut between two characters, and what is not shown is counted.
func TestLongLinesAreCut(t *testing.T) {
	var l Log
	l.Append(api.Chunk{Data: []byte(strings.Repeat("a", MaxLine-1) + "éé\n" + strings.Repeat("b", MaxLine) + "\n")})
	lines := l.Window(1, 2)
	if lines[0].Cut != 4 || lines[0].Parts[0].Text != strings.Repeat("a", MaxLine-1) || lines[1].Cut != 0 {
		t.Errorf("cut %d and %d", lines[0].Cut, lines[1].Cut)
	}
}

func TestFindSearchesAllLines(t *testing.T) {
	var l Log
	var b bytes.Buffer
	for i := range 300_000 {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	b.WriteString("An Error\x1b[0m\nU+ZZZZ\n")
	l.Append(api.Chunk{Data: b.Bytes()})
	for query, want := range map[string][]int{"error": {300_001}, "ERROR": {300_001}, "U+001B[0m": {300_001}, "u+zzzz": {300_002}, "U+ZZZZ": {300_002}, "line 299999": {299_999}, "nothing": {}, "": {}, strings.Repeat("x", MaxQuery+1): {}} {
		if got := l.Find(query, 1); !reflect.DeepEqual(got.Numbers, want) || got.Next != 0 {
			t.Errorf("%.20q: %v, want %v", query, got, want)
		}
	}
	got := l.Find("line", 1)
	if len(got.Numbers) != MaxHits || got.Next != MaxHits+1 {
		t.Errorf("%d hits, next %d", len(got.Numbers), got.Next)
	}
	if got = l.Find("line", 299_999); len(got.Numbers) != 2 || got.Next != 0 {
		t.Errorf("from near the end: %v", got)
	}
	if lines := l.Window(150_000, 3); lines[0].Parts[0].Text != "line 150000" {
		t.Errorf("%+v", lines)
	}
}

// Memory is bounded: what is beyond is counted, and the lines before it stay.
func TestALogBeyondTheBoundIsCounted(t *testing.T) {
	var l Log
	chunk := append(bytes.Repeat([]byte("x"), 1<<20-1), '\n')
	for i := range MaxLog>>20 + 2 {
		l.Append(api.Chunk{Offset: int64(i) << 20, Data: chunk})
	}
	if l.Lines() != MaxLog>>20 || l.Dropped() != 2<<20 || l.Next() != MaxLog+2<<20 {
		t.Errorf("%d lines, %d dropped, next %d", l.Lines(), l.Dropped(), l.Next())
	}
	var short Log
	short.Append(api.Chunk{Data: bytes.Repeat([]byte("\n"), maxLines+5)})
	if short.Lines() != maxLines || short.Dropped() != 5 {
		t.Errorf("%d lines, %d dropped", short.Lines(), short.Dropped())
	}
}

// FuzzChunks: the lines are the same however the log is divided into chunks.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nthree"), uint8(3))
	f.Add([]byte("\xff\x1b\r\n\u202e"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		var whole, parts Log
		whole.Append(api.Chunk{Data: data})
		for at, n := 0, int(size%16)+1; at < len(data); at += n {
			parts.Append(api.Chunk{Offset: int64(at), Data: data[at:min(at+n, len(data))]})
		}
		a, b := whole.Window(1, MaxWindow), parts.Window(1, MaxWindow)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%q in parts of %d: %q, want %q", data, size, texts(b), texts(a))
		}
		if want := bytes.Count(data, []byte("\n")); whole.Lines() != want && whole.Lines() != want+1 {
			t.Fatalf("%q: %d lines", data, whole.Lines())
		}
	})
}

func BenchmarkFind300000(b *testing.B) {
	var l Log
	l.Append(api.Chunk{Data: bytes.Repeat([]byte("a line of a log that is about as long as others\n"), 300_000)})
	for b.Loop() {
		l.Find("nothing", 1)
	}
}

// A colour code styles the text behind it and is not shown. Every other escape is named,
// and no code hides text.
func TestColourCodesStyleText(t *testing.T) {
	const escape = "U+001B"
	for in, want := range map[string][]Part{
		"\x1b[31mred\x1b[0m plain":              {styled("red", "red"), styled(" plain", "")},
		"\x1b[1;32mok\x1b[39m!\x1b[22m?":        {styled("ok", "bold green"), styled("!", "bold"), styled("?", "")},
		"\x1b[mreset":                           {styled("reset", "")},
		"\x1b[8;30;47mhidden":                   {styled("hidden", "")},
		"\x1b[38;5;196mpalette\x1b[97mwhite":    {styled("palette", ""), styled("white", "")},
		"\x1b[2Jcleared":                        {hidden(escape), styled("[2Jcleared", "")},
		"\x1b[" + strings.Repeat("1", 33) + "m": {hidden(escape), styled("["+strings.Repeat("1", 33)+"m", "")},
		"\x1b[31":                               {hidden(escape), styled("[31", "")},
		"\x1b[2K\x1b[36mcyan":                   {hidden(escape), styled("[2K", ""), styled("cyan", "cyan")},
	} {
		got := parts(in)
		for i := range got {
			if got[i].Hidden != "" {
				got[i].Hidden = escape
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", in, got, want)
		}
	}
}

func styled(text, style string) Part { return Part{Part: visibletext.Part{Text: text}, Style: style} }

func hidden(text string) Part { return Part{Part: visibletext.Part{Text: text, Hidden: text}} }
