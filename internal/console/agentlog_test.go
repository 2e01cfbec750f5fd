package console

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// shown is the text of a shown log, with Bailiwick's own lines.
func shown(t testing.TB, marker string, width int, chunks ...api.Chunk) string {
	t.Helper()
	var out bytes.Buffer
	l := NewAgentLog(&out, &out, marker, func() int { return width }, 0)
	for _, c := range chunks {
		if err := l.Chunk(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// proves R-D7
func TestAgentLogMarksEveryLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"one\ntwo\n":                      "| one\n| two\n",
		"no end":                          "| no end\n",
		"\n\n":                            "| \n| \n",
		"\rdispatch x finished\n":         "| \\x0ddispatch x finished\n",
		"a\u2028dispatch x finished\n":    "| a\\u2028dispatch x finished\n",
		"\x1b[1A\x1b[2Kdispatch x\n":      "| \\x1b[1A\\x1b[2Kdispatch x\n",
		"\u0338\n":                        "| \\u0338\n",
		"| forged marker\n":               "| | forged marker\n",
		"{\"event\":{\"event\":\"x\"}}\n": "| {\"event\":{\"event\":\"x\"}}\n",
	} {
		for size := 1; size <= len(in)+1; size++ {
			var chunks []api.Chunk
			for at := 0; at < len(in); at += size {
				chunks = append(chunks, api.Chunk{Offset: int64(at), Data: []byte(in[at:min(at+size, len(in))])})
			}
			if got := shown(t, AgentMarker, 0, chunks...); got != want {
				t.Errorf("%q in chunks of %d is shown as %q, want %q", in, size, got, want)
			}
		}
	}
}

func TestAgentLogReportsMissingBytes(t *testing.T) {
	head, tail := api.Chunk{Data: []byte("begin \xe2\x80")}, api.Chunk{Offset: 10 << 30, Data: []byte("\x99end\n")}
	if got, want := shown(t, AgentMarker, 0, head, tail), "| begin \\xe2\\x80\n[... 10.0 GiB not kept ...]\n| \\x99end\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var log, notes bytes.Buffer
	l := NewAgentLog(&log, &notes, "", nil, 0)
	for _, c := range []api.Chunk{head, tail} {
		if err := l.Chunk(c); err != nil {
			t.Fatal(err)
		}
	}
	// Standard output has only the log.
	if log.String() != "begin \\xe2\\x80\\x99end\n" || notes.String() != "\n[... 10.0 GiB not kept ...]\n" {
		t.Errorf("log %q, notes %q", log.String(), notes.String())
	}
	// The first chunk is after the requested offset.
	notes.Reset()
	l = NewAgentLog(&log, &notes, "", nil, 10<<30-2000)
	if err := l.Chunk(tail); err != nil || notes.String() != "[... 2.0 KiB not kept ...]\n" {
		t.Errorf("%v, %q", err, notes.String())
	}
}

func TestBytesFormatsSizes(t *testing.T) {
	for n, want := range map[int64]string{1: "1 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1<<20 - 1: "1.0 MiB", 9986050662: "9.3 GiB", 1<<63 - 1: "8.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// A terminal would break a long line and continue it without a marker.
func FuzzAgentLogMarksEveryLine(f *testing.F) {
	f.Add("one\ntwo\r\x1b[2K", 1, 20)
	f.Add(strings.Repeat(" ", 18)+"dispatch d finished\n\t\t\t\u4e16\u754c", 3, 20)
	f.Fuzz(func(t *testing.T, s string, size, width int) {
		size, width = 1+abs(size)%9, 12+abs(width)%100
		var chunks []api.Chunk
		for at := 0; at < len(s); at += size {
			chunks = append(chunks, api.Chunk{Offset: int64(at), Data: []byte(s[at:min(at+size, len(s))])})
		}
		out := shown(t, AgentMarker, width, chunks...)
		if out != "" && !strings.HasSuffix(out, "\n") || controls(out) {
			t.Fatalf("%q", out)
		}
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, AgentMarker) && !strings.HasPrefix(line, brokenMarker) {
				t.Errorf("%q has a line without a marker: %q", s, line)
			}
			column := 0
			for _, r := range strings.TrimSuffix(line, "\n") {
				column += columns(r, column)
			}
			if column > width {
				t.Errorf("%q is wider than %d", line, width)
			}
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
