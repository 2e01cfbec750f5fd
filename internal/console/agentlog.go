package console

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// AgentLog shows what an agent wrote. Nothing that the agent writes can look
// like a line of Bailiwick's own: every line stands behind a marker, if there is
// one, and control characters are escaped (see Plain).
type AgentLog struct {
	notes io.Writer // Bailiwick's own lines
	lines *lineWriter
	plain *plainWriter
	width func() int // of the terminal, which may change; nil: not a terminal
	next  int64      // offset of the next chunk, if nothing is missing
}

// AgentMarker stands before every line that others wrote.
const AgentMarker = "| "

// brokenMarker takes its place where a line was broken to fit the terminal.
const brokenMarker = "|>"

// NewAgentLog shows a log from offset on. marker is AgentMarker, perhaps behind
// a prefix, or empty. Lines are broken at width, because a terminal would
// continue them without a marker; nil does not break them.
func NewAgentLog(to, notes io.Writer, marker string, width func() int, offset int64) *AgentLog {
	l := &lineWriter{to: to, marker: marker, broken: strings.TrimSuffix(marker, AgentMarker) + brokenMarker}
	return &AgentLog{notes: notes, lines: l, plain: &plainWriter{to: l}, width: width, next: offset}
}

// Chunk shows the next part of the log, and says so if bytes before it are
// missing.
func (l *AgentLog) Chunk(c api.Chunk) error {
	if gap := c.Offset - l.next; gap > 0 {
		if err := l.gap(gap); err != nil {
			return err
		}
	}
	if l.width != nil {
		l.lines.width = l.width()
	}
	l.next = c.Offset + int64(len(c.Data))
	_, err := l.plain.Write(c.Data)
	return err
}

// gap notes that bytes of the log were not kept.
func (l *AgentLog) gap(size int64) error {
	if err := l.plain.Close(); err != nil {
		return err
	}
	newline := ""
	if l.lines.marker != "" {
		if err := l.lines.end(); err != nil {
			return err
		}
	} else if l.lines.column > 0 {
		newline = "\n" // on notes, since the answer is the log and nothing else
	}
	_, err := fmt.Fprintf(l.notes, "%s[... %s not kept ...]\n", newline, Bytes(size))
	return err
}

// Close shows what is buffered. With a marker it also ends the last line.
func (l *AgentLog) Close() error {
	if err := l.plain.Close(); err != nil || l.lines.marker == "" {
		return err
	}
	return l.lines.end()
}

// lineWriter puts a marker in front of every line of plain text.
type lineWriter struct {
	to     io.Writer
	marker string
	broken string // marker of a continued line
	width  int    // of the terminal now; 0: lines are not broken
	column int    // of the next character; 0: at the start of a line
	out    bytes.Buffer
}

func (w *lineWriter) Write(p []byte) (int, error) {
	if w.marker == "" {
		if len(p) > 0 {
			w.column = 1
			if p[len(p)-1] == '\n' {
				w.column = 0
			}
		}
		return w.to.Write(p)
	}
	if w.width > 0 {
		for _, r := range string(p) {
			w.put(r)
		}
	} else {
		w.whole(p)
	}
	_, err := w.out.WriteTo(w.to)
	w.out.Reset()
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// whole writes lines without breaking them.
func (w *lineWriter) whole(p []byte) {
	for line := range bytes.Lines(p) {
		if w.column == 0 {
			w.out.WriteString(w.marker)
		}
		w.out.Write(line)
		w.column = 1
		if line[len(line)-1] == '\n' {
			w.column = 0
		}
	}
}

func (w *lineWriter) put(r rune) {
	if r == '\n' {
		if w.column == 0 {
			w.out.WriteString(w.marker)
		}
		w.out.WriteByte('\n')
		w.column = 0
		return
	}
	if w.column == 0 {
		w.begin(w.marker)
	}
	size := columns(r, w.column)
	if w.width > 0 && w.column+size > w.width {
		w.out.WriteByte('\n')
		w.begin(w.broken)
		size = columns(r, w.column)
	}
	w.out.WriteRune(r)
	w.column += size
}

func (w *lineWriter) begin(marker string) {
	w.out.WriteString(marker)
	w.column = len(marker)
}

// end ends an unfinished line.
func (w *lineWriter) end() error {
	if w.column == 0 {
		return nil
	}
	w.column = 0
	_, err := io.WriteString(w.to, "\n")
	return err
}
