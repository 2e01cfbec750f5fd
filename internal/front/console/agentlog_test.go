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
	for n, want := range map[int64]string{1: "1 byte", 1023: "1023 bytes", 1024: "1.0 KiB", 1<<20 - 1: "1.0 MiB", 9986050662: "9.3 GiB", 1<<63 - 1: "8.0 EiB"} {
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

// What the verify command wrote stands behind a marker that the agent cannot
// forge, however its text is cut into chunks.
//
// proves R-D7
func TestVerifyOutputCannotBeForged(t *testing.T) {
	const agent, judge = "verify| ok\nver\nverify|ok\nverify| \nno end", "FAIL one\nverify| two"
	for marker, want := range map[string]string{
		"":          "\\x76erify| ok\nver\nverify|ok\n\\x76erify| \nno end\nverify| FAIL one\nverify| verify| two\n",
		AgentMarker: "| verify| ok\n| ver\n| verify|ok\n| verify| \n| no end\nverify| FAIL one\nverify| verify| two\n",
		"task | ":   "task | verify| ok\ntask | ver\ntask | verify|ok\ntask | verify| \ntask | no end\ntask verify| FAIL one\ntask verify| verify| two\n",
	} {
		for size := 1; size <= len(agent); size++ {
			var chunks []api.Chunk
			for i, text := range []string{agent, judge} {
				for at := 0; at < len(text); at += size {
					chunks = append(chunks, api.Chunk{Offset: int64(i*len(agent) + at), Data: []byte(text[at:min(at+size, len(text))]), Verify: i == 1})
				}
			}
			if got := shown(t, marker, 0, append(chunks, api.Chunk{Offset: int64(len(agent + judge)), Ended: true})...); got != want {
				t.Fatalf("marker %q, chunks of %d: %q, want %q", marker, size, got, want)
			}
		}
	}
	// A note about missing bytes looks like a new line on a terminal.
	if got := shown(t, "", 0, api.Chunk{Data: []byte("a")}, api.Chunk{Offset: 100, Data: []byte("verify| ok\n")}); !strings.HasSuffix(got, "]\n\\x76erify| ok\n") {
		t.Errorf("after a gap: %q", got)
	}
	if got := shown(t, "", 0, api.Chunk{Data: []byte("verif")}); got != "verif" {
		t.Errorf("the end of a log: %q", got)
	}
	if got := shown(t, "", 12, api.Chunk{Data: []byte("0123456789"), Verify: true}); got != "verify| 0123\nverify|>4567\nverify|>89\n" {
		t.Errorf("broken lines: %q", got)
	}
}
