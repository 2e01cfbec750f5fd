package toolhost

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// speaker writes standard error: lines of this program and of the server, which it tells
// apart by their first byte. Secrets are redacted, and what the server writes beyond a
// rate is dropped.
type speaker struct {
	now    func() time.Time
	redact *redact.Set
	lines  *lines

	mu      sync.Mutex
	words   *redact.Writer // of the server; guarded by mu
	left    int            // bytes that it may write now; guarded by mu
	at      time.Time      // guarded by mu
	dropped bool           // guarded by mu
	owned   int            // lines of this program; guarded by mu
}

const (
	saidSize = 256 << 10
	saidRate = 16 << 10 // a second
	maxOwn   = 1000     // lines of this program: a server can cause one at will
)

func newSpeaker(to io.Writer, values *redact.Set, now func() time.Time) *speaker {
	s := &speaker{now: now, redact: values, lines: &lines{to: to}, left: saidSize, at: now()}
	s.words = values.Writer(s.lines)
	return s
}

// own writes a line of this program.
func (s *speaker) own(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned++; s.owned > maxOwn {
		return
	}
	s.lines.line(record.ToolOwnLine, []byte(s.redact.Text(printable(line))))
}

func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return ' '
		}
		return r
	}, line)
}

// server returns what the server writes to.
func (s *speaker) server() io.Writer { return serverWriter{s} }

type serverWriter struct{ *speaker }

func (s serverWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.left = min(saidSize, s.left+int(now.Sub(s.at).Seconds()*saidRate))
	s.at = now
	if len(b) > s.left {
		if !s.dropped {
			_, _ = s.words.Write([]byte("\n[what it wrote is dropped]\n"))
		}
		s.dropped = true
		return len(b), nil
	}
	s.dropped = false
	s.left -= len(b)
	_, _ = s.words.Write(b) // nobody is left to tell
	return len(b), nil
}

func (s *speaker) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.words.Close()
	s.lines.flush()
}

// said returns the end of what was written, and words what the server itself wrote of it.
func (s *speaker) said() (all, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []string
	for line := range strings.Lines(string(s.lines.end)) {
		if text, ok := strings.CutPrefix(line, record.ToolServerLine); ok {
			own = append(own, text)
			all += text
		} else {
			all += strings.TrimPrefix(line, record.ToolOwnLine)
		}
	}
	clean := func(text string) string { return strings.TrimSpace(strings.ToValidUTF8(text, "")) }
	return clean(all), clean(strings.Join(own, ""))
}

// lines writes lines of the server, with a mark before each.
type lines struct {
	to   io.Writer
	part []byte
	end  []byte // of what was written
}

const maxEnd = 8 << 10

const maxSaidLine = 4 << 10

func (l *lines) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		l.part = append(l.part, line[:min(len(line), maxSaidLine-min(len(l.part), maxSaidLine))]...)
		if whole {
			l.flush()
		}
		rest = more
	}
	return len(b), nil
}

func (l *lines) flush() {
	if len(l.part) > 0 {
		l.line(record.ToolServerLine, l.part)
		l.part = l.part[:0]
	}
}

func (l *lines) line(mark string, text []byte) {
	line := append(append([]byte(mark), text...), '\n')
	l.end = append(l.end, line...)
	if over := len(l.end) - maxEnd; over > 0 {
		l.end = append(l.end[:0], l.end[over:]...)
	}
	_, _ = l.to.Write(line)
}
