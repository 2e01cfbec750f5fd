package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/bailiwick-dev/bailiwick/api"
)

// agentLog shows what an agent wrote. Nothing that the agent writes can look
// like a line of Bailiwick's own: with a marker every line of it stands behind
// one, and what a terminal obeys is shown instead (plain.go).
type agentLog struct {
	notes io.Writer // Bailiwick's own lines
	lines *lineWriter
	plain *plainWriter
	width func() int // of the terminal, which may change; nil: there is none
	next  int64      // offset of what should follow
}

// newAgentLog shows a log from offset on. Marker may be empty; width is where
// to break lines, so that the terminal does not do it without a marker, or nil.
func newAgentLog(to, notes io.Writer, marker string, width func() int, offset int64) *agentLog {
	l := &lineWriter{to: to, marker: marker, broken: brokenMarker}
	return &agentLog{notes: notes, lines: l, plain: &plainWriter{to: l}, width: width, next: offset}
}

func (l *agentLog) chunk(c api.Chunk) error {
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

// gap says that a part of the log is not there.
func (l *agentLog) gap(size int64) error {
	if err := l.plain.Close(); err != nil {
		return err
	}
	ended := ""
	if l.lines.marker != "" {
		if err := l.lines.end(); err != nil {
			return err
		}
	} else if l.lines.column > 0 {
		// What goes to the answer is the log and nothing else.
		ended = "\n"
	}
	_, err := fmt.Fprintf(l.notes, "%s[... %s not kept ...]\n", ended, sizeText(size))
	return err
}

// Close shows what was held back. With a marker it also ends the last line.
func (l *agentLog) Close() error {
	if err := l.plain.Close(); err != nil || l.lines.marker == "" {
		return err
	}
	return l.lines.end()
}

// sizeText is a number of bytes as people read it.
func sizeText(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1023.95 && unit < len("KMGTPE")-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[unit])
}

const (
	agentMarker  = "| "
	brokenMarker = "|>" // where the line before was too long for the terminal
)

// lineWriter puts a marker in front of every line of plain text.
type lineWriter struct {
	to     io.Writer
	marker string
	broken string // the marker where a line was broken
	width  int    // of the terminal now; 0: lines are not broken
	column int    // where in the line the next character goes; 0: no line has begun
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

// whole writes lines that need no breaking.
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

// columns is how far a character moves a terminal's cursor, or further: what
// is not ASCII may be wide.
func columns(r rune, at int) int {
	switch {
	case r == '\t':
		return 8 - at%8
	case r < 0x80:
		return 1
	}
	return 2
}

// end ends a line that has begun.
func (w *lineWriter) end() error {
	if w.column == 0 {
		return nil
	}
	w.column = 0
	_, err := io.WriteString(w.to, "\n")
	return err
}
