package broker

import (
	"bytes"
	"fmt"
)

// maxCounted bounds what the count of an answer keeps in memory: an event of a stream,
// or an answer that is no stream, in bytes.
const maxCounted = 16 << 20

var errTooLarge = fmt.Errorf("the answer has an event of more than %d MiB, which cannot be counted", maxCounted>>20)

// events splits a stream of server-sent events, whatever the borders of its writes. It
// needs only their data: the formats repeat the name of an event in it. A line ends with
// LF, CR or CRLF.
type events struct {
	event func(data []byte) // of each event with data; valid until it returns

	line  []byte // the unfinished line
	data  []byte // of the unfinished event
	has   bool   // there is data, maybe empty
	cr    bool   // the last byte was CR: an LF belongs to it
	begun bool   // the first line has been seen
}

func (s *events) write(p []byte) error {
	if s.cr && len(p) > 0 {
		s.cr = false
		if p[0] == '\n' {
			p = p[1:]
		}
	}
	returns := bytes.IndexByte(p, '\r') >= 0
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if returns {
			first := p
			if end >= 0 {
				first = p[:end]
			}
			if cr := bytes.IndexByte(first, '\r'); cr >= 0 {
				end = cr
			}
		}
		if end < 0 {
			s.line = append(s.line, p...)
			break
		}
		line := p[:end]
		if len(s.line) > 0 {
			s.line = append(s.line, line...)
			line = s.line
		}
		s.take(line)
		s.line = s.line[:0]
		switch {
		case p[end] == '\r' && end+1 == len(p):
			s.cr = true
		case p[end] == '\r' && p[end+1] == '\n':
			end++
		}
		p = p[end+1:]
		if len(s.data) > maxCounted {
			return errTooLarge
		}
	}
	if len(s.line)+len(s.data) > maxCounted {
		return errTooLarge
	}
	return nil
}

// take reads one line.
func (s *events) take(line []byte) {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	if len(line) == 0 {
		s.dispatch()
		return
	}
	rest, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok || len(rest) > 0 && rest[0] != ':' {
		return // a comment or another field
	}
	rest = bytes.TrimPrefix(bytes.TrimPrefix(rest, []byte(":")), []byte(" "))
	if s.has {
		s.data = append(s.data, '\n')
	}
	s.data, s.has = append(s.data, rest...), true
}

func (s *events) dispatch() {
	if s.has {
		s.event(s.data)
	}
	s.data, s.has = s.data[:0], false
}

// close ends the stream. A last event counts without the empty line after it: the
// server has sent what it says.
func (s *events) close() {
	if len(s.line) > 0 {
		s.take(s.line)
	}
	s.dispatch()
	s.line, s.data = nil, nil
}
