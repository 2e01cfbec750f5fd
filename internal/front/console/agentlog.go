package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// AgentLog shows what an agent wrote, and behind a marker of its own what the
// verify command did. Nothing that the agent writes can look like a line of
// Bailiwick's own or of the verify command: every line stands behind a marker, if
// there is one, and control characters are escaped (see Plain). Without a marker a
// line of the agent that begins like one of the verify command is escaped.
type AgentLog struct {
	notes  io.Writer // Bailiwick's own lines
	lines  *lineWriter
	plain  *plainWriter
	marker string     // of the agent's lines
	verify bool       // the last chunk was the verify command's
	width  func() int // of the terminal, which may change; nil: not a terminal
	next   int64      // offset of the next chunk, if nothing is missing
}

// AgentMarker stands before every line that others wrote.
const AgentMarker = "| "

// VerifyMarker stands before every line of the verify command.
const VerifyMarker = "verify| "

// brokenMarker takes its place where a line was broken to fit the terminal.
const brokenMarker = "|>"

// NewAgentLog shows a log from offset on. marker is AgentMarker, perhaps behind
// a prefix, or empty. Lines are broken at width, because a terminal would
// continue them without a marker; nil does not break them.
func NewAgentLog(to, notes io.Writer, marker string, width func() int, offset int64) *AgentLog {
	l := &AgentLog{notes: notes, lines: &lineWriter{to: to}, marker: marker, width: width, next: offset}
	l.plain = &plainWriter{to: l.lines}
	l.mark(marker)
	return l
}

// mark sets the marker of the lines that follow.
func (l *AgentLog) mark(marker string) {
	l.lines.marker, l.lines.broken = marker, strings.TrimSuffix(marker, AgentMarker)+brokenMarker
}

// turn begins to show what another program wrote, on a new line.
func (l *AgentLog) turn(verify bool) error {
	if err := errors.Join(l.plain.Close(), l.lines.end()); err != nil {
		return err
	}
	l.verify = verify
	marker := l.marker
	if verify {
		marker = strings.TrimSuffix(marker, AgentMarker) + VerifyMarker
	}
	l.mark(marker)
	return nil
}

// Chunk shows the next part of the log, and says so if bytes before it are
// missing.
func (l *AgentLog) Chunk(c api.Chunk) error {
	if gap := c.Offset - l.next; gap > 0 {
		if err := l.gap(gap); err != nil {
			return err
		}
	}
	if c.Verify != l.verify && len(c.Data) > 0 {
		if err := l.turn(c.Verify); err != nil {
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
	} else if err := l.lines.release(); err != nil {
		return err
	} else if l.lines.fresh = true; l.lines.column > 0 {
		newline = "\n" // on notes, since the answer is the log and nothing else
	}
	_, err := fmt.Fprintf(l.notes, "%s[... %s not kept ...]\n", newline, Bytes(size))
	return err
}

// Close shows what is buffered. With a marker it also ends the last line.
func (l *AgentLog) Close() error {
	if err := errors.Join(l.plain.Close(), l.lines.release()); err != nil || l.lines.marker == "" {
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
	held   string // without a marker: the start of a line that may be a forged VerifyMarker
	fresh  bool   // without a marker: a note was shown, so that the text looks like a new line
	out    bytes.Buffer
}

func (w *lineWriter) Write(p []byte) (int, error) {
	if w.marker == "" {
		return len(p), w.bare(p)
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

// bare writes lines without a marker. The first character of one that begins with
// VerifyMarker is escaped.
func (w *lineWriter) bare(p []byte) error {
	text := w.held + string(p)
	w.held = ""
	for line := range strings.Lines(text) {
		switch {
		case w.column > 0 && !w.fresh:
		case strings.HasPrefix(line, VerifyMarker):
			escape(&w.out, rune(line[0]), true)
			line = line[1:]
		case strings.HasPrefix(VerifyMarker, line):
			w.held = line
			line = ""
		}
		if line == "" {
			break
		}
		w.out.WriteString(line)
		w.column, w.fresh = 1, false
		if line[len(line)-1] == '\n' {
			w.column = 0
		}
	}
	_, err := w.out.WriteTo(w.to)
	w.out.Reset()
	return err
}

// release writes the start of a line that was held back.
func (w *lineWriter) release() error {
	if w.held == "" {
		return nil
	}
	_, err := io.WriteString(w.to, w.held)
	w.held, w.column = "", 1
	return err
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
	if err := w.release(); err != nil || w.column == 0 {
		return err
	}
	w.column = 0
	_, err := io.WriteString(w.to, "\n")
	return err
}
